// Package host reads the state of a node from /proc, /sys, its mounts and systemd, below one root folder, without
// changing anything.
//
// Reads can hang on a sick node. They are bounded in size, and reads that can block in the kernel run in a goroutine
// that is abandoned at the deadline, or in a child process (ADR 0010). No command line and no environment of a
// container's process leaves the package.
package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
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

// A Clock is the state of the wall clock.
type Clock struct {
	Synchronised bool // by adjtimex: an NTP client keeps it
	MaxError     time.Duration
	// Jumped is by how much more the wall clock advanced than the monotonic one between the two reads of this run.
	Jumped time.Duration
	Over   time.Duration // between the reads
}

// ReadClock reads the clocks twice. They are the machine's, in whatever container kdiag runs. While chrony or ntpd
// slews, the two clocks are slewed alike and Jumped stays next to nothing; a step shows in full.
func ReadClock(ctx context.Context, between time.Duration) (Clock, error) {
	before, after, _, err := twice(ctx, between, func() (time.Time, error) { return time.Now(), nil })
	if err != nil {
		return Clock{}, err
	}
	synchronised, maxError, err := discipline()
	if err != nil {
		return Clock{}, fmt.Errorf("asking for the clock's discipline: %w", err)
	}
	over := after.Sub(before) // by the monotonic clock, which Round drops
	return Clock{
		Synchronised: synchronised,
		MaxError:     maxError,
		Jumped:       after.Round(0).Sub(before.Round(0)) - over,
		Over:         over,
	}, nil
}
