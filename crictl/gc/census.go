package gc

import "time"

// An End is how a container ended, from ContainerStatus.
type End struct {
	FinishedAt time.Time
	ExitCode   int32
	Reason     string // such as OOMKilled
}

// A Census counts what has exited on a node. With apiVersion, kind and generatedAt before it, it is the ExitedCensus of
// kdiag's JSON.
type Census struct {
	Total       int              `json:"total"`     // exited containers
	Sandboxes   int              `json:"sandboxes"` // that are not ready
	States      StateCounts      `json:"states"`
	ByPod       []PodCount       `json:"byPod"`       // most first
	ByNamespace []NamespaceCount `json:"byNamespace"` // most first
	ByReason    []ReasonCount    `json:"byReason"`    // of the newest of each pod and container whose end is known; most first
	ByAge       []AgeCount       `json:"byAge"`       // exited containers by the time since their creation; youngest first
	GonePods    []GonePod        `json:"gonePods"`    // pods that no longer exist, and still have something here
	// Bytes are what the exited containers take in the runtime's list of containers, ListBytes what the whole list takes.
	Bytes          int64   `json:"bytes"`
	SandboxBytes   int64   `json:"sandboxBytes"` // the same of sandboxes that are not ready, in their list
	ListBytes      int64   `json:"listBytes"`
	LimitBytes     int64   `json:"limitBytes"`     // of one message
	ShareOfLimit   float64 `json:"shareOfLimit"`   // Bytes by LimitBytes
	ListOfLimit    float64 `json:"listOfLimit"`    // ListBytes by LimitBytes; beyond 1 the kubelet is blind
	Partial        bool    `json:"partial"`        // a list was not complete: there may be more
	LivenessKnown  bool    `json:"livenessKnown"`  // whether it could be told which pods are gone
	Unattributable int     `json:"unattributable"` // exited containers without a pod UID or name
	Growth         *Growth `json:"growth,omitempty"`
}

// StateCounts are the containers and sandboxes of a node by state.
type StateCounts struct {
	Created         int `json:"created"`
	Running         int `json:"running"`
	Exited          int `json:"exited"`
	Unknown         int `json:"unknown"`
	ReadySandboxes  int `json:"readySandboxes"`
	DeadSandboxes   int `json:"deadSandboxes"`
	EmptySandboxes  int `json:"emptySandboxes"` // not ready and without containers
	PodsWithExited  int `json:"podsWithExited"`
	UnitsWithExited int `json:"unitsWithExited"` // pairs of pod UID and container name
}

// A PodCount counts the exited instances of one container of one pod.
type PodCount struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"`
	Count     int       `json:"count"`
	Bytes     int64     `json:"bytes"`
	Oldest    time.Time `json:"oldest"` // by creation
	Newest    time.Time `json:"newest"`
	NewestID  string    `json:"newestID"`
	// LastReason and LastExitCode are those of the newest, if its status could be had.
	LastReason   string `json:"lastReason,omitempty"`
	LastExitCode *int32 `json:"lastExitCode,omitempty"`
	Gone         bool   `json:"gone,omitempty"`
}

// A NamespaceCount counts exited containers and the pods that they belong to.
type NamespaceCount struct {
	Namespace string `json:"namespace"`
	Count     int    `json:"count"`
	Pods      int    `json:"pods"`
	Bytes     int64  `json:"bytes"`
}

// A ReasonCount counts units by how their newest instance ended.
type ReasonCount struct {
	Reason   string `json:"reason"`
	ExitCode int32  `json:"exitCode"`
	Count    int    `json:"count"`  // units
	Exited   int    `json:"exited"` // exited containers of those units
}

// An AgeCount counts exited containers that were made less than UpToSeconds ago and not in an earlier bar. The last has
// no bound: 0.
type AgeCount struct {
	UpToSeconds float64 `json:"upToSeconds,omitempty"`
	Count       int     `json:"count"`
}

// A GonePod is a pod that no longer exists, with what is left of it.
type GonePod struct {
	Namespace  string `json:"namespace"`
	Pod        string `json:"pod"`
	PodUID     string `json:"podUID"`
	Containers int    `json:"containers"`
	Sandboxes  int    `json:"sandboxes"`
}
