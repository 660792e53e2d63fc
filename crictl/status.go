package crictl

import (
	"cmp"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A ContainerStatus holds the fields that kdiag uses of the runtime's answer to ContainerStatus(verbose=false).
type ContainerStatus struct {
	Container
	StartedAt  time.Time // zero when the runtime gives none, as the next
	FinishedAt time.Time
	ExitCode   int32  // meaningful when State is ContainerExited
	Reason     string // such as Completed, Error, OOMKilled
	LogPath    string
}

// unixNano turns CRI's Unix nanoseconds into a time; 0, and the negative value that a zero Go time becomes, mean none.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func podSandboxStatusOf(resp *runtimeapi.PodSandboxStatusResponse) *PodSandbox {
	in := resp.GetStatus()
	labels, meta := in.GetLabels(), in.GetMetadata()
	return &PodSandbox{
		ID: in.GetId(), State: sandboxState(int32(in.GetState())), CreatedAt: in.GetCreatedAt(),
		Attempt: meta.GetAttempt(),
		Pod: &Pod{
			Namespace: cmp.Or(meta.GetNamespace(), labels[LabelPodNamespace]),
			Name:      cmp.Or(meta.GetName(), labels[LabelPodName]),
			UID:       cmp.Or(meta.GetUid(), labels[LabelPodUID]),
		},
	}
}

func containerStatusOf(resp *runtimeapi.ContainerStatusResponse) *ContainerStatus {
	in := resp.GetStatus()
	labels := in.GetLabels()
	return &ContainerStatus{
		Container: Container{
			ID: in.GetId(), Name: cmp.Or(in.GetMetadata().GetName(), labels[LabelContainerName]),
			Pod:   &Pod{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName], UID: labels[LabelPodUID]},
			State: containerState(int32(in.GetState())), CreatedAt: in.GetCreatedAt(),
			Attempt: in.GetMetadata().GetAttempt(),
		},
		StartedAt:  unixNano(in.GetStartedAt()),
		FinishedAt: unixNano(in.GetFinishedAt()),
		ExitCode:   in.GetExitCode(),
		Reason:     in.GetReason(),
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
	return out
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
