package checks

import (
	"time"
)

// Limits are the thresholds that the judge compares with. Each has a default and a source in DefaultLimits.
type Limits struct {
	RPCTimeout     time.Duration // the deadline that the calls were given
	SlowList       time.Duration // one relist's lists: slower is RuntimeSlow
	VerySlowList   time.Duration // slower than this is critical
	SlowStatus     time.Duration // one status call
	ExitedWarning  int           // exited containers
	ExitedCritical int
	SizeWarning    float64 // share of the message limit
	SizeCritical   float64
	RelistWarning  float64 // share of the PLEG threshold that a projected relist may use
	// bytes of a container's entry above which its annotations, not the count, make a list large
	LargeEntry    int
	DeadSandboxes int           // dead sandboxes
	JournalWindow time.Duration // how far back the node's logs are read; 0: not at all
	Node          NodeLimits    // of the host
}

// DefaultLimits returns the thresholds that kdiag compares with unless a command sets others.
//
// None of them is the kubelet's: its relist threshold is measured with the rest (Summary.ThresholdSeconds). They are
// chosen so that a healthy node of 110 pods stays an order of magnitude below each of them.
func DefaultLimits() Limits {
	return Limits{
		// A healthy runtime answers in milliseconds, the kubelet waits two minutes. Five seconds is far from both.
		RPCTimeout: 5 * time.Second,
		// A list of 5,000 exited containers takes 38 ms on two cores, and decoding one of 100,000 takes 75 ms
		// (docs/bench).
		SlowList:     time.Second,
		VerySlowList: 10 * time.Second,
		// Status calls are answered from memory or one database read: microseconds to a few milliseconds.
		SlowStatus: 2 * time.Second,
		// The kubelet keeps one dead container per name: a full node of 110 pods has at most a few hundred.
		ExitedWarning: 1000,
		// About 11,000 containers of 1.5 KB each fill the message limit (KEP-5825).
		ExitedCritical: 10000,
		DeadSandboxes:  1000,
		// Half of the limit leaves time to act, since growth is by pod churn; at four fifths one burst fills it.
		SizeWarning:  0.5,
		SizeCritical: 0.8,
		// A third of three minutes: a relist of one minute is the first that users notice.
		RelistWarning: 1.0 / 3,
		// Entries are 0.9 to 1.8 KB with the kubelet's own labels and annotations (KEP-5825).
		LargeEntry: 2 << 10,
		// Three of the longest relists that still pass (3m), and two kills by the watchdog (one every five minutes or
		// so); what is older shows little of now. journal.Recent reads five minutes more, for what led to the first
		// of it, and what is counted and printed is all that was read.
		JournalWindow: 15 * time.Minute,
		Node:          DefaultNodeLimits(),
	}
}

// RuntimeLimits returns the thresholds for commands that judge the runtime alone: without the node's logs.
func RuntimeLimits() Limits {
	l := DefaultLimits()
	l.JournalWindow = 0
	return l
}

// NodeLimits are the thresholds for readings of the host. Shares are of one, pressure is in percent of time.
type NodeLimits struct {
	// Free space and inodes below which the kubelet evicts pods, unless its settings say otherwise.
	NodefsAvailable, ImagefsAvailable float64
	NodefsInodes, ImagefsInodes       float64
	MemoryAvailable                   uint64 // bytes
	// A file system is full when less than this share and less than this much is free.
	FullShare  float64
	FullBytes  uint64
	FullInodes uint64

	IOFull, IOFullCritical         float64       // PSI, io full, avg10
	SlowWrite, SlowWriteCritical   time.Duration // median of 4 KiB with fsync
	SlowestWrite                   time.Duration // one of them
	SlowDisk                       time.Duration // mean time of a request
	MemoryFull, MemoryFullCritical float64       // PSI, memory full, avg10
	MemoryLow                      float64       // share of memory that is available
	MemoryLowBytes                 uint64        // with more than this available, no share is low
	CPUSome                        float64       // PSI, cpu some, avg10 and avg60
	Throttled, ThrottledCritical   float64       // share of the periods of the CPU controller
	ThrottledPeriods               uint64        // fewer say nothing

	LimitWarning, LimitCritical float64 // share used of a limit on PIDs, files, inotify or connections
	Zombies                     int

	Mounts, MountsCritical   int
	Cgroups, CgroupsCritical int
	DyingCgroups             int

	ClockJump time.Duration // of the wall clock within a run
	ClockSkew time.Duration // between the API server's clock and this one
	// MountWaiting is how long a mount must have been silent for it to be called dead without a second witness.
	MountWaiting time.Duration

	SlowSystemd     time.Duration // its first answer over D-Bus
	LeakedUnits     int           // loaded, inactive and dead
	WaitingJobs     int           // of systemd
	CertificateSoon time.Duration // before the end of a certificate
}

// DefaultNodeLimits returns the thresholds for the host.
func DefaultNodeLimits() NodeLimits {
	return NodeLimits{
		// The kubelet's own: pkg/kubelet/apis/config/v1beta1/defaults_linux.go, DefaultEvictionHard.
		NodefsAvailable: 0.10, ImagefsAvailable: 0.15, NodefsInodes: 0.05, ImagefsInodes: 0.05,
		MemoryAvailable: 100 << 20,
		// Below 1 % the next image or log takes the rest. A gibibyte is more than most images unpack to, so a large
		// disk is not full at 1 %. An image of a distribution has some thousand files.
		FullShare: 0.01, FullBytes: 1 << 30, FullInodes: 10_000,

		// All that wanted to run stood still for a fifth of the time, and for half of it. An idle node with one copy
		// of files has this too, so it is never enough by itself.
		IOFull: 20, IOFullCritical: 50,
		// A commit of containerd's bbolt is two fsyncs, and a pod start makes dozens of them: at 100 ms each that is
		// seconds, at 1 s it is beyond the two minutes of runtimeRequestTimeout (containerd/containerd#4604). A
		// healthy disk needs 1 to 10 ms.
		SlowWrite: 100 * time.Millisecond, SlowWriteCritical: time.Second, SlowestWrite: time.Second,
		SlowDisk: 100 * time.Millisecond,
		// Memory that is short stalls everybody at once, so a twentieth of all time is much, and a fifth is thrashing.
		MemoryFull: 5, MemoryFullCritical: 20, MemoryLow: 0.10,
		// A tenth of a large machine is plenty: 90 GiB are left of 1 TiB where the rest is set aside as huge pages. 4
		// GiB is forty times the kubelet's threshold, and more than most nodes take within the 10 s between two of
		// its looks (evictionMonitoringPeriod in pkg/kubelet/kubelet.go), so that it can still act.
		MemoryLowBytes: 4 << 30,
		// Batch work fills CPUs on purpose. Only with a runtime that is slow does it count.
		CPUSome: 60,
		// Periods are 100 ms by default (kernel: Documentation/scheduler/sched-bwc.rst); ten are one second.
		Throttled: 0.25, ThrottledCritical: 0.75, ThrottledPeriods: 10,

		// A burst of pods may take the last tenth of a limit within seconds.
		LimitWarning: 0.8, LimitCritical: 0.9,
		// A parent that does not wait leaves one for each child. kubernetes/kubernetes#54313 had thousands; a few
		// hundred are a pod's affair and fill no pid_max of 32,768.
		Zombies: 1000,

		// systemd reads the whole table at each change: one core at about 1,000 mounts and steady churn
		// (systemd/systemd#37642); runc did not get done with 36,887 (containerd/containerd#5113). A full node of 110
		// pods has 1,000 to 2,000. The kernel stops at 100,000 for a mount namespace (fs.mount-max).
		Mounts: 10_000, MountsCritical: 30_000,
		// A full node has 500 to 1,500. Memory cgroups have 65,535 ids (kernel: MEM_CGROUP_ID_MAX), and mkdir fails
		// with ENOSPC beyond (moby/moby#29638); the kubelet crawls long before, since cAdvisor watches each
		// (kubernetes/kubernetes#70324).
		Cgroups: 10_000, CgroupsCritical: 60_000, DyingCgroups: 10_000,

		// NTP clients slew below 0.128 s (ntpd) or 1 s (chrony's makestep) and step above.
		ClockJump: time.Second,
		// The API server's Date has whole seconds, and the way to it takes time too. Tokens and certificates are
		// backdated by minutes.
		ClockSkew: time.Minute,
		// Three times the timeout of a TCP request to a healthy NFS server would be minutes; a local statfs takes
		// microseconds.
		MountWaiting: 30 * time.Second,

		// systemd answers within milliseconds. Clients wait 25 s for a call (sd-bus: BUS_DEFAULT_TIMEOUT).
		SlowSystemd: 5 * time.Second,
		// A full node of 110 pods has about 500 scopes and slices, and some hundred units that are loaded and inactive.
		// kubernetes/kubernetes#57345 had tens of thousands, and crawled from a few thousand on.
		LeakedUnits: 5000, WaitingJobs: 500,
		// The kubelet asks for a new client certificate after 70 to 90 % of the old one's life
		// (k8s.io/client-go/util/certificate), which is about a month before the end of one year.
		CertificateSoon: 7 * 24 * time.Hour,
	}
}
