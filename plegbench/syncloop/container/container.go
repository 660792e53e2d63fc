// Package container holds the runtime's view of pods: the lists and statuses of CRI in the form that the parts of the
// syncLoop exchange.
package container

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// OwnerLabel is the label of every sandbox and container that a syncLoop creates; its value is the node's name. Objects
// without it, or with another value, are never touched: a socket may be shared.
const OwnerLabel = "io.kdiag.syncloop"

// Labels and annotations that the kubelet writes (pkg/kubelet/types/labels.go and kuberuntime/labels.go upstream).
const (
	PodNameLabel       = "io.kubernetes.pod.name"
	PodNamespaceLabel  = "io.kubernetes.pod.namespace"
	PodUIDLabel        = "io.kubernetes.pod.uid"
	ContainerNameLabel = "io.kubernetes.container.name"

	HashAnnotation                   = "io.kubernetes.container.hash"
	RestartCountAnnotation           = "io.kubernetes.container.restartCount"
	TerminationMessagePathAnnotation = "io.kubernetes.container.terminationMessagePath"
)

// An ID is a container's or sandbox's id together with the runtime's name.
type ID struct {
	Type string // runtime name: containerd
	ID   string
}

// String writes the form of a pod's status: containerd://id.
func (id ID) String() string { return id.Type + "://" + id.ID }

// ParseID parses the form of String. An id without a runtime's name has no Type.
func ParseID(s string) ID {
	if kind, id, ok := strings.Cut(s, "://"); ok {
		return ID{Type: kind, ID: id}
	}
	return ID{ID: s}
}

// A State is the state of a container or sandbox.
type State string

// The states under the kubelet's names.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// ContainerState is the State of a container.
func ContainerState(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	}
	return Unknown
}

// SandboxState is the State of a sandbox: ready is running, anything else exited.
func SandboxState(s runtimeapi.PodSandboxState) State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return Running
	}
	return Exited
}

// A Container is one entry of a list, of containers or of sandboxes.
type Container struct {
	ID        ID
	Name      string // empty for a sandbox
	State     State
	SandboxID string
}

// NewerFirst compares containers or sandboxes by their creation. The ids make the order total.
func NewerFirst[T interface {
	GetCreatedAt() int64
	GetId() string
}](a, b T) int {
	return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(b.GetId(), a.GetId()))
}

// A Pod is one pod in the lists.
type Pod struct {
	UID        types.UID
	Name       string
	Namespace  string
	Containers []*Container // newest first
	Sandboxes  []*Container // newest attempt first
}

// Ref is the reference to a pod in a log line.
func (p *Pod) Ref() klog.ObjectRef { return klog.KRef(p.Namespace, p.Name) }

// FullName is name_namespace, as upstream's GetPodFullName writes it.
func (p *Pod) FullName() string { return p.Name + "_" + p.Namespace }

// A Status is the result of ContainerStatus for one container.
type Status struct {
	ID           ID
	Name         string
	State        State
	StartedAt    time.Time
	FinishedAt   time.Time
	ExitCode     int
	Image        string // as the spec has it
	ImageRef     string
	Hash         uint64
	RestartCount int
	Reason       string // Completed, Error, OOMKilled
	Message      string // of the runtime, and the termination message
	SandboxID    string
}

// A PodStatus is the runtime's status of one pod. If only the UID is set, the runtime does not know the pod.
type PodStatus struct {
	UID               types.UID
	Name              string
	Namespace         string
	IPs               []string
	ContainerStatuses []*Status                      // newest first
	SandboxStatuses   []*runtimeapi.PodSandboxStatus // newest first
	TimeStamp         time.Time                      // of the inspection's start
}

// Find returns the newest status of the container with that name, or nil.
func (s *PodStatus) Find(name string) *Status {
	i := slices.IndexFunc(s.ContainerStatuses, func(c *Status) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return s.ContainerStatuses[i]
}

// Running returns the statuses of the containers that run.
func (s *PodStatus) Running() []*Status {
	return slices.DeleteFunc(slices.Clone(s.ContainerStatuses), func(c *Status) bool { return c.State != Running })
}

// RunningPod converts a status to a Pod with the running containers and all sandboxes, for killing it.
func (s *PodStatus) RunningPod(runtimeName string) *Pod {
	p := &Pod{UID: s.UID, Name: s.Name, Namespace: s.Namespace}
	for _, c := range s.Running() {
		p.Containers = append(p.Containers, &Container{ID: c.ID, Name: c.Name, State: c.State, SandboxID: c.SandboxID})
	}
	for _, sb := range s.SandboxStatuses {
		p.Sandboxes = append(p.Sandboxes, &Container{
			ID: ID{Type: runtimeName, ID: sb.GetId()}, State: SandboxState(sb.GetState()),
		})
	}
	return p
}
