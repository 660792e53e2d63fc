package checks

import "time"

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
