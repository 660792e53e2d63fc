package facts

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// Target is the endpoint that is asked, and the daemon behind it.
type Target struct {
	Daemon          Daemon        // the process behind the socket
	Docker          Docker        // what runs behind cri-dockerd; the zero value for any other runtime
	KubeletUnit     string        // the unit of the kubelet, safe to paste
	Name            string        // names the runtime: as it reports itself, else by its socket, else "the runtime"
	NoSystemd       bool          // this host is known to have no systemd
	OtherEndpoint   bool          // the kubelet of this host uses another endpoint than the one that was asked
	OtherProcess    *host.Process // the process that holds the socket where it is no runtime
	RestartsKubelet bool          // the runtime's unit runs the kubelet too, so that restarting one restarts both
	RuntimeUnit     *host.Unit    // the unit of the runtime that was asked, as systemd describes it
	Simulated       bool          // the runtime is kdiag's own
	SocketPath      string        // the path of the endpoint's socket
	Unit            string        // names the systemd unit of the runtime, quoted where it is a pattern
	WrongSocket     bool          // the socket that was asked is not the kubelet's and was not asked for by name
}

// Calls are the RPCs as a whole.
type Calls struct {
	AnyList        bool          // at least one of the two lists is answered
	BothLists      bool          // both lists are whole, also where they were refused for their size and read in parts
	Connected      bool          // the socket was there and spoke HTTP/2, so that RPCs mean something
	Gone           *crictl.Call  // the call that found the runtime gone, if nothing was answered after it
	HungLists      []RPC         // the lists that hang now, in the order in which a relist asks for them
	Impatient      bool          // the deadline was so short that a slow runtime may only look hung
	KubeletTimeout time.Duration // the kubelet's deadline for one call
	ListMedian     time.Duration // the median time of one relist's lists; 0 when not timed
	NotCRI         *crictl.Call  // a call that shows that CRI v1 is not served
	Threshold      time.Duration // the age at which the kubelet calls its PLEG unhealthy
}

// Sweep has the outcomes of the status calls.
type Sweep struct {
	Answered int                     // how many status calls brought a status
	Hung     []plegbench.Inspection  //
	Made     []plegbench.Inspection  // the status calls that were made, without those cut short
	Median   time.Duration           // the median time of one answered status call; 0 when not timed
	Running  SweepCounts             // the status calls about what the newest lists call running or ready
	Summary  *plegbench.SweepSummary // the summary of the sweep, nil if there was none
}

// Lists describes the newest lists.
type Lists struct {
	Census       Census   // the exited containers and dead sandboxes of the newest lists
	LargeEntries bool     // the entries of the larger list, and not their number, make it large
	MessageLimit int      // the largest message that the kubelet receives
	Objects      int      // how many sandboxes and containers the newest lists hold
	Size         ListSize //
	SizeKnown    bool
	Streamed     bool // the kubelet itself gets the lists as streams, to which the limit does not apply
}

// Pattern is the behaviour of the runtime as a whole.
type Pattern struct {
	AllSlow       bool     // even the quickest of the plain RPCs is slow: then the daemon as a whole does not get on
	Crawls        bool     // nothing but Version came in time, and Version late
	Hang          Hang     // in which way the whole runtime hangs, HangNone if it does not
	ImagesHold    bool     // the image store explains the hung status calls
	OnlyImageList bool     // listImages hangs alone: what watches the disk still answers
	Slow          bool     // the runtime answers, but slowly or with pauses
	SlowLists     bool     // the lists take too long for what they hold
	SlowStatuses  bool     // status calls take too long
	Silence       *Silence // the first time after the probes in which nothing at all was answered; nil for none
	Stalls        bool     // the runtime misses deadlines and goes on nevertheless
	Well          bool     // the runtime answered all that a relist needs: then it is not what the kubelet waits for
}

// Log has the facts of the node's logs.
type Log struct {
	APIFailure APIFailure // how the kubelet's calls to the API server fail
	APIOutage  *Interval  // the time for which the kubelet has not reached the API server; nil where it does
	At         time.Time  // the moment up to which the journal was read
	From       time.Time  // the moment from which on the journal was read
	HungTasks  []LogTask  // the tasks that the kernel reports as hung, and that may hang still
	// the episodes of the journal in which PLEG was unhealthy and whose time is known
	Incidents        []journal.Episode
	KubeletElsewhere string   // why the kubelet's silence means nothing: it logs elsewhere
	NodeVictims      []string // the victims that the node cannot do without
	// the newest incident of PLEG may come from a victim that the node cannot do without
	OOMBeforePLEG bool
	OOMGlobal     bool             // a kill was for want of memory on the whole node, as far as the journal shows
	OOMVictims    []LogTask        // the tasks that the kernel killed for memory, each once
	PLEGNow       *journal.Episode // the incident that is going on
	Read          bool             // there is a journal to be asked
	Restarts      Restarts         // restarts
	RetryPause    time.Duration    // how long the kubelet may be silent about a call that hangs again and again
	SameRuntime   bool             // the kubelet's records in the journal are about the runtime that was asked
	Watchdog      bool             // systemd's watchdog ended the kubelet, which means that its loop stood still
	Window        time.Duration    // how far back the journal was read, in whole minutes

	HungBefore []LogTask // the tasks that the kernel reported as hung and that run again, or are gone
	// kills at the limit of one container, pod or service, and at that of a group which pods or daemons share
	OOMOwn, OOMShared []journal.MemoryKill
	OOMCounted        []CountedKill // kills of daemons that the log does not tell of
}

// KubeletState is the state of the kubelet.
type KubeletState struct {
	APIQuiet      bool // the kubelet's log would show that the API server is not reached, and does not
	Gone          bool // a node has no kubelet, where no service manager knows its unit
	HealthRefused bool // nothing listens on the kubelet's health port
	IsNode        bool // a kubelet was set up on this host
	LeaseFresh    bool // the kubelet has renewed the node's lease a moment ago
	LeaseStale    bool // the node's lease is older than the control plane waits for it
	LoopStands    bool // by the kubelet itself its loop stands still
	Minor         int  // the kubelet's minor version, 36 of 1.36; 0 when it is not known
	NetworkReady  bool // by the runtime the network is ready
	// the kubelet's process when it has been running for a minute and nothing listens on its health port
	NeverCameUp *host.Process
	NotSeen     bool          // the processes of the host were read and no kubelet is among them
	PLEGAge     time.Duration // how long ago the last good relist of the kubelet began, by its own metric
	PLEGKnown   bool
	Rivals      []host.Process // all kubelets that call the runtime, the oldest first; empty for one alone
	Runs        bool           // a kubelet is among the processes
	ServerWaits bool           // the kubelet's server hangs while its ping answers
	Stopped     *host.Process  // the kubelet's process when a signal or a tracer stopped it
	Unit        *host.Unit     // the kubelet's unit as systemd describes it
}

// Shims are the shims, and how they match the lists.
type Shims struct {
	Comparable bool    // the lists are whole
	Culprits   ShimGap // what the comparison finds and something else confirms
	Gap        ShimGap // shimGap compares shims and lists
	Compared   bool
	Stopped    []host.Process // the shims that a signal or a tracer stopped
	Silent     []host.Process // those that run and did not answer; they are asked only while a daemon starts
	// Mute are those that were started for a sandbox or container that no list has, and have started no process for it.
	Mute    []host.Process
	Blocked []host.Process // those of which every thread is in uninterruptible sleep
	// Working are OCI runtimes, and the starts and deletions of shims, that should have ended long ago; oldest first.
	Working []host.Process
	// Gone are objects that the runtime lists as running or ready, and of which no process lives.
	Gone []checks.Subject
	// Unwatched are containers of CRI-O that run though their conmon, which reads their end, does not.
	Unwatched []checks.Subject
}

// Tasks are the tasks and control groups that stand still.
type Tasks struct {
	Frozen []Freeze // the freezes that matter to the node
	// the blocked tasks of runtime, kubelet, shims and containers that something else calls stuck as well
	Stuck []host.BlockedTask
	// those of them that wait for a listener of fanotify, which Stuck does not hold
	Intercepted []host.BlockedTask
}

// Disk is the state of disks, file systems and mounts.
type Disk struct {
	DeadMounts   []host.Mount   // the mounts that the node depends on others for
	Frozen       bool           // the runtime or the kubelet waits for the end of fsfreeze
	Failing      []string       // which file systems take no writes: read-only, or with errors of the disk
	ReadOnly     []host.Space   // the file systems of runtime, kubelet or logs that cannot be written
	Short        []Shortage     // the file systems that are short of space, the full ones first
	ShortInodes  []Shortage     // the file systems that are short of inodes, the full ones first
	SilentMounts []host.Mount   // the dead mounts, and the node's own folders on file systems that did not answer
	Slow         []host.Disk    // the disks whose requests take long
	Writers      []host.Writer  // the processes that write most, at most three
	Writes       []WriteLatency // the timed writes that were made, the slowest folder first

	Throttled []host.WriteLimit // what the runtime or the kubelet may write, where that is hardly anything
}

// Pressure is the state of memory and CPU.
type Pressure struct {
	Crowded        bool            // tasks wait for a CPU most of the time, for a minute at least
	MemoryLow      bool            // little of the node's memory is available
	MemorySeverity checks.Severity // how severe the shortage is; empty when there is none
	// the control groups of runtime and kubelet, and those above them, that were kept from running for much of the time
	Throttled []host.Throttling
	// the limit that held up kdiag itself for most of the time, and neither runtime nor kubelet; nil for nothing
	Own *host.Throttling
	// the same control groups, where the tasks wait for memory at a limit of the group
	Squeezed []host.MemoryLimit

	// the runtime that was asked and the kubelet, where their threads wait for a CPU much longer than they run
	Starved []host.Delay
}

// Usage is which limits and counts are near their end.
type Usage struct {
	Files            []host.ProcessFiles // the processes that are near their limit of open files, the nearest first
	InotifyInstances host.Usage          // what root's processes hold of the two limits
	InotifyWatches   host.Usage
	PIDs             []PIDLimit // the limits that are nearly used up, those of the node and its daemons first
}
