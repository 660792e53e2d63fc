package checks

import "time"

// KindFleetReport is the kind of the document of kdiag fleet.
const KindFleetReport = "FleetReport"

// A FleetReport is the answer of kdiag fleet: the nodes of a cluster, worst first, and the sick ones by cause.
type FleetReport struct {
	Header
	Cluster string         `json:"cluster,omitempty"` // name of the kubeconfig's context
	Nodes   []FleetNode    `json:"nodes"`
	Groups  []FleetGroup   `json:"groups"` // largest first; empty where no node is sick
	Counts  FleetCounts    `json:"counts"`
	Checks  []Result       `json:"checks,omitempty"` // of the cluster, with --checks
	Server  *FleetRequests `json:"requests,omitempty"`
}

// FleetRequests are what reading the cluster cost.
type FleetRequests struct {
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"` // from the first request to the last answer
	Bytes    int64   `json:"bytes"`   // of all answers, uncompressed
}

// A FleetNode is a node as the API server has it.
type FleetNode struct {
	Name string `json:"name"`
	// Ready is the status of the condition: True; False, which the kubelet posts itself; Unknown, which the node
	// controller sets for a kubelet that is silent. Empty where the node has no such condition.
	Ready   string     `json:"ready"`
	Reason  string     `json:"reason"`
	Message string     `json:"message"`
	Since   *time.Time `json:"since,omitempty"` // last transition of Ready
	// LeaseAgeSeconds is the time since the kubelet renewed its lease; absent for a node without a lease.
	LeaseAgeSeconds *float64         `json:"leaseAgeSeconds,omitempty"`
	Kubelet         string           `json:"kubelet"` // v1.36.2
	Runtime         string           `json:"runtime"` // containerd://1.7.2
	Kernel          string           `json:"kernel"`
	OSImage         string           `json:"osImage,omitempty"`
	Zone            string           `json:"zone,omitempty"`
	InstanceType    string           `json:"instanceType,omitempty"`
	Pool            string           `json:"pool,omitempty"`
	Owner           string           `json:"owner,omitempty"` // Machine/worker-7
	Created         time.Time        `json:"created"`
	Unschedulable   bool             `json:"unschedulable,omitempty"`
	Pods            *int             `json:"pods,omitempty"`  // with --pods
	Cause           string           `json:"cause,omitempty"` // the group of a sick node
	Diagnosis       *FleetDiagnosis  `json:"diagnosis,omitempty"`
	Log             *FleetLog        `json:"log,omitempty"`    // with --logs
	Events          []FleetNodeEvent `json:"events,omitempty"` // warnings of the last hour, of sick nodes
}

// A FleetDiagnosis is the condition KdiagProblem that the node's agent published.
type FleetDiagnosis struct {
	Status  Verdict   `json:"status"`
	Cause   string    `json:"cause,omitempty"`
	Summary string    `json:"summary,omitempty"`
	At      time.Time `json:"at"` // when the agent last wrote it
}

// A FleetLog is what the kubelet of a node has logged in the last hour, judged as kdiag journal does.
type FleetLog struct {
	Status  Verdict    `json:"status"`            // unknown where it could not be read
	Verdict string     `json:"verdict,omitempty"` // as of kdiag journal, such as RECOVERED
	Cause   string     `json:"cause,omitempty"`
	Summary string     `json:"summary,omitempty"`
	Ongoing bool       `json:"ongoing,omitempty"` // until the log ends
	From    *time.Time `json:"from,omitempty"`    // first and last record that was read
	To      *time.Time `json:"to,omitempty"`
	Lines   int64      `json:"lines"`
	Bytes   int64      `json:"bytes"`
	Problem string     `json:"problem,omitempty"` // why it was not read, or not to its end
}

// A FleetNodeEvent is an event of a node.
type FleetNodeEvent struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// A FleetGroup are the sick nodes with one cause.
type FleetGroup struct {
	Cause   string        `json:"cause"` // a code of a cause, or the reason of the condition
	Summary string        `json:"summary"`
	Nodes   []string      `json:"nodes"`
	Common  []FleetCommon `json:"common"` // shared by these nodes only, the least likely by chance first
	// Advisories are the IDs of known bugs that fit the cause and the versions of the nodes.
	Advisories []string   `json:"advisories,omitempty"`
	NextSteps  []NextStep `json:"nextSteps"`
}

// A FleetCommon is a property that the nodes of a group have more often than nodes that are not sick.
type FleetCommon struct {
	Key       string     `json:"key"` // runtime, kernel, kubelet, os, zone, instance type, pool, owner, daemonset, age
	Value     string     `json:"value"`
	InGroup   FleetShare `json:"inGroup"`
	Elsewhere FleetShare `json:"elsewhere"` // of the nodes that are not sick
	// P is the probability that chance alone puts so many of the nodes with this value into the group: Fisher's exact
	// test, one-sided, times the number of values that were compared (Bonferroni), at most 1.
	P float64 `json:"p"`
}

// A FleetShare is how many of some nodes have a property.
type FleetShare struct {
	Nodes int `json:"nodes"`
	Of    int `json:"of"`
}

// FleetCounts are numbers of nodes.
type FleetCounts struct {
	Nodes     int `json:"nodes"`
	Ready     int `json:"ready"`
	NotReady  int `json:"notReady"`  // the kubelet posts False
	Silent    int `json:"silent"`    // Ready is Unknown
	Diagnosed int `json:"diagnosed"` // have an agent that published within a quarter of an hour
	Problems  int `json:"problems"`  // Ready, and the agent or the log has a critical cause
	// With --logs: the nodes whose log was read, and those of them whose log has something that has ended, or that does
	// not keep the node from being Ready.
	Logs     *int `json:"logs,omitempty"`
	Findings *int `json:"findings,omitempty"`
}
