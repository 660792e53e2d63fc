package crictl

import (
	"cmp"
	"encoding/json"
	"time"
)

// Labels and annotations of the kubelet that kdiag reads.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationRestartCount = "io.kubernetes.container.restartCount"
	AnnotationConfigSource = "kubernetes.io/config.source"
)

// A Pod names a pod. The entries of one list that belong to the same pod share one Pod value.
type Pod struct {
	Namespace string
	Name      string
	UID       string
}

// A ContainerState is a container's state as CRI numbers it.
type ContainerState uint8

// The states of runtime.v1.ContainerState.
const (
	ContainerCreated ContainerState = iota
	ContainerRunning
	ContainerExited
	ContainerUnknown
)

// String returns the state in lower case: created, running, exited or unknown.
func (s ContainerState) String() string {
	return [...]string{"created", "running", "exited", "unknown"}[min(s, ContainerUnknown)]
}

// A SandboxState is a pod sandbox's state as CRI numbers it.
type SandboxState uint8

// The states of runtime.v1.PodSandboxState.
const (
	SandboxReady SandboxState = iota
	SandboxNotReady
)

// String returns ready or notready.
func (s SandboxState) String() string {
	if s == SandboxReady {
		return "ready"
	}
	return "notready"
}

// A Container holds the fields that kdiag uses of one entry of ListContainers. Strings that repeat within a list share
// memory.
type Container struct {
	ID        string
	SandboxID string
	Name      string // metadata.name, or the label io.kubernetes.container.name
	Pod       *Pod   // from the labels io.kubernetes.pod.*; never nil, empty for a container that no kubelet made
	CreatedAt int64  // Unix nanoseconds, as CRI gives it
	Attempt   uint32 // metadata.attempt
	Size      uint32 // bytes of the entry on the wire, its field header included
	State     ContainerState
}

// Created returns CreatedAt as a time.
func (c *Container) Created() time.Time { return time.Unix(0, c.CreatedAt) }

// A PodSandbox holds the fields that kdiag uses of one entry of ListPodSandbox.
type PodSandbox struct {
	ID           string
	Pod          *Pod // metadata, or the labels io.kubernetes.pod.*; never nil
	Owner        Owner
	ConfigSource string // annotation kubernetes.io/config.source: "api", "file", "http"; empty if no kubelet made it
	CreatedAt    int64  // Unix nanoseconds
	Attempt      uint32
	Size         uint32 // bytes of the entry on the wire, its field header included
	State        SandboxState
}

// Created returns CreatedAt as a time.
func (s *PodSandbox) Created() time.Time { return time.Unix(0, s.CreatedAt) }

// A ListMode is the way to a list.
type ListMode string

// The ways to a list, in the order in which they are tried.
const (
	ModeStream   ListMode = "stream"   // StreamContainers or StreamPodSandboxes, cri-api 0.36 and newer
	ModeUnary    ListMode = "unary"    // ListContainers or ListPodSandbox, as kubelets call it by default
	ModeFiltered ListMode = "filtered" // several unary calls by state and sandbox, after the server refused the whole
)

// A ContainerList is a decoded list of containers and the calls that it took.
type ContainerList struct {
	Containers []Container
	Mode       ListMode
	Calls      []Call // in the order made; the last of a complete list succeeded
	Bytes      int    // size of one unary, unfiltered response holding these containers
	Complete   bool   // false when a part is missing
}

// UnmarshalJSON reads a list from a bundle, in which a container may lack its pod.
func (l *ContainerList) UnmarshalJSON(data []byte) error {
	type list ContainerList
	err := json.Unmarshal(data, (*list)(l))
	for i := range l.Containers {
		l.Containers[i].Pod = cmp.Or(l.Containers[i].Pod, &Pod{})
	}
	return err
}

// A PodSandboxList is a decoded list of pod sandboxes and the calls that it took.
type PodSandboxList struct {
	Sandboxes []PodSandbox
	Mode      ListMode
	Calls     []Call
	Bytes     int
	Complete  bool
}

// UnmarshalJSON works as ContainerList's does.
func (l *PodSandboxList) UnmarshalJSON(data []byte) error {
	type list PodSandboxList
	err := json.Unmarshal(data, (*list)(l))
	for i := range l.Sandboxes {
		l.Sandboxes[i].Pod = cmp.Or(l.Sandboxes[i].Pod, &Pod{})
	}
	return err
}

// A Filter narrows a list on the runtime's side. The zero Filter asks for everything.
type Filter struct {
	ID        string
	SandboxID string          // containers only
	State     *ContainerState // containers only
	Ready     *bool           // sandboxes only
	Labels    map[string]string
}

// A Version is the runtime's answer to Version.
type Version struct {
	RuntimeName       string // such as "containerd"
	RuntimeVersion    string // such as "v2.1.4"
	RuntimeAPIVersion string // such as "v1"
}

// A Condition is one entry of the runtime's Status.
type Condition struct {
	Type    string // RuntimeReady, NetworkReady, or one of the runtime's own
	Status  bool
	Reason  string
	Message string
}

// A Status is the runtime's answer to Status(verbose=false).
type Status struct {
	Conditions []Condition
}

// Condition returns the condition of the given type, and whether the runtime reported it.
func (s *Status) Condition(typ string) (Condition, bool) {
	for _, c := range s.Conditions {
		if c.Type == typ {
			return c, true
		}
	}
	return Condition{}, false
}
