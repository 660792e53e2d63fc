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
	alien   string // why it is not this node's kubelet whatever it calls itself: another user's; empty when it may be
	problem string // why its arguments are not all known
}

// findKubelet looks for the running kubelet and reads its settings. It returns the endpoint that holds when the kubelet
// names none.
func (d *discovery) findKubelet(ctx context.Context) (defaultURL string) {
	type finding struct {
		process         *kubeletProcess
		tried, notTaken []Tried
	}
	f, err := bounded(ctx, lookTimeout, func() (finding, error) {
		all, err := kubeletProcesses(ctx, d.root)
		if err != nil {
			return finding{}, err
		}
		p, tried, notTaken := chooseKubelet(all)
		return finding{p, tried, notTaken}, nil
	})
	d.aboutKubelet, d.NotTaken = f.tried, f.notTaken
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
	status, _ := readUpTo(filepath.Join(dir, "status"), 64<<10)
	p := kubeletProcess{pid: pid, name: name, args: args, kind: kind, pidNS: pidNamespaces(status), alien: alienUser(status, os.Geteuid())}
	p.readArgsFile(root)
	return p, true
}

// chooseKubelet prefers a process that is a kubelet to one that contains or starts one, and the oldest by number.
// Kubelets in pid namespaces of their own belong to other nodes (kind, k3d) that share this kernel; their sockets are
// not at the same path here. Any user may call a process kubelet: those of others than root are passed over.
func chooseKubelet(all []kubeletProcess) (chosen *kubeletProcess, tried, notTaken []Tried) {
	slices.SortStableFunc(all, func(a, b kubeletProcess) int {
		if a.kind.rank != b.kind.rank {
			return a.kind.rank - b.kind.rank
		}
		return a.pid - b.pid
	})
	for i := range all {
		p := &all[i]
		what := fmt.Sprintf("%s (pid %d)", printable(p.name, errLimit), p.pid)
		switch {
		case p.pidNS > 0:
			tried = append(tried, Tried{SourceKubelet, what, "runs in a pid namespace of its own, as that of another node"})
		case p.alien != "":
			notTaken = append(notTaken, Tried{SourceKubelet, what, p.alien})
		case chosen == nil:
			chosen = p
		case p.kind.rank == chosen.kind.rank:
			notTaken = append(notTaken, Tried{
				SourceKubelet, what,
				fmt.Sprintf("more than one kubelet runs here; pid %d was taken", chosen.pid),
			})
		}
	}
	return chosen, append(tried, notTaken...), notTaken
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

// alienUser says why a process is no kubelet of this node by whose it is; empty when it may be. A kubelet is root's. One without
// root (kubernetes#92863) is that of a user, and of interest where he runs kdiag himself. Both the real and the effective user count,
// since anybody may start a program that becomes root under another name; they are the first two of the line of /proc/PID/status
//
//	Uid:	0	0	0	0
func alienUser(status []byte, self int) string {
	for line := range strings.Lines(string(status)) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		ids := strings.Fields(rest)
		for _, id := range ids[:min(len(ids), 2)] {
			if uid, err := strconv.Atoi(id); err != nil || uid != 0 && uid != self {
				return "runs as user " + printable(id, errLimit) + ", and a node's kubelet as root"
			}
		}
		if len(ids) >= 2 {
			return ""
		}
	}
	return "could not be asked whose it is"
}

// pidNamespaces counts the pid namespaces below the reader's that a process is in, from the line of /proc/PID/status
// that gives its number in each:
//
//	NSpid:	4711	1
func pidNamespaces(status []byte) int {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return max(0, len(strings.Fields(rest))-1)
		}
	}
	return 0
}
