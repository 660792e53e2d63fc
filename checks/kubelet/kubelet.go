// Package kubelet reads a kubelet's settings, health, metrics and certificates, asks the API server that it
// reports to, and reads the network configuration that its runtime needs.
//
// Nothing is changed, and nothing here needs the API server. Callers bound each read; no secret leaves the package.
package kubelet

import (
	"slices"
	"time"
)

// Settings are the settings of a kubelet: its configuration file, the drop-ins, and its flags above both.
type Settings struct {
	PID            int
	Files          []string // that were read
	Problems       []string // unreadable files and wrong settings, one line each
	Endpoint       string   // containerRuntimeEndpoint
	RequestTimeout time.Duration
	SerializePulls bool
	EventedPLEG    bool
	CgroupDriver   string // cgroupfs or systemd: the setting, or the runtime's where that decides
	RootDir        string // /var/lib/kubelet
	PodLogsDir     string
	MaxPods        int32
	PodPidsLimit   int64
	EvictionHard   map[string]string
	// Reserved is what pods do not get of the node, such as 500m by systemReserved.cpu; nil for nothing.
	Reserved        map[string]string `json:",omitempty"`
	EvictionOff     []string          // signals with a default threshold that here have none, or zero
	NodeStatusEvery time.Duration
	LeaseSeconds    int32
	SyncFrequency   time.Duration
	HealthzAddress  string // host:port; empty when it is turned off
	Address         string // host:port of the server with credentials
	ReadOnlyAddress string // host:port; empty when it is turned off
	Kubeconfig      string // path; empty for a standalone kubelet
	KubeconfigGone  bool   // there is no such file, and none to bootstrap from
	StaticPodPath   string `json:",omitempty"`
	NoManifests     string // staticPodPath, where it is not there; else empty
	Unread          bool   // UsualManifests has manifests, and staticPodPath is elsewhere and has none
	Twins           []Twin // in staticPodPath
	CertDir         string
	TLSCertFile     string // serving certificate; empty for one in CertDir
	RotateClient    bool
	RotateServing   bool
	NodeName        string
	Harmful         []Setting
	Own             string // a harmful value that is the kubelet's or the distribution's default; one sentence
	FeatureGates    map[string]bool
}

// A Setting is one that harms, and how.
type Setting struct {
	Name  string
	Value string
	Harm  string // one sentence
}

// A Twin is a static pod that two files define. The kubelet runs the one or the other.
type Twin struct {
	Namespace, Name string // as the API server has it, with the node's name at its end
	Files           [2]string
	Since           time.Time // when the newer of the files was changed last
}

// A Difference is a setting whose value in use is not the configured one.
type Difference struct {
	Name       string
	Running    string // the value in use
	Configured string // the value in the files and flags
}

// An Answer is the answer of one URL of the kubelet.
type Answer struct {
	URL    string
	Status int // HTTP; 0 when there was no answer
	Took   time.Duration
	Err    string
	// Hung is set when no answer came in time. On 10250 it may be the API server that hangs: the kubelet asks it who
	// we are, and whether we are let in.
	Hung bool
	// NotAccepted is set where it hangs and there was no connection; LoopbackDown, without Hung, where there was none
	// because the interface lo is down, which is no fault of the server.
	NotAccepted  bool `json:",omitempty"`
	LoopbackDown bool `json:",omitempty"`
	// Denied is set for 401 and 403, where no credential allows it, and for the 500 of a kubelet that could not ask the
	// API server whether one does.
	Denied bool
}

// Health is the kubelet's health by its own servers.
type Health struct {
	Ping     *Answer // 10248 /healthz: answers as long as the process runs, and sees neither PLEG nor runtime
	SyncLoop *Answer // 10250 /healthz/syncloop; nil when it was not asked
	Metrics  *Metrics
	// Differs are settings that the kubelet runs with although its files and flags, as they are now, have others: it
	// has not been restarted since.
	Differs    []Difference
	Unread     []string // paths that could not be read, and why
	Credential string   // that opened 10250: token, certificate, node certificate, read-only port; empty for nothing
	Missing    string   // why 10250 was not asked or did not let us in
	Holders    []Holder // other processes that listen where the kubelet would
}

// A Holder is a process that listens at an address of the kubelet and is not the kubelet.
type Holder struct {
	Address string // such as 127.0.0.1:10248
	Name    string // of the process; empty where it is not seen
	PID     int
}

// Credentials are given by the operator for the server on 10250; the files are named as the operator sees them.
type Credentials struct {
	Token             string
	CertFile, KeyFile string
}

// Metrics are the values of /metrics about PLEG.
type Metrics struct {
	Version       string    // of kubernetes_build_info, such as v1.36.2; empty when it is absent
	PLEGLastSeen  time.Time // kubelet_pleg_last_seen_seconds; zero when it is absent
	Relists       uint64    // kubelet_pleg_relist_duration_seconds_count
	RelistSeconds float64   // its sum
}

// A Certificate is one that the kubelet uses.
type Certificate struct {
	Role                string // client or serving
	Path                string
	Subject             string // common name
	NotBefore, NotAfter time.Time
	Err                 string
}

// A Server is the API server that the kubelet's kubeconfig names.
type Server struct {
	URL       string
	Reachable bool
	Took      time.Duration
	TLSError  string        // its certificate does not hold against the kubeconfig's authority
	Err       string        // it cannot be reached
	Status    int           // of /readyz, /livez or /version; 401 and 403 are answers
	Skew      time.Duration // its Date header less this clock; only seconds
	SkewKnown bool
	LeaseAge  time.Duration // since the node's lease was renewed
	LeaseRead bool
	LeaseErr  string
	Node      *NodeObject // nil where it was not read
	NodeGone  bool        // the API server has no object of this node
	NodeErr   string      // why Node was not read
}

// A NodeObject is a node in the API, as the API server writes it.
type NodeObject struct {
	Kind string
	Spec struct {
		Taints []struct{ Key, Effect string }
	}
	Status struct {
		Conditions []NodeCondition
		NodeInfo   struct{ KubeletVersion, ContainerRuntimeVersion string } // such as v1.36.2, containerd://2.1.4
	}
}

// A NodeCondition is one of a node: Ready, MemoryPressure, DiskPressure, PIDPressure.
type NodeCondition struct {
	Type, Status, Reason, Message string
	LastTransitionTime            time.Time
}

// Condition returns a condition of a node object that may be nil; nil where it has none.
func (n *NodeObject) Condition(kind string) *NodeCondition {
	if n == nil {
		return nil
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// A CNI is the network configuration as the runtime would load it.
type CNI struct {
	ConfDir string
	BinDirs []string
	File    string // that is used: the first by name
	Name    string // of the network
	Plugins []string
	Missing []string // plugins without a program in BinDirs
	Others  []string // further files, which are not used
	Problem string   // why none can be used
	// LostBridge is the bridge that the plugin bridge uses, where it is not there or, Loose, some interfaces are no more
	// attached to it; CutOff are the sandboxes that were attached to it and are no more, as CNI's library has noted them.
	LostBridge string   `json:",omitempty"`
	Loose      bool     `json:",omitempty"`
	CutOff     []string `json:",omitempty"`
	// IPv6Off is set where the network has a range of IPv6, which the kernel's settings switch off (disable_ipv6).
	IPv6Off bool `json:",omitempty"`
	// Apart is the daemon, "kubelet" or "runtime", that is in another network namespace than the other one and the node's
	// first process; empty for none.
	Apart string `json:",omitempty"`
	// MountsStay is set where what the kubelet mounts does not reach the runtime.
	MountsStay bool `json:",omitempty"`

	Configured bool     // the folders are the runtime's own, as it reports them
	Programs   []string // shim and OCI runtime of the runtime's default handler, where they are not there
	Folders    []string // of the runtime's data or state, where they are not there
}
