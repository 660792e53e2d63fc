// Package facts holds the facts collected about a node (Input) and their consequences (Facts), worked out once
// by New from pure functions, one file for each area. It decides nothing: packages causes and judge do.
package facts

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// Input has the facts as they were collected: from the runtime, the host, the kubelet and the logs.
type Input struct {
	Now         time.Time
	Runtime     checks.Runtime         // which endpoint, and what runs there
	Kubelet     *crictl.Kubelet        // nil when no kubelet runs on this host, or none may be seen
	Measurement *plegbench.Measurement // nil when no endpoint could be found or opened
	Summary     *plegbench.Summary     // nil with Measurement
	Processes   []host.Process         // runtime daemons, shims, OCI runtimes and CNI plugins on this host
	HostMissing string                 // why Processes could not be read; empty when they were
	// Peer is the process that listens on the socket, where that is none of Processes; else nil, also when not known.
	Peer      *host.Process
	NotTaken  []crictl.Tried // processes that call themselves kubelet and were not taken for the node's
	NoSystemd bool           // something else than systemd runs this host
	Rivals    []int          `json:",omitempty"` // kubelets on this host that call the same runtime as Kubelet
	Kernel    string         `json:",omitempty"` // its release, as uname -r prints it; empty when not known
	// Journal is the report on the last minutes of the node's own logs (Limits.JournalWindow). It supports,
	// contradicts, dates and names; what the runtime answers now decides. Nil when the logs were not read.
	Journal        *journal.Report
	JournalProblem string // why the logs could not be read; empty when they were, or were not to be
	// Node has the readings of the host and of the kubelet; nil when only the runtime was asked.
	Node *Node
	// Stacks is the report on the goroutine dumps of runtime, shims and kubelet; nil when none were to be taken. Its
	// sources have why there is none of a process.
	Stacks *checks.StacksReport
	// LogStacks is the report on the goroutines that the kubelet or the runtime wrote into its log when systemd's watchdog
	// ended it; nil for none.
	LogStacks *checks.StacksReport `json:",omitempty"`
	// Canary is the report on a canary; nil where none was run.
	Canary *checks.CanaryReport `json:",omitempty"`
	// FileLocks are the locks of others on databases of the runtime's daemon, where a goroutine waits for one, and on the
	// lock files of CRI-O, where a call hangs.
	FileLocks []host.FileLock
	// PluginLocks are the locks of others on files that CNI plugins have open which have been at work for StuckWork.
	PluginLocks []host.FileLock `json:",omitempty"`
	// Unexecutable are containers in a crash loop whose program the kernel cannot execute.
	Unexecutable []Unexecutable `json:",omitempty"`
	// OwnQuota is how a limit of CPU held up kdiag itself while it collected; nil where none did.
	OwnQuota *host.Throttling `json:",omitempty"`
	Limits   checks.Limits    // the zero value stands for checks.DefaultLimits
}

// Facts are the collected facts and their consequences, each worked out once by New.
type Facts struct {
	Input
	RPC map[string]RPC // the calls by RPC
	// Seen has the readings of the node; empty where only the runtime was asked, and where the runtime is kdiag's own.
	Seen *Node
	// Others are the processes of other runtimes on this host, which Processes does not hold.
	Others       []host.Process
	Target       Target
	Calls        Calls
	Sweep        Sweep
	Lists        Lists
	Pattern      Pattern
	Log          Log
	Errors       Errors
	KubeletState KubeletState
	Shims        Shims
	Tasks        Tasks
	Disk         Disk
	Pressure     Pressure
	Usage        Usage
	Stacks       Stacks
	Pods         Pods
}

// New works out the facts. It is pure, and keeps what in points to.
func New(in *Input) *Facts {
	f := &Facts{RPC: map[string]RPC{}, Seen: &Node{}}
	if in != nil {
		f.Input = *in
	}
	if f.Limits == (checks.Limits{}) {
		f.Limits = checks.DefaultLimits()
	}
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers, RPCImages, RPCImageFs} {
		f.RPC[name] = callsOf(f, name)
	}
	// Each may use what those before it worked out, and so may each line of it.
	deriveTarget(f)
	deriveCalls(f)
	deriveSweep(f)
	deriveLists(f)
	derivePattern(f)
	deriveLog(f)
	deriveKubelet(f)
	deriveErrors(f)
	f.Log.PLEGNow = plegNow(f)
	f.Log.APIFailure = apiFailure(f)
	f.Log.APIOutage = apiOutage(f)
	f.Log.KubeletElsewhere = kubeletElsewhere(f)
	f.KubeletState.APIQuiet = apiQuiet(f)
	deriveOthers(f)
	deriveShims(f)
	f.Tasks.Frozen = frozenCgroups(f)
	f.Tasks.Stuck, f.Tasks.Intercepted = stuckTasks(f)
	deriveDisk(f)
	derivePressure(f)
	deriveUsage(f)
	deriveStacks(f)
	derivePods(f)
	return f
}

// deriveLog works out what follows from the logs.
func deriveLog(f *Facts) {
	f.Log.Read = f.Journal != nil
	f.Log.At, f.Log.From = journalTime(f)
	f.Log.Window = max(f.Log.At.Sub(f.Log.From).Round(time.Minute), time.Minute)
	f.Log.SameRuntime = f.Log.Read && !f.Target.Simulated && !f.Target.OtherEndpoint
	f.Log.RetryPause = f.Calls.KubeletTimeout + SkipFresh
	f.Log.Incidents = incidents(f)
	deriveHungTasks(f)
	deriveKills(f)
	f.Log.OOMVictims = oomVictims(f)
	f.Log.NodeVictims = nodeVictims(f)
	f.Log.OOMCounted = countedKills(f)
	f.Log.OOMBeforePLEG = oomBeforePLEG(f)
	f.Log.Watchdog = len(UnitsOf(f, signature.WatchdogTimeout, RoleKubelet)) > 0
	f.Log.Restarts = kubeletRestarts(f)
}

// Why explains a missing or incomplete value.
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
	// Missing explains a missing or incomplete value: no permission, not on this kernel, does not apply.
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

// Node has the readings of the host and of the kubelet's own surfaces. A command that looks at the cheap things only
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
	// Starvation is the time that the daemons wait for a CPU, and their limits of writes.
	Starvation Reading[host.Starvation]
	// Consumers are the largest consumers of memory, or of processes, where those are short.
	Consumers Reading[host.Consumers]
	// Peers are the plugins and shims that did not answer, and what may hold the start of a runtime.
	Peers Reading[host.Peers] `json:",omitzero"`

	Settings     Reading[kubelet.Settings]
	Health       Reading[kubelet.Health]
	Certificates Reading[[]kubelet.Certificate]
	Server       Reading[kubelet.Server]
	CNI          Reading[kubelet.CNI]
	Pulls        Reading[[]kubelet.Pull]
	Pods         Reading[[]kubelet.Pod] `json:",omitzero"` // of this node, as the kubelet or the API server has them
	// RuntimeDriver is the cgroup driver that the runtime reports (RuntimeConfig): cgroupfs or systemd.
	RuntimeDriver Reading[string]

	// SandboxImage is the image of sandboxes.
	SandboxImage Reading[SandboxImage]

	// Population is the list of processes that several probes share.
	Population Reading[host.Population]
	// Folders are those that matter, from where the runtime and the kubelet keep their things.
	Folders Reading[[]host.Folder]
	// Hung are the ids of the probes that had not ended by their limit.
	Hung []string
}

// NotWanted explains a probe that the command leaves out.
const NotWanted = "this command does not look at it"
