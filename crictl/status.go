package crictl

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A PodSandboxStatus is what kdiag keeps of the runtime's answer to PodSandboxStatus(verbose=false).
type PodSandboxStatus struct {
	ID             string
	Pod            Pod
	Attempt        uint32
	State          SandboxState
	CreatedAt      time.Time // zero when the runtime gives none
	RuntimeHandler string    // runtime class handler; empty for the default one
	IPs            []string  // the primary address first; empty with host networking
}

// A ContainerStatus is what kdiag keeps of the runtime's answer to ContainerStatus(verbose=false).
type ContainerStatus struct {
	ID         string
	Name       string
	Pod        Pod
	Attempt    uint32
	State      ContainerState
	CreatedAt  time.Time // this and the next two are zero when the runtime gives none
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32  // meaningful when State is ContainerExited
	Reason     string // such as Completed, Error, OOMKilled
	Message    string
	LogPath    string // of its log file on the host; empty when the runtime keeps none
}

// unixNano turns CRI's Unix nanoseconds into a time; 0, and the negative value that a zero Go time becomes, mean none.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func podSandboxStatusOf(in *runtimeapi.PodSandboxStatus) *PodSandboxStatus {
	labels := in.GetLabels()
	meta := in.GetMetadata()
	out := &PodSandboxStatus{
		ID: in.GetId(),
		Pod: Pod{
			Namespace: firstNonEmpty(meta.GetNamespace(), labels[LabelPodNamespace]),
			Name:      firstNonEmpty(meta.GetName(), labels[LabelPodName]),
			UID:       firstNonEmpty(meta.GetUid(), labels[LabelPodUID]),
		},
		Attempt:        meta.GetAttempt(),
		State:          sandboxState(int32(in.GetState())),
		CreatedAt:      unixNano(in.GetCreatedAt()),
		RuntimeHandler: in.GetRuntimeHandler(),
	}
	if ip := in.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, ip := range in.GetNetwork().GetAdditionalIps() {
		out.IPs = append(out.IPs, ip.GetIp())
	}
	return out
}

func containerStatusOf(in *runtimeapi.ContainerStatus) *ContainerStatus {
	labels := in.GetLabels()
	return &ContainerStatus{
		ID:   in.GetId(),
		Name: firstNonEmpty(in.GetMetadata().GetName(), labels[LabelContainerName]),
		Pod: Pod{
			Namespace: labels[LabelPodNamespace],
			Name:      labels[LabelPodName],
			UID:       labels[LabelPodUID],
		},
		Attempt:    in.GetMetadata().GetAttempt(),
		State:      containerState(int32(in.GetState())),
		CreatedAt:  unixNano(in.GetCreatedAt()),
		StartedAt:  unixNano(in.GetStartedAt()),
		FinishedAt: unixNano(in.GetFinishedAt()),
		ExitCode:   in.GetExitCode(),
		Reason:     in.GetReason(),
		Message:    in.GetMessage(),
		LogPath:    in.GetLogPath(),
	}
}

func statusOf(in *runtimeapi.StatusResponse) *Status {
	out := &Status{}
	for _, c := range in.GetStatus().GetConditions() {
		out.Conditions = append(out.Conditions, Condition{
			Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
		})
	}
	for _, h := range in.GetRuntimeHandlers() {
		out.Handlers = append(out.Handlers, h.GetName())
	}
	return out
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// containerState maps CRI's number to a state. A number that CRI does not know is ContainerUnknown.
func containerState(n int32) ContainerState {
	if n < 0 || n > int32(ContainerUnknown) {
		return ContainerUnknown
	}
	return ContainerState(n)
}

// sandboxState maps CRI's number to a state. Only ready is ready, as in the kubelet.
func sandboxState(n int32) SandboxState {
	if n == int32(SandboxReady) {
		return SandboxReady
	}
	return SandboxNotReady
}
