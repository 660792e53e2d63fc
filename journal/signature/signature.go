package signature

import "time"

// A Lane is the part of a node that a record is about.
type Lane string

// The lanes.
const (
	Kubelet Lane = "kubelet"
	Runtime Lane = "runtime"
	Kernel  Lane = "kernel"
	Node    Lane = "node"
)

// A Marker is how a timeline shows a record. Records with the empty Marker are not shown.
type Marker string

// The markers.
const (
	Start    Marker = "start"
	Stop     Marker = "stop"
	Restart  Marker = "restart"
	Error    Marker = "error"
	Warning  Marker = "warning"
	Recovery Marker = "recovery"
)

// A Signature is one meaning of log records, with its documentation.
type Signature struct {
	Code     string
	Lane     Lane `json:"-"`
	Marker   Marker
	Title    string   // a few words for a table
	Means    string   // its meaning, in a sentence or two
	Versions string   // which versions print it, and how the wording changed
	Implies  []string // codes of the causes that it is evidence for; empty if it is evidence for none by itself
	Literals []string `json:"-"` // texts of which a record contains at least one; further conditions may apply
	Sources  []string // source files of the programs that print it
	Example  string   // a record
}

// A Match is one signature that a record matches, with the facts of the record. A field that the record does not have,
// or has in a form that could not be read, is zero.
type Match struct {
	Signature *Signature

	// Age is the X of "last seen active X ago": the time since the last successful relist began, on the monotonic
	// clock.
	Age    time.Duration
	HasAge bool
	// Never is set if no relist has succeeded since the kubelet started: "yet to be successful", or, before 1.13, the
	// largest duration that Go can print.
	Never     bool
	Threshold time.Duration // the X of "threshold is X"
	Condition bool          // the record is a condition of the node, not the line of the sync loop
	Reasons   []string      // the other reasons that the record lists, such as "container runtime is down"

	RPC       string // CRI call, such as ListContainers
	GRPCCode  string // gRPC's name of the code, such as DeadlineExceeded, also if the record has its number
	ErrorText string // text of the error, at most 300 bytes; of a longer one without its middle

	ContainerID string
	SandboxID   string
	Pod         string
	Namespace   string
	PodUID      string
	Container   string // its name

	Process    string  // kernel task, or process
	PID        int     // of Process
	Seconds    float64 // how long it was blocked, or took
	Constraint string  // OOM kill: memcg (the limit of a cgroup) or global (the node is out of memory)
	Limiter    string  // OOM kill: the cgroup that was at its limit; Path is the cgroup of the process

	Path   string // mount, file or cgroup; for a network file system, its server
	Device string // block or network device
	Unit   string // systemd unit, or its description if the record has only that
	Role   Lane   // the role of Unit: Kubelet, Runtime, or empty

	Size    int64 // message too large: its bytes
	Limit   int64 // message too large: the limit in bytes
	Sending bool  // message too large: the sender, which is the runtime, refused it
}
