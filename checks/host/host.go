// Package host reads the state of a node from /proc, /sys, its mounts and systemd, below one root folder, without
// changing anything.
//
// Reads can hang on a sick node. They are bounded in size, and reads that can block in the kernel run in a goroutine
// that is abandoned at the deadline, or in a child process (ADR 0010). No command line and no environment of a
// container's process leaves the package.
package host

import (
	"os"
	"path/filepath"
	"strings"
)

// KernelRelease returns what uname -r prints, such as 5.15.0-105-generic; empty where it cannot be read.
func KernelRelease(root string) string {
	release, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	return strings.TrimSpace(string(release))
}

// A Role is the part of a process in running containers.
type Role string

// The roles that kdiag distinguishes.
const (
	RoleRuntime Role = "runtime" // containerd, crio, dockerd, cri-dockerd: the daemon itself
	RoleShim    Role = "shim"    // containerd-shim*, for all containers of a sandbox, and conmon*, for one container
	RoleOCI     Role = "oci"     // runc, crun, youki, runsc at work on one container
	RoleCNI     Role = "cni"     // a CNI plugin started by the runtime
	RoleKubelet Role = "kubelet"
)

// An Owner names the owner of a process or control group.
type Owner struct {
	Role     Role   // empty for a process without one
	ObjectID string // sandbox or container id; empty for a process of the host
	PodUID   string
	Unit     string // systemd's unit by the cgroup, such as containerd.service; empty when not known
}

// A Usage is the use of a limited resource. Max 0 is no limit.
type Usage struct {
	Current, Max uint64
}
