package crictl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxCmdline bounds a process's arguments. k3s and kubelet command lines have a few kilobytes.
const maxCmdline = 256 << 10

// A kubeletProcess is a process that is, or contains, a kubelet.
type kubeletProcess struct {
	pid     int
	name    string   // comm
	args    []string // of the kubelet: for one that is embedded, what its host process hands to it
	kind    embedding
	pidNS   int    // pid namespaces below ours that it is in: 0 for a process of this host
	problem string // why its arguments are not all known
}

// findKubelet looks for the running kubelet and reads its settings. It returns the endpoint that holds when the kubelet
// names none.
func (d *discovery) findKubelet(ctx context.Context) (defaultURL string) {
	type finding struct {
		process *kubeletProcess
		tried   []Tried
	}
	f, err := bounded(ctx, lookTimeout, func() (finding, error) {
		all, err := kubeletProcesses(ctx, d.root)
		if err != nil {
			return finding{}, err
		}
		p, tried := chooseKubelet(all)
		return finding{p, tried}, nil
	})
	d.aboutKubelet = f.tried
	if err != nil {
		d.aboutKubelet = append(d.aboutKubelet, Tried{SourceKubelet, "the running kubelet", "/proc: " + reasonOf(err)})
		return ""
	}
	if f.process == nil {
		return ""
	}
	k := kubeletOf(f.process)
	s, err := bounded(ctx, lookTimeout, func() (kubeletSettings, error) {
		return readKubeletSettings(d.root, f.process), nil
	})
	if err != nil {
		k.Unreadable = "its configuration file: " + reasonOf(err)
	}
	s.fill(k)
	if k.Endpoint == "" && f.process.kind.socket != "" {
		k.Endpoint = unixScheme + f.process.kind.socket
		k.EndpointFrom = "built-in default"
	}
	d.Kubelet = k
	return unixScheme + wellKnown()[0].path
}

func kubeletOf(p *kubeletProcess) *Kubelet {
	return &Kubelet{PID: p.pid, Name: p.name, Unreadable: p.problem}
}

// kubeletProcesses reads /proc under root for kubelets. Only comm is read of other processes: it is the one file there
// that never waits for a lock of the process.
func kubeletProcesses(ctx context.Context, root string) ([]kubeletProcess, error) {
	entries, err := os.ReadDir(filepath.Join(root, "proc"))
	if err != nil {
		return nil, err
	}
	var out []kubeletProcess
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if p, ok := readKubeletProcess(root, pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func readKubeletProcess(root string, pid int) (kubeletProcess, bool) {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	comm, err := readUpTo(filepath.Join(dir, "comm"), 256)
	if err != nil || !mayBeKubelet(string(comm)) {
		return kubeletProcess{}, false // gone meanwhile, or another program
	}
	cmdline, err := readUpTo(filepath.Join(dir, "cmdline"), maxCmdline)
	if err != nil {
		return kubeletProcess{}, false
	}
	name := strings.TrimSpace(string(comm))
	kind, args, ok := kubeletArgs(name, splitCmdline(cmdline))
	if !ok {
		return kubeletProcess{}, false
	}
	p := kubeletProcess{pid: pid, name: name, args: args, kind: kind, pidNS: pidNamespaces(dir)}
	p.readArgsFile(root)
	return p, true
}

// chooseKubelet prefers a process that is a kubelet to one that contains or starts one, and the oldest by number.
// Kubelets in pid namespaces of their own belong to other nodes (kind, k3d) that share this kernel; their sockets are
// not at the same path here.
func chooseKubelet(all []kubeletProcess) (*kubeletProcess, []Tried) {
	slices.SortStableFunc(all, func(a, b kubeletProcess) int {
		if a.kind.rank != b.kind.rank {
			return a.kind.rank - b.kind.rank
		}
		return a.pid - b.pid
	})
	var chosen *kubeletProcess
	var tried []Tried
	for i := range all {
		p := &all[i]
		what := fmt.Sprintf("%s (pid %d)", printable(p.name, errLimit), p.pid)
		switch {
		case p.pidNS > 0:
			tried = append(tried, Tried{SourceKubelet, what, "runs in a pid namespace of its own, as that of another node"})
		case chosen == nil:
			chosen = p
		case p.kind.rank == chosen.kind.rank:
			tried = append(tried, Tried{
				SourceKubelet, what,
				fmt.Sprintf("more than one kubelet runs here; pid %d was taken", chosen.pid),
			})
		}
	}
	return chosen, tried
}

// splitCmdline splits what /proc/PID/cmdline holds. A process that wrote its own title has blanks instead of NULs.
func splitCmdline(data []byte) []string {
	text := strings.TrimRight(string(data), "\x00")
	if text == "" {
		return nil
	}
	if !strings.Contains(text, "\x00") {
		return strings.Fields(text)
	}
	return strings.Split(text, "\x00")
}

// pidNamespaces counts the pid namespaces below the reader's that a process is in, from the line of /proc/PID/status
// that gives its number in each:
//
//	NSpid:	4711	1
func pidNamespaces(dir string) int {
	data, err := readUpTo(filepath.Join(dir, "status"), 64<<10)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return max(0, len(strings.Fields(rest))-1)
		}
	}
	return 0
}
