package signature

import "time"

// A Hit is one signature that a record bears, with what the record names. A field that the record does not state, or states
// in a way that could not be read, is zero.
type Hit struct {
	Signature *Signature

	// Age is the X of "last seen active X ago": how long ago the last good relist began, on the monotonic clock.
	Age    time.Duration
	HasAge bool
	// Never: no relist has succeeded since the kubelet started ("yet to be successful", or, before 1.13, the largest
	// duration that Go can print).
	Never     bool
	Threshold time.Duration // the X of "threshold is X"
	Condition bool          // the record is a condition of the node, not the sync loop's own line
	Reasons   []string      // what else the record lists beside PLEG, such as "container runtime is down"

	RPC       string // CRI call, such as ListContainers
	GRPCCode  string // gRPC's name of the code, such as DeadlineExceeded, also where the record gives its number
	ErrorText string // the error's own words, at most 200 bytes

	ContainerID string
	SandboxID   string
	Pod         string
	Namespace   string
	PodUID      string
	Container   string // its name

	Process    string  // kernel task, or process
	PID        int     // of Process
	Seconds    float64 // how long: blocked, taken
	Constraint string  // OOM kill: memcg (a cgroup's own limit) or global (the node is out of memory)

	Path   string // mount, file or cgroup; for a network file system, its server
	Device string // block or network device
	Unit   string // systemd unit, or its description if the record gives only that
	Role   Lane   // what Unit is: Kubelet, Runtime, or empty
	Count  int64  // restart counter; number of suppressed messages

	// Owner says whose certificate has expired: KubeletParty for the kubelet's own, with which it proves itself to the API server;
	// APIServer for the one that the API server shows; empty where the text does not tell.
	Owner Party

	Size    int64 // message too large: its bytes
	Limit   int64 // message too large: the limit in bytes
	Sending bool  // message too large: the side that sends refused it, which is the runtime
}
