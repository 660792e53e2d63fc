package crictl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/proc"
)

// A Kubelet holds the settings of the running kubelet on which a relist depends. A zero value means that neither its
// arguments nor its configuration set it, and the kubelet's default holds.
type Kubelet struct {
	PID              int
	Name             string        // of the process: kubelet, k3s-server, ...
	ConfigPath       string        // --config, as the kubelet sees it
	Endpoint         string        // --container-runtime-endpoint or containerRuntimeEndpoint
	EndpointFrom     string        // which of the two, or "built-in default" for a distribution that embeds its kubelet
	RequestTimeout   time.Duration // runtimeRequestTimeout; 0 means the default, 2m
	EventedPLEG      bool          // feature gate; false where it is known to change no period
	CRIListStreaming bool          // feature gate
	Collection       Collection    // garbage collection, and where its pods come from
	Unreadable       string        // the parts that could not be read, and why; empty when all could
}

// A Collection holds the settings of a kubelet's garbage collection, and of the sources of its pods.
type Collection struct {
	// DeadPerContainer is --maximum-dead-containers-per-container; nil when not set, for which the kubelet takes 1.
	// Below 0 it removes nothing of a pod that it knows.
	DeadPerContainer *int
	MinAge           time.Duration // --minimum-container-ttl-duration, counted from a container's creation
	RootDir          string        // --root-dir; empty means /var/lib/kubelet
	PodLogsDir       string        // podLogsDir; empty means /var/log/pods
	StaticPodPath    string        // staticPodPath or --pod-manifest-path; empty when it runs no static pods from files
	StaticPodURL     string        // staticPodURL or --manifest-url; empty when it runs no static pods from there
	ReadOnlyPort     int           // of its HTTP server without authentication; 0 means none
}

// A process is one of the host's, with the files of /proc/PID that every user may read.
type process struct {
	pid    int
	name   string // comm, which the kernel cuts at 15 bytes
	argv   []string
	status string
}

// processes returns the host's processes whose name want accepts, by number. Of others only comm is read: it is the
// one file that never waits for a lock of the process.
func processes(root string, want func(comm string) bool) (out []process, err error) {
	entries, err := os.ReadDir(filepath.Join(root, "proc"))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(root, pid, want); ok {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b process) int { return a.pid - b.pid })
	return out, err
}

func readProcess(root string, pid int, want func(comm string) bool) (process, bool) {
	comm, err := readProc(root, pid, "comm")
	name := strings.TrimSpace(string(comm))
	if err != nil || !want(name) {
		return process{}, false // gone meanwhile, or another program
	}
	cmdline, err := readProc(root, pid, "cmdline")
	status, _ := readProc(root, pid, "status")
	return process{pid: pid, name: name, argv: splitCmdline(cmdline), status: string(status)}, err == nil
}

// readProc reads up to 1 MiB of a file of a process: a process may declare any part of its memory to be its arguments
// (PR_SET_MM of prctl(2)).
func readProc(root string, pid int, file string) ([]byte, error) {
	f, err := os.Open(filepath.Join(proc.Dir(root, pid), file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// splitCmdline splits the contents of /proc/PID/cmdline. A process that wrote its own title has blanks instead of NULs.
func splitCmdline(data []byte) []string {
	text := strings.TrimRight(string(data), "\x00")
	if !strings.Contains(text, "\x00") {
		return strings.Fields(text)
	}
	return strings.Split(text, "\x00")
}

// otherUser returns the user of a process if it cannot be a kubelet or shim of this node; empty when it can.
func (p *process) otherUser() string { return printable(proc.OtherUser(p.status)) }

// shimAbove returns the topmost shim among the ancestors of a process; 0 for none.
func (p *process) shimAbove(root string) int {
	return proc.ShimAbove(p.pid, func(pid int) (int, string, bool) {
		parent := parentOf(root, pid)
		comm, err := readProc(root, parent, "comm")
		return parent, string(comm), parent > 0 && err == nil
	})
}

// parentOf returns the parent of a process; 0 where it has none, or may not be read.
func parentOf(root string, pid int) int {
	status, _ := readProc(root, pid, "status")
	parent, _ := strconv.Atoi(strings.Join(proc.StatusFields(string(status), "PPid:"), ""))
	return parent
}

// isPods reports whether a process is a pod's.
func (p *process) isPods(root string) bool {
	shim := p.shimAbove(root)
	return shim != 0 && proc.RunsPods(root, shim)
}

// A KubeletProcess is a process that is, or contains, a kubelet.
type KubeletProcess struct {
	process
	root    string
	args    []string // of the kubelet: an embedded one gets some of its host process
	socket  string   // endpoint that a distribution gives to the kubelet in its process; empty for a kubelet proper
	problem string   // why not all arguments are known
}

// OpenKubelet reads the arguments of a process that is, or contains, a kubelet. root is the host's root directory as
// this process sees it.
func OpenKubelet(root string, pid int) (*KubeletProcess, error) {
	p, ok := readProcess(root, pid, mayBeKubelet)
	if k := newKubeletProcess(root, p); ok && k != nil {
		return k, nil
	}
	return nil, errors.New("no kubelet runs under this number, or its arguments may not be read")
}

// Name returns the name of the process: kubelet, k3s-server, ...
func (k *KubeletProcess) Name() string { return k.name }

// Problem returns why not all of its arguments are known; empty when they are.
func (k *KubeletProcess) Problem() string { return k.problem }

// Socket returns the endpoint that a distribution gives to the kubelet in its process; empty for a kubelet proper.
func (k *KubeletProcess) Socket() string { return k.socket }

// Flags returns the kubelet's flags as kubeletconfig.Read takes them, and more flags with a value.
func (k *KubeletProcess) Flags(more ...string) map[string][]string {
	return kubeletconfig.ParseFlags(k.args, more...)
}

// Files returns the host's files as the kubelet sees them.
func (k *KubeletProcess) Files() kubeletconfig.Files { return SeenBy(k.root, k.pid).Kubelet() }

// mayBeKubelet reports whether the arguments of a process of this name are worth reading. The kubelets of kubeadm, RKE2
// and k0s are processes; MicroK8s and k3s run theirs inside another.
func mayBeKubelet(comm string) bool {
	return comm == "kubelet" || comm == "kubelite" || comm == "k3s" || strings.HasPrefix(comm, "k3s-")
}

// newKubeletProcess returns nil for a process that is no kubelet and contains none.
func newKubeletProcess(root string, p process) *KubeletProcess {
	if len(p.argv) == 0 {
		return nil // a zombie, or a kernel thread of that name
	}
	k := &KubeletProcess{process: p, root: root, args: p.argv[1:]}
	switch p.name {
	case "kubelet":
	case "kubelite":
		k.socket = unixScheme + microk8sSocket
		k.readArgsFile()
	default: // k3s calls its process k3s-server or k3s-agent
		i := slices.IndexFunc(k.args, func(a string) bool { return !strings.HasPrefix(a, "-") })
		serves := p.name != "k3s" || i >= 0 && (k.args[i] == "server" || k.args[i] == "agent")
		if !serves || slices.Contains(k.args, "--disable-agent") {
			return nil
		}
		k.socket = unixScheme + k3sSocket
		if slices.Contains(k.args, "--docker") {
			k.socket = unixScheme + "/run/k3s/cri-dockerd/cri-dockerd.sock"
		}
		k.args = handedOn(k.args)
	}
	return k
}

// handedOn returns the arguments that k3s hands on to the kubelet in it:
//
//	k3s server --container-runtime-endpoint unix:///run/x.sock --kubelet-arg=feature-gates=EventedPLEG=true
//
// gives --container-runtime-endpoint=unix:///run/x.sock and --feature-gates=EventedPLEG=true.
func handedOn(args []string) (out []string) {
	flags := kubeletconfig.ParseFlags(args, "kubelet-arg", "data-dir")
	for _, name := range []string{"container-runtime-endpoint", "data-dir"} {
		if v := kubeletconfig.Last(flags, name); v != "" {
			out = append(out, "--"+name+"="+v)
		}
	}
	for _, arg := range flags["kubelet-arg"] {
		out = append(out, "--"+strings.TrimLeft(arg, "-"))
	}
	return out
}

// readArgsFile follows MicroK8s's --kubelet-args-file, which holds one argument per line and two variables of snap:
//
//	--config=${SNAP_DATA}/args/kubelet-config.yaml
func (k *KubeletProcess) readArgsFile() {
	name := kubeletconfig.Last(k.Flags("kubelet-args-file"), "kubelet-args-file")
	if name == "" {
		return
	}
	data, err := k.Files().Read(name)
	if err != nil {
		k.problem = printable(name) + " " + err.Error()
		return
	}
	snapData := filepath.Dir(filepath.Dir(name))
	common := filepath.Join(filepath.Dir(snapData), "common")
	expand := strings.NewReplacer("${SNAP_DATA}", snapData, "${SNAP_COMMON}", common)
	k.args = nil
	for line := range strings.Lines(expand.Replace(string(data))) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			k.args = append(k.args, strings.Fields(line)...)
		}
	}
}

// findKubelet looks for the running kubelet and reads its settings. It returns why a process was not taken.
//
// It prefers a process that is a kubelet to one that contains one, and the oldest by number. Kubelets in pid namespaces
// below this one belong to other nodes (kind, k3d) on this kernel; their sockets are not at the same path here. Any
// user and any pod may call a process kubelet: only processes of root outside of pods count.
func (d *discovery) findKubelet(ctx context.Context) (tried []Tried) {
	all, err := within(ctx, "listing kubelets", func() (found []*KubeletProcess, err error) {
		all, err := processes(d.root, mayBeKubelet)
		for _, p := range all {
			if k := newKubeletProcess(d.root, p); k != nil {
				found = append(found, k)
			}
		}
		return found, err
	})
	if err != nil {
		return []Tried{{SourceKubelet, "the running kubelet", "/proc: " + reasonOf(err)}}
	}
	var chosen *KubeletProcess
	for _, k := range all {
		what := fmt.Sprintf("%s (pid %d)", printable(k.name), k.pid)
		switch user := k.otherUser(); {
		case proc.Nested(k.status):
			tried = append(tried, Tried{SourceKubelet, what, "runs in another pid namespace, as that of another node"})
		case user != "":
			d.NotTaken = append(
				d.NotTaken,
				Tried{SourceKubelet, what, "runs as user " + user + ", and a node's kubelet as root"},
			)
		case k.isPods(d.root):
			d.NotTaken = append(d.NotTaken, Tried{SourceKubelet, what, "runs in a pod"})
		case chosen == nil || chosen.socket != "" && k.socket == "":
			chosen = k
		}
	}
	tried = append(tried, d.NotTaken...)
	if chosen == nil {
		if len(tried) == 0 {
			tried = []Tried{{SourceKubelet, "the running kubelet", "no kubelet is visible from here"}}
		}
		return tried
	}
	d.Kubelet, err = within(ctx, "reading the kubelet's settings",
		func() (*Kubelet, error) { return chosen.settings(), nil })
	if err != nil {
		d.Kubelet = &Kubelet{PID: chosen.pid, Name: chosen.name, Unreadable: "its configuration file: " + reasonOf(err)}
	}
	return tried
}

// settings reads the settings of the kubelet.
func (k *KubeletProcess) settings() *Kubelet {
	flags := k.Flags()
	s := kubeletconfig.Read(flags, k.Files(), k.socket == "")
	out := &Kubelet{
		PID: k.pid, Name: k.name, ConfigPath: kubeletconfig.Last(flags, "config"),
		EventedPLEG: s.Gate("EventedPLEG"), CRIListStreaming: s.Gate("CRIListStreaming"),
		Collection: Collection{
			RootDir:       kubeletconfig.Last(flags, "root-dir"),
			StaticPodPath: s.StaticPodPath, StaticPodURL: s.StaticPodURL, ReadOnlyPort: int(s.ReadOnlyPort),
		},
	}
	switch {
	case kubeletconfig.Last(flags, "container-runtime-endpoint") != "":
		out.Endpoint, out.EndpointFrom = s.ContainerRuntimeEndpoint, "--container-runtime-endpoint"
	case s.IsSet("containerRuntimeEndpoint"):
		out.Endpoint, out.EndpointFrom = s.ContainerRuntimeEndpoint,
			"containerRuntimeEndpoint in the configuration file"
	case k.socket != "":
		out.Endpoint, out.EndpointFrom = k.socket, "built-in default"
	}
	if s.IsSet("podLogsDir") {
		out.Collection.PodLogsDir = s.PodLogsDir
	}
	if s.IsSet("runtimeRequestTimeout") {
		out.RequestTimeout = s.RuntimeRequestTimeout.Duration
	}
	var problems []string
	if k.problem != "" {
		problems = append(problems, k.problem)
	}
	for _, p := range s.Problems {
		problems = append(problems, printable(p.Error()))
	}
	c := &out.Collection
	if v := kubeletconfig.Last(flags, "maximum-dead-containers-per-container"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			problems = append(problems, "--maximum-dead-containers-per-container is not a number")
		} else {
			c.DeadPerContainer = &n
		}
	}
	if v := kubeletconfig.Last(flags, "minimum-container-ttl-duration"); v != "" {
		c.MinAge, _ = time.ParseDuration(v) // a kubelet with a bad one does not start
	}
	out.Unreadable = strings.Join(problems, "; ")
	return out
}

// Rivals returns which of some kubelets call the runtime at the socket that the kubelet of a pid calls, each as it sees
// the file: one in a container may have another socket at the same path. The parents and children of that kubelet, such
// as a wrapper of its name, are none. root is the host's root directory as this process sees it.
func Rivals(ctx context.Context, root string, pid int, others []int) []int {
	found, _ := within(ctx, "comparing kubelets", func() (rivals []int, _ error) { // a socket that cannot be seen is none
		own := socketOf(root, pid)
		for _, other := range others {
			if info := socketOf(root, other); own != nil && info != nil && os.SameFile(own, info) &&
				connects(root, other) && !descends(root, pid, other) && !descends(root, other, pid) {
				rivals = append(rivals, other)
			}
		}
		return rivals, nil
	})
	return found
}

// socketOf describes the socket at which a kubelet calls its runtime; nil where it is not there, or not known.
func socketOf(root string, pid int) (info fs.FileInfo) {
	k, err := OpenKubelet(root, pid)
	if err != nil {
		return nil
	}
	endpoint := cmp.Or(k.settings().Endpoint, kubeletconfig.Defaults().ContainerRuntimeEndpoint)
	_ = InRoot(filepath.Join(proc.Dir(root, pid), "root"), pathOf(endpoint), func(path string) (err error) {
		info, err = os.Stat(path)
		return err
	})
	return info
}

// connects reports whether a process has a socket open: one that is only called kubelet may have none.
func connects(root string, pid int) bool {
	dir := filepath.Join(proc.Dir(root, pid), "fd")
	fds, _ := os.ReadDir(dir) // one that may not be looked at has none
	return slices.ContainsFunc(fds, func(fd fs.DirEntry) bool {
		link, _ := os.Readlink(filepath.Join(dir, fd.Name()))
		return strings.HasPrefix(link, "socket:")
	})
}

// descends reports whether a process is below another one.
func descends(root string, pid, from int) bool {
	for range 64 { // process ids are read one after the other: a reused one could close a circle
		if pid = parentOf(root, pid); pid <= 1 || pid == from {
			break
		}
	}
	return pid > 1 && pid == from
}
