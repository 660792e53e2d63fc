package host

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The kinds of peers.
const (
	PeerShim    = "shim"
	PeerProxy   = "proxy plugin"          // of containerd: a snapshotter, content store or differ in another process
	PeerDevice  = "device plugin"         // of the kubelet
	PeerKubelet = "plugin of the kubelet" // CSI, DRA, and what registers them
)

// What became of the connection to a peer that did not answer.
const (
	DialSilent  = "silent"  // nothing came within pingTime, or the listen queue is full
	DialRefused = "refused" // the file is there, and nobody listens
	DialMissing = "missing" // there is no such file
)

// A Peer is the program at the other end of a unix socket that the runtime or the kubelet calls.
type Peer struct {
	Kind    string
	Name    string `json:",omitempty"` // of a proxy plugin, by the configuration; else of the socket's file
	Path    string
	Default bool `json:",omitempty"` // the CRI plugin makes its snapshots with it
	Dial    string
	PID     int    `json:",omitempty"` // 0 when nobody listens, or it is not known
	Comm    string `json:",omitempty"`
	State   byte   `json:",omitempty"` // as in /proc/PID/stat
	Owner   Owner  `json:",omitzero"`
}

// Peers are the peers that did not answer, and what may hold the start of a runtime's daemon.
type Peers struct {
	Unanswered []Peer
	Asked      int   // how many peers were asked
	Starting   []int // daemons of a runtime that do not listen yet
	// Locks are the locks that other processes hold on the databases of Starting.
	Locks []FileLock `json:",omitempty"`
	// CRIOff is the line of containerd's configuration that disables its CRI plugin, with the file; empty for none.
	CRIOff string `json:",omitempty"`
}

// shimSockets is where the shims of every containerd listen since 1.5 (SocketAddress in pkg/shim/util_unix.go).
const shimSockets = "/run/containerd/s"

// containerdConfig is the file that containerd reads where no flag names one.
const containerdConfig = "/etc/containerd/config.toml"

// AskPeers asks the plugins of containerd and of the kubelet for any answer, side by side, in a child; shims only while
// a daemon starts, which waits for them. A plugin that answers, or whose socket file was left behind by one that is
// gone, is not returned; a proxy plugin that the configuration names and that nobody serves is.
func AskPeers(ctx context.Context, root string, processes Population, kubeletDir string, child Child) (Peers, error) {
	var all Peers
	var targets []target
	add := func(path string) {
		if t := (target{path}); !slices.ContainsFunc(targets, func(o target) bool { return o[0] == path }) {
			targets = append(targets, t)
		}
	}
	for _, p := range processes.of(RoleRuntime) {
		// That of NRI is opened before the end of a start.
		accepts := func(path string) bool { return filepath.Base(path) != "nri.sock" }
		if p.State != 'Z' && !slices.ContainsFunc(p.Sockets, accepts) {
			all.Starting = append(all.Starting, p.PID)
			locks, _ := LocksBefore(ctx, root, p.PID) // else nobody is named
			all.Locks = append(all.Locks, locks...)
		}
		if strings.Contains(p.Name, "containerd") || strings.HasPrefix(p.Name, "k3s") {
			add(cmp.Or(p.Config, containerdConfig))
		}
	}
	for _, folder := range []string{"device-plugins", "plugins_registry", "plugins"} {
		add(filepath.Join(kubeletDir, folder))
	}
	if len(all.Starting) > 0 {
		add(shimSockets)
	}
	outcomes, err := child.ask(ctx, root, processes, verbDial, targets)
	pids := map[*Owner]int{}
	for _, o := range outcomes {
		all.Asked += o.reply.Asked
		all.CRIOff = cmp.Or(all.CRIOff, o.reply.CRIOff)
		all.Unanswered = append(all.Unanswered, o.reply.Peers...)
	}
	if slices.ContainsFunc(all.Unanswered, func(p Peer) bool { return p.Kind == PeerShim }) {
		processes.findShims(all.Unanswered)
	}
	for i := range all.Unanswered {
		p := &all.Unanswered[i]
		st, ok := processes.all[p.PID]
		if p.PID <= 1 || !ok { // systemd listens for what it starts at the first call
			p.PID = 0
			continue
		}
		p.Comm, p.State = st.comm, st.state
		pids[&p.Owner] = p.PID
	}
	return all, cmp.Or(err, processes.setOwners(ctx, pids))
}

// findShims sets the processes of shims that did not answer. A shim inherits its socket: the process that began to
// listen, which SO_PEERCRED names, has ended.
func (p Population) findShims(peers []Peer) {
	shims := p.of(RoleShim)
	if len(shims) == 0 {
		return
	}
	paths := listeners(p.dir(shims[0].PID))
	servers := map[string]int{}
	for _, s := range shims {
		for socket := range p.sockets(s.PID) {
			servers[paths[socket]] = s.PID
		}
	}
	for i := range peers {
		if peers[i].Kind == PeerShim {
			peers[i].PID = servers[peers[i].Path]
		}
	}
}

// sockets returns the sockets that a process has open, as the links below its fd folder name them: socket:[23456].
func (p Population) sockets(pid int) map[string]bool {
	dir, open := filepath.Join(p.dir(pid), "fd"), map[string]bool{}
	for _, fd := range names(dir) {
		if target, _ := os.Readlink(filepath.Join(dir, fd)); strings.HasPrefix(target, "socket:") {
			open[target] = true
		}
	}
	return open
}

// listeners returns the paths of the unix sockets in the network namespace of a process that accept connections: those
// that have the flag __SO_ACCEPTCON (unix_seq_show in net/unix/af_unix.c). The keys are as in sockets.
//
//	0000000000000000: 00000002 00000000 00010000 0001 01 23456 /run/containerd/containerd.sock
func listeners(dir string) map[string]string {
	paths := map[string]string{}
	text, _ := readLimited(filepath.Join(dir, "net/unix"), 8<<20)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 8 && f[3] == "00010000" && filepath.IsAbs(f[7]) {
			paths["socket:["+f[6]+"]"] = f[7]
		}
	}
	return paths
}

// listens returns the paths of the unix sockets at which a process accepts connections.
func (p Population) listens(pid int) []string {
	open := p.sockets(pid)
	paths := listeners(p.dir(pid))
	maps.DeleteFunc(paths, func(socket, _ string) bool { return !open[socket] })
	return slices.Compact(slices.Sorted(maps.Values(paths)))
}
