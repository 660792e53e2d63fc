package facts

import (
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

// Why is why a reading brought nothing, or not all.
func (l Reading[T]) Why() string {
	switch {
	case l.Missing != "":
		return Clean(l.Missing)
	case l.Hung:
		return "the look had not ended after " + units.Duration(l.Took)
	case l.Skipped:
		return "not asked for"
	}
	return "it was not looked at"
}

// A Reading is the outcome of one look at the node. What could not be read is never ok.
type Reading[T any] struct {
	Value T
	// OK is set when Value is whole. A reading that failed may have brought a part of it.
	OK bool
	// Missing is why there is nothing, or not all: no permission, not on this kernel, does not apply.
	Missing string
	// Skipped is set when it does not apply here, or the command leaves it out.
	Skipped bool
	// Hung is set when the look had not ended by its limit; it was left behind.
	Hung bool
	Took time.Duration
}

// A SandboxImage is the image that every sandbox begins with, often called pause.
type SandboxImage struct {
	Name   string
	Absent bool // it is not on the node
}

// Node is what was seen of the host and of the kubelet's own surfaces. A command that looks at the cheap things only
// leaves the others skipped.
type Node struct {
	Pressure  Reading[host.Pressure]
	Memory    Reading[host.Memory]
	Spaces    Reading[[]host.Space]
	Writes    Reading[[]host.Writes]
	Disks     Reading[[]host.Disk]
	Writers   Reading[[]host.Writer]
	Mounts    Reading[host.MountTable]
	Tasks     Reading[host.Tasks]
	PIDs      Reading[host.PIDs]
	Files     Reading[host.Files]
	Inotify   Reading[host.Inotify]
	Conntrack Reading[host.Conntrack]
	Cgroups   Reading[host.Cgroups]
	Clock     Reading[host.Clock]
	Systemd   Reading[host.Systemd]
	// Starvation is how long the daemons wait for a CPU, and what they may write.
	Starvation Reading[host.Starvation]
	// Consumers are the largest consumers of memory, or of processes, where those are short.
	Consumers Reading[host.Consumers]

	Settings     Reading[kubelet.Settings]
	Health       Reading[kubelet.Health]
	Certificates Reading[[]kubelet.Certificate]
	Server       Reading[kubelet.Server]
	CNI          Reading[kubelet.CNI]
	// RuntimeDriver is the cgroup driver that the runtime reports (RuntimeConfig): cgroupfs or systemd.
	RuntimeDriver Reading[string]

	// SandboxImage is what the runtime makes sandboxes of.
	SandboxImage Reading[SandboxImage]

	// Population is what the looks at processes share.
	Population Reading[host.Population]
	// Folders are those that matter, from where the runtime and the kubelet keep their things.
	Folders Reading[[]host.Folder]
	// Hung are the ids of the probes that had not ended by their limit.
	Hung []string
}

// NotWanted is why a look was not made that the command leaves out.
const NotWanted = "this command does not look at it"
