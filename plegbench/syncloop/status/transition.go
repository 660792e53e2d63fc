package status

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// checkTransitions refuses a status in which a container that has ended for good runs or waits again.
func checkTransitions(old, st *v1.PodStatus, p *v1.Pod) error {
	if p.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return nil
	}
	for i := range old.ContainerStatuses {
		if name := old.ContainerStatuses[i].Name; revived(p, p.Spec.Containers, &old.ContainerStatuses[i], st.ContainerStatuses) {
			return fmt.Errorf("terminated container %v attempted illegal transition to non-terminated state", name)
		}
	}
	for i := range old.InitContainerStatuses {
		name := old.InitContainerStatuses[i].Name
		if pod.Container(p.Spec.InitContainers, name) == nil {
			return fmt.Errorf("found mismatch between pod spec and status, container: %v", name)
		}
		if revived(p, p.Spec.InitContainers, &old.InitContainerStatuses[i], st.InitContainerStatuses) {
			return fmt.Errorf("terminated init container %v attempted illegal transition to non-terminated state", name)
		}
	}
	return nil
}

func revived(p *v1.Pod, specs []v1.Container, old *v1.ContainerStatus, now []v1.ContainerStatus) bool {
	end := old.State.Terminated
	if end == nil || end.ExitCode != 0 && p.Spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return false
	}
	if spec := pod.Container(specs, old.Name); spec != nil && pod.Restarts(p, spec, end.ExitCode) {
		return false
	}
	st := statusOf(now, old.Name)
	return st != nil && st.State.Terminated == nil
}

// carryOver keeps what must not change from one status to the next: the start time, when each condition became what
// it is, and the generation, which never goes back.
func carryOver(st, old *v1.PodStatus, now time.Time) {
	for i := range st.Conditions {
		if t := st.Conditions[i].Type; ours(t) || t == v1.DisruptionTarget {
			st.Conditions[i].LastTransitionTime = transition(&st.Conditions[i], old.Conditions, now)
		}
	}
	switch {
	case !old.StartTime.IsZero():
		st.StartTime = old.StartTime.DeepCopy()
	case st.StartTime.IsZero():
		st.StartTime = &metav1.Time{Time: now}
	}
	st.ObservedGeneration = max(st.ObservedGeneration, old.ObservedGeneration)
}

// transition is when a condition became what it is.
func transition(c *v1.PodCondition, old []v1.PodCondition, now time.Time) metav1.Time {
	if was := condition(old, c.Type); was != nil && was.Status == c.Status {
		return was.LastTransitionTime
	}
	return metav1.NewTime(now)
}

// mostMessages is the size of all termination messages of a pod together, in bytes (MaxPodTerminationMessageLogLength
// in pkg/kubelet/container/runtime.go upstream).
const mostMessages = 12 << 10

// normalize brings a status into the form that comes back from the API server, so that the two can be compared: times
// in whole seconds, lists in order, messages cut.
func normalize(p *v1.Pod, st *v1.PodStatus) {
	each := mostMessages / max(1, len(p.Spec.Containers)+len(p.Spec.InitContainers)+len(p.Spec.EphemeralContainers))
	if st.StartTime != nil {
		*st.StartTime = st.StartTime.Rfc3339Copy()
	}
	for i := range st.Conditions {
		c := &st.Conditions[i]
		c.LastProbeTime, c.LastTransitionTime = c.LastProbeTime.Rfc3339Copy(), c.LastTransitionTime.Rfc3339Copy()
	}
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, each)
			normalizeState(&list[i].LastTerminationState, each)
		}
	}
	sortByName(st.ContainerStatuses)
	sortByName(st.EphemeralContainerStatuses)
}

func normalizeState(s *v1.ContainerState, most int) {
	if r := s.Running; r != nil {
		r.StartedAt = r.StartedAt.Rfc3339Copy()
	}
	if t := s.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = t.StartedAt.Rfc3339Copy(), t.FinishedAt.Rfc3339Copy()
		t.Message = t.Message[:min(len(t.Message), most)]
	}
}

// equal reports whether two normalized statuses are the same where the kubelet decides: of conditions its own,
// without their times.
func equal(a, b *v1.PodStatus) bool {
	mine, yours := ownConditions(a), ownConditions(b)
	if len(mine) != len(yours) {
		return false
	}
	for t, c := range mine {
		if other, ok := yours[t]; !ok || c.Status != other.Status || c.Reason != other.Reason || c.Message != other.Message {
			return false
		}
	}
	one := *a
	foreign(&one, b)
	one.Conditions = b.Conditions
	return equality.Semantic.DeepEqual(&one, b)
}

func ownConditions(st *v1.PodStatus) map[v1.PodConditionType]*v1.PodCondition {
	out := map[v1.PodConditionType]*v1.PodCondition{}
	for i := range st.Conditions {
		if t := st.Conditions[i].Type; ours(t) || t == v1.DisruptionTarget {
			out[t] = &st.Conditions[i]
		}
	}
	return out
}

// foreign sets in a status what others write into it.
func foreign(st, from *v1.PodStatus) {
	st.ResourceClaimStatuses = from.ResourceClaimStatuses
	st.ExtendedResourceClaimStatus = from.ExtendedResourceClaimStatus
	st.NodeAllocatableResourceClaimStatuses = from.NodeAllocatableResourceClaimStatuses
}
