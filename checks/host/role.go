package host

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/crictl/proc"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// commLen is the length at which the kernel cuts a process's name: TASK_COMM_LEN without its NUL.
const commLen = 15

// Names are the names of runtimes' processes and folders.
type Names struct {
	Runtimes  []string // processes of the daemons, as in /proc/PID/comm
	Shims     []string // of their shims; a name ending in * stands for all that begin so
	DataDirs  []string // where they keep containers and images by default
	StateDirs []string // where they keep the state of running containers by default
}

// ociNames are the programs of OCI runtimes, as in Names. runc init calls itself runc:[1:CHILD] and runc:[2:INIT]; see
// lives. The last is a wrapper around runc, and its hook.
var ociNames = []string{"runc", "runc:[*", "crun", "youki", "youki:[*", "runsc", "nvidia-container-runtime*"}

// kubeletNames are the programs that are a kubelet or hold one.
var kubeletNames = []string{"kubelet", "k3s-server", "k3s-agent", "kubelite", "microshift"}

// cniPlugins are names of plugins that are believed only where the parent is a runtime or another plugin: as names of
// any process they are too common.
var cniPlugins = []string{
	"antrea", "aws-cni", "azure-vnet", "azure-vnet-ipam", "bandwidth", "bridge", "calico", "calico-ipam", "cilium-cni",
	"cni", "dhcp", "dummy", "egress-cni", "firewall", "flannel", "gke", "host-device", "host-local", "ib-sriov",
	"ipvlan", "istio-cni", "kube-ovn", "linkerd-cni", "loopback", "macvlan", "multus", "multus-shim",
	"ovn-k8s-cni-overlay", "ovs", "portmap", "ptp", "sbr", "sriov", "static", "tap", "terway", "tuning", "vlan", "vrf",
	"weave-ipam", "weave-net", "whereabouts",
}

// The work for which processes are started that should end by themselves soon.
var (
	ociWork = []string{
		"create", "start", "kill", "delete", "update", "pause", "resume", "state", "run", "restore", "exec",
	}
	shimWork = []string{"start", "delete"}
	cniWork  = []string{"ADD", "DEL", "CHECK", "GC", "STATUS"}
)

// workOf returns the first argument that names such work; empty for none.
func workOf(argv, work []string) string {
	if i := slices.IndexFunc(argv, func(arg string) bool { return slices.Contains(work, arg) }); i >= 0 {
		return argv[i]
	}
	return ""
}

// callsOCI reports whether arguments are those with which shims and runtimes call an OCI runtime, whatever its name is:
// --root FOLDER, and later what to do with which container.
func callsOCI(argv []string, parent Role) bool {
	i := slices.Index(argv, workOf(argv, ociWork))
	return (parent == RoleShim || parent == RoleRuntime) && i > 0 && flagValue(argv[:i], "root") != "" &&
		slices.ContainsFunc(argv[i:], isID)
}

// identify returns a process's role and the sandbox or container that it serves from its comm and its arguments,
// which may be missing. The parent's role is "" when it has none.
func (n Names) identify(comm string, argv []string, parent Role) (Role, string) {
	if isCNI(comm, argv, parent) {
		return RoleCNI, ""
	}
	role := n.role(programName(comm, argv, parent))
	if role == "" && len(argv) > 0 && (parent == RoleOCI || callsOCI(argv, parent)) { // a wrapper, its child, a hook
		role = RoleOCI
	}
	switch role {
	case RoleRuntime:
		// containerd has subcommands beside the daemon; shims run "containerd publish" for every event.
		if slices.Contains(argv, "publish") || slices.Contains(argv, "config") || slices.Contains(argv, "oci-hook") {
			return "", ""
		}
		return role, ""
	case RoleShim:
		// containerd-shim-runc-v2 -namespace k8s.io -id SANDBOX -address ...
		// conmon -b BUNDLE -c CONTAINER --exit-dir ...
		if id := flagValue(argv, "id", "cid", "c"); plausibleID(id) {
			return role, id
		}
		return role, ""
	case RoleOCI:
		// The sandbox and file-server processes of gVisor live as long as the container does.
		if slices.Contains(argv, "boot") || slices.Contains(argv, "gofer") || lives(argv, parent) {
			return "", ""
		}
		return role, lastID(argv)
	case RoleKubelet:
		return role, ""
	}
	return "", ""
}

// lives reports whether an OCI runtime's process lives as long as the container or command that it started, so that its
// age means nothing. A detached one ends as soon as that runs. "runc init" waits until the container is started, which
// may be never; it is part of an operation only while its parent is there.
func lives(argv []string, parent Role) bool {
	commands := []string{"exec", "run", "restore", "wait", "events", "init"}
	i := slices.IndexFunc(argv, func(arg string) bool { return slices.Contains(commands, arg) })
	if i < 0 {
		return false
	}
	if argv[i] == "init" {
		return parent != RoleOCI
	}
	args := argv[i:]
	if end := slices.IndexFunc(args, isID); end >= 0 {
		args = args[:end] // what follows is the command that is run
	}
	return !slices.ContainsFunc(args, func(arg string) bool {
		return arg == "-d" || strings.HasPrefix(strings.TrimLeft(arg, "-"), "detach")
	})
}

// programName returns the name to judge a process by: comm, completed from argv[0] where the kernel cut it. A runtime
// that executes itself from a memory file is called after its descriptor ("6") or "exe"; below a runtime or a shim
// argv[0] is believed instead.
func programName(comm string, argv []string, parent Role) string {
	if len(argv) == 0 {
		return comm
	}
	base := path.Base(argv[0])
	if len(comm) == commLen && strings.HasPrefix(base, comm) {
		return base
	}
	nameless := comm == "exe" || strings.Trim(comm, "0123456789") == "" || strings.HasPrefix(comm, "memfd:")
	if nameless && (parent == RoleRuntime || parent == RoleShim || parent == RoleOCI) {
		return base
	}
	return comm
}

// role returns the role of a program's name, which the kernel may have cut.
func (n Names) role(name string) Role {
	for role, names := range map[Role][]string{
		RoleRuntime: n.Runtimes, RoleShim: n.Shims, RoleOCI: ociNames, RoleKubelet: kubeletNames,
	} {
		if slices.ContainsFunc(names, func(known string) bool {
			prefix, wild := strings.CutSuffix(known, "*")
			isCut := len(name) == commLen && strings.HasPrefix(prefix, name)
			return name == prefix || wild && (strings.HasPrefix(name, prefix) || isCut)
		}) {
			return role
		}
	}
	return ""
}

// isCNI reports whether a process is a CNI plugin: its program lies in a directory of plugins, or a runtime or another
// plugin started a program of a plugin's name.
func isCNI(comm string, argv []string, parent Role) bool {
	if len(argv) > 0 && inCNIDir(argv[0]) {
		return true
	}
	// A plugin that is a script has the shell first: "/bin/sh /opt/cni/bin/plugin".
	return (parent == RoleRuntime || parent == RoleCNI) &&
		(slices.ContainsFunc(argv[:min(len(argv), 3)], inCNIDir) ||
			slices.ContainsFunc(cniPlugins, func(name string) bool { return comm == name[:min(len(name), commLen)] }))
}

// inCNIDir reports whether an absolute path names a file in a directory such as /opt/cni/bin or /usr/lib/cni.
func inCNIDir(program string) bool {
	dir := strings.TrimSuffix(path.Dir(path.Clean(program)), "/bin")
	return path.IsAbs(program) && path.Base(dir) == "cni"
}

// flagValue finds the last -name V, --name V, -name=V or --name=V of one of the names.
func flagValue(argv []string, names ...string) (value string) {
	for i, arg := range argv {
		flag := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		name, joined, isJoined := strings.Cut(flag, "=")
		switch {
		case flag == arg || !slices.Contains(names, name):
		case isJoined:
			value = joined
		case i+1 < len(argv):
			value = argv[i+1]
		}
	}
	return value
}

// lastID returns the last argument that is a container id: OCI runtimes take it after their flags, sometimes followed
// by a signal.
func lastID(argv []string) string {
	for _, arg := range slices.Backward(argv) {
		if _, v, ok := strings.Cut(arg, "--id="); ok {
			arg = v
		}
		if isID(arg) {
			return arg
		}
	}
	return ""
}

var (
	fullID     = lazyregexp.New(`^[0-9a-f]{64}$`)
	possibleID = lazyregexp.New(`^[\w.-]{1,128}$`)
)

// isID reports whether s is an id as containerd, CRI-O and Docker make them.
func isID(s string) bool { return fullID.MatchString(s) }

// plausibleID reports whether s can be an id of any runtime: containerd allows letters, digits, and . _ - between them.
func plausibleID(s string) bool { return possibleID.MatchString(s) }

// renamed puts the path of cri-dockerd's endpoint in the place of the one that the kernel has: it binds its socket
// under a temporary name, digits in the same folder, and then renames it (CreateListener in pkg/kubelet/util of
// Kubernetes).
func renamed(sockets []string, endpoint string) {
	endpoint = strings.TrimPrefix(endpoint, "unix://")
	for i, path := range sockets {
		if filepath.Dir(path) == filepath.Dir(endpoint) && strings.Trim(filepath.Base(path), "0123456789") == "" {
			sockets[i] = endpoint
		}
	}
}

// foreign reports whether a process is not this node's, whatever its name, which anybody may choose: it is another
// user's, has a pid namespace of its own, or is below a shim. Below a shim are also the OCI runtimes and plugins that
// it runs for its containers, in its own mounts, and the kubelet of a node whose parts are containers of Docker. What
// runc started may be in a container already.
func (p Population) foreign(st stat, role Role, roles map[int]Role) bool {
	if role == "" || role == RoleOCI && roles[st.ppid] == RoleOCI {
		return false
	}
	status, _ := readSmall(p.dir(st.pid), "status")
	if status != "" && (proc.OtherUser(status) != "" || proc.Nested(status)) { // else it has ended
		return true
	}
	above := st
	shim := proc.ShimAbove(st.pid, func(int) (_ int, _ string, ok bool) {
		above, ok = p.all[above.ppid]
		return above.pid, above.comm, ok
	})
	switch {
	case shim == 0:
		return false
	case role == RoleKubelet:
		return proc.RunsPods(p.root, shim)
	case role == RoleOCI || role == RoleCNI:
		return proc.Apart(p.dir(st.pid), p.dir(shim), "mnt")
	}
	return true
}

// initialPIDs is the target of /proc/1/ns/pid on a host (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

// hidden returns an error when this process does not see the host's processes: /proc is empty, it belongs to a PID
// namespace without an init and without anything of a runtime or a kubelet, such as that of a pod without hostPID, or
// it is mounted with hidepid (Documentation/filesystems/proc.rst, 4.1). Then it shows a process only to users who may
// trace it, and process 1 is root's.
func (p Population) hidden() error {
	dir := filepath.Join(p.root, "proc")
	_, first := p.all[1]
	_, errSelf := os.Stat(filepath.Join(dir, "self"))
	pids := proc.Namespace(p.dir(1), "pid")
	switch {
	case len(p.all) == 0 && p.boot.IsZero():
		return fmt.Errorf("listing processes: %s is empty", dir)
	case !first && errSelf == nil:
		return fmt.Errorf("listing processes: /proc is mounted with hidepid, and user %d sees only its own", os.Geteuid())
	case pids != "" && pids != initialPIDs && !slices.Contains([]string{"systemd", "init"}, p.all[1].comm) &&
		len(p.of(RoleRuntime, RoleKubelet, RoleShim)) == 0:
		return fmt.Errorf("listing processes: %s shows another PID namespace, of %s", dir, p.all[1].comm)
	}
	return nil
}
