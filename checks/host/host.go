// Package host reads a node's own files, /proc above all, under one root handle and without ever changing anything.
//
// What it reads can hang on a sick node, so callers bound it; nothing here waits on a network file system, and no
// command line or environment of a container's process leaves the package.
package host

import "time"

// A Role says what a process is to a container runtime.
type Role string

// The roles that kdiag tells apart.
const (
	RoleRuntime Role = "runtime" // containerd, crio, dockerd, cri-dockerd: the daemon itself
	RoleShim    Role = "shim"    // containerd-shim*, parent of a sandbox's containers, and conmon*, which watches one container
	RoleOCI     Role = "oci"     // runc, crun, youki, runsc at work on one container
	RoleCNI     Role = "cni"     // a CNI plugin started by the runtime
	RoleKubelet Role = "kubelet"
)

// A Process is what /proc says of one process that matters to the runtime.
type Process struct {
	PID      int
	PPID     int
	Name     string    // comm, such as "containerd-shim"
	Role     Role      // what it is to the runtime
	ObjectID string    // sandbox or container id that it serves; empty for daemons
	State    byte      // as in /proc/PID/stat: R S D T t Z I
	Wchan    string    // kernel function that it waits in; empty when not known or not waiting
	Started  time.Time // zero when not known
	Config   string    // the configuration file that a runtime daemon was given on its command line; empty for the default, or when not known

	// Lasting says that two looks some time apart agree: uninterruptible sleep in the same place. One look proves
	// nothing, since whoever uses a busy disk is in that state for moments.
	Lasting bool

	// BlockedThreads counts the threads in uninterruptible sleep, the main one included. The daemons are Go programs, of
	// which State and Wchan show the main thread only, which is hardly ever the one that is stuck.
	BlockedThreads int
	BlockedIn      string // kernel function that the first of them waits in; empty when there is none or it is not known
}

// StateWord returns the process state in words, such as "stopped" or "uninterruptible sleep".
func (p Process) StateWord() string {
	switch p.State {
	case 'R':
		return "running"
	case 'S':
		return "sleeping"
	case 'D':
		return "uninterruptible sleep"
	case 'T':
		return "stopped"
	case 't':
		return "stopped by a tracer"
	case 'Z':
		return "zombie"
	case 'I':
		return "idle"
	}
	return "state " + string(rune(p.State))
}
