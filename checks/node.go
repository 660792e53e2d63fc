package checks

import (
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// A Look is what became of one look at the node. Could not look is never ok.
type Look[T any] struct {
	Value T
	// OK says that Value is whole. A look that failed may have brought a part of it.
	OK bool
	// Missing says why there is nothing, or not all: no permission, not on this kernel, does not apply.
	Missing string
	// Skipped says that it does not apply here, or that nobody asked for it.
	Skipped bool
	// Hung says that it had not ended when the time was up; it was left behind.
	Hung bool
	Took time.Duration
}

// A SandboxImage is the image that every sandbox begins with, often called pause.
type SandboxImage struct {
	Name   string
	Absent bool // it is not on the node
}

// Node is what was seen of the host and of the kubelet's own surfaces. A command that looks at the cheap things only leaves
// the others skipped.
type Node struct {
	Pressure  Look[host.Pressure]
	Memory    Look[host.Memory]
	Spaces    Look[[]host.Space]
	Writes    Look[[]host.Writes]
	Disks     Look[[]host.Disk]
	Writers   Look[[]host.Writer]
	Mounts    Look[host.MountTable]
	Tasks     Look[host.Tasks]
	PIDs      Look[host.PIDs]
	Files     Look[host.Files]
	Inotify   Look[host.Inotify]
	Conntrack Look[host.Conntrack]
	Cgroups   Look[host.Cgroups]
	Clock     Look[host.Clock]
	Systemd   Look[host.Systemd]
	// Holders are who has most of the memory, or of the processes, where those are short.
	Holders Look[host.Consumers]

	Settings     Look[kubelet.Settings]
	Health       Look[kubelet.Health]
	Certificates Look[[]kubelet.Certificate]
	Server       Look[kubelet.Server]
	CNI          Look[kubelet.CNI]
	// RuntimeDriver is the cgroup driver that the runtime says to use (RuntimeConfig): cgroupfs or systemd.
	RuntimeDriver Look[string]

	// SandboxImage is what the runtime makes sandboxes of.
	SandboxImage Look[SandboxImage]

	// Population is what the looks at processes share.
	Population Look[host.Population]
	// Folders are those that matter, from where the runtime and the kubelet keep their things.
	Folders Look[[]host.Folder]
	// Hung are the ids of the probes that had not ended when the time was up.
	Hung []string
}
