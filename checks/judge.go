package checks

import (
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// Facts is all that the judge sees.
type Facts struct {
	Now         time.Time
	Runtime     Runtime                // which endpoint, and what runs there
	Kubelet     *crictl.Kubelet        // nil when no kubelet runs on this host, or none may be seen
	Measurement *plegbench.Measurement // nil when no endpoint could be found or opened
	Summary     *plegbench.Summary     // nil with Measurement
	Processes   []host.Process         // runtime daemons, shims, OCI runtimes and CNI plugins on this host
	HostMissing string                 // why Processes could not be read; empty when they were
	Peer        *host.Process          // who listens on the socket, where that is none of Processes; nil when it is one, or not known
	NotTaken    []crictl.Tried         // processes that call themselves kubelet and were not taken for the node's
	NoSystemd   bool                   // something else than systemd runs this host
	// Journal is what the node's own logs say of the last minutes (Limits.JournalWindow). It supports, contradicts, dates
	// and names; what the runtime answers now decides. Nil when the logs were not read.
	Journal        *journal.Report
	JournalProblem string // why the logs could not be read; empty when they were, or when nobody asked for them
	// Node is what was seen of the host and of the kubelet besides; nil when only the runtime was asked.
	Node   *Node
	Limits Limits
}

// Limits are the thresholds that the judge compares with. Each has a default and a source in DefaultLimits.
type Limits struct {
	RPCTimeout       time.Duration // the deadline that the calls were given
	SlowList         time.Duration // one relist's lists: slower is RuntimeSlow
	VerySlowList     time.Duration // slower than this is critical
	SlowStatus       time.Duration // one status call
	ExitedWarning    int           // exited containers
	ExitedCritical   int
	SizeWarning      float64 // share of the message limit
	SizeCritical     float64
	RelistWarning    float64 // share of the PLEG threshold that a projected relist may use
	LargeEntry       int     // bytes of a container's entry above which its annotations, not the count, make a list large
	DeadSandboxes    int     // dead sandboxes
	CNIPluginTooLong time.Duration
	JournalWindow    time.Duration // how far back the node's logs are read; 0: not at all
	Node             NodeLimits    // of the host
}

// A Definition is one cause of the contract: how to recognise it, and what kdiag explain says of it.
type Definition struct {
	Code      string
	Title     string   // a few words
	Means     string   // what happens in the kubelet and the runtime when this is the case; paragraphs of text
	Confirm   []string // how a person can convince himself, as commands or looks
	Fix       []string // what helps, in order of blast radius
	Mistaken  string   // what it is mistaken for, and how to tell them apart
	Sources   []string // threads, files and papers where the facts come from
	RootOf    []string // codes of causes that are consequences of this one when both are found
	recognise func(*Facts) *Cause
}

// A Check is one thing that kdiag looks at: a reading of the facts that gives one line.
type Check struct {
	ID    string // noun.noun, such as runtime.status
	Title string
	Text  string // what it looks at and why it matters
	read  func(*Facts) Result
}
