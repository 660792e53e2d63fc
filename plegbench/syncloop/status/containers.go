package status

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// containerStatuses are the statuses of containers of one kind: of init containers as the spec has them, of others by
// name.
func containerStatuses(
	in *GenerateInput, specs []v1.Container, old []v1.ContainerStatus, isInit bool,
) (out []v1.ContainerStatus) {
	for i := range specs {
		st := observed(in, &specs[i], statusOf(old, specs[i].Name))
		if !isInit || !settleInit(in, &specs[i], &st) {
			setNotStarted(in, &specs[i], &st)
		}
		out = append(out, st)
	}
	if !isInit {
		slices.SortFunc(out, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// observed returns a container's status by the newest two instances in the runtime; without any, by its earlier status.
func observed(in *GenerateInput, spec *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	var seen []v1.ContainerStatus
	for _, c := range in.PodStatus.ContainerStatuses { // newest first
		if c.Name == spec.Name && len(seen) < 2 {
			seen = append(seen, convert(c, before))
		}
	}
	switch len(seen) {
	case 0:
		return unobserved(in.Pod, spec, before)
	case 2:
		seen[0].LastTerminationState = seen[1].State
	}
	return seen[0]
}

// unobserved is the status of a container that the runtime does not have.
func unobserved(p *v1.Pod, spec *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	st := v1.ContainerStatus{Name: spec.Name, Image: spec.Image}
	st.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if len(p.Spec.InitContainers) > 0 {
		st.State.Waiting.Reason = "PodInitializing"
	}
	if before == nil {
		return st
	}
	if before.State.Terminated != nil {
		return *before
	}
	st.RestartCount, st.LastTerminationState = before.RestartCount, before.LastTerminationState
	// It ran and is gone: without an end the pod would seem never to have started.
	if before.State.Running != nil && st.LastTerminationState.Terminated == nil {
		st.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			Reason: "ContainerStatusUnknown", ExitCode: 137, // it counts as killed
			Message: "The container could not be located when the pod was deleted.  The container used to be Running",
		}
	}
	return st
}

// convert turns the runtime's status of one instance into a container status.
func convert(c *container.Status, before *v1.ContainerStatus) v1.ContainerStatus {
	st := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.ImageRef, ContainerID: c.ID.String(),
		RestartCount: int32(c.RestartCount),
	}
	if before != nil {
		st.RestartCount = max(st.RestartCount, before.RestartCount)
		st.LastTerminationState.Terminated = before.LastTerminationState.Terminated
		if before.ContainerID != st.ContainerID && before.State.Terminated != nil {
			st.LastTerminationState.Terminated = before.State.Terminated
		}
	}
	switch c.State {
	case container.Running:
		st.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
		if before != nil {
			st.Started = before.Started
		}
	case container.Exited:
		st.State.Terminated = &v1.ContainerStateTerminated{
			ExitCode: int32(c.ExitCode), Reason: c.Reason, Message: c.Message, ContainerID: st.ContainerID,
			StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
		}
	default:
		st.State.Waiting = &v1.ContainerStateWaiting{}
	}
	return st
}

// settleInit reports whether the status of an init container is complete: it has succeeded, or it must have, since a
// regular container was made after it.
func settleInit(in *GenerateInput, spec *v1.Container, st *v1.ContainerStatus) bool {
	if c := in.PodStatus.Find(spec.Name); c != nil {
		return c.State == container.Exited && c.ExitCode == 0
	}
	created := slices.ContainsFunc(in.PodStatus.ContainerStatuses, func(c *container.Status) bool {
		return c.State != container.Unknown && pod.Container(in.Pod.Spec.Containers, c.Name) != nil
	})
	if !created || pod.IsSidecar(spec) || st.State.Waiting == nil {
		return false
	}
	st.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "Completed",
		Message: "Unable to get init container status from container runtime and pod has been initialized, " +
			"treat it as exited normally",
	}}
	return true
}

// setNotStarted makes a container wait that should be started and could not be, with the reason of the last attempt.
func setNotStarted(in *GenerateInput, spec *v1.Container, st *v1.ContainerStatus) {
	waiting := in.NotStarted[spec.Name]
	if waiting == nil || !in.ShouldStart(in.Pod, spec, in.PodStatus.Find(spec.Name)) {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = v1.ContainerState{Waiting: waiting}
}
