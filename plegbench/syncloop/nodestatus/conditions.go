package nodestatus

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// A pressure is one of the conditions that the eviction manager decides, with its texts (nodestatus/setters.go
// upstream).
type pressure struct {
	kind    v1.NodeConditionType
	yes, no words
}

// The event of a condition is "Node" and the reason without "Kubelet".
type words struct{ reason, message string }

// pressures returns the three, in the order of Config.Pressure's results.
func pressures() []pressure {
	return []pressure{
		{
			v1.NodeMemoryPressure,
			words{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
			words{"KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		},
		{
			v1.NodeDiskPressure,
			words{"KubeletHasDiskPressure", "kubelet has disk pressure"},
			words{"KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		},
		{
			v1.NodePIDPressure,
			words{"KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
			words{"KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		},
	}
}

// setPressure writes a pressure into the conditions. The event is empty when the status stays.
func setPressure(conditions []v1.NodeCondition, p pressure, under bool, now metav1.Time) (_ []v1.NodeCondition, event string) {
	i := find(conditions, p.kind)
	if i < 0 {
		i = len(conditions)
		conditions = append(conditions, v1.NodeCondition{Type: p.kind, Status: v1.ConditionUnknown})
	}
	c, w, status := &conditions[i], p.no, v1.ConditionFalse
	if under {
		w, status = p.yes, v1.ConditionTrue
	}
	c.LastHeartbeatTime = now
	if c.Status == status {
		return conditions, ""
	}
	c.Status, c.Reason, c.Message, c.LastTransitionTime = status, w.reason, w.message, now
	return conditions, "Node" + strings.TrimPrefix(w.reason, "Kubelet")
}

// readyCondition is the Ready condition but for its transition: what is wrong, in the order given, and what capacity is
// missing.
func readyCondition(capacity v1.ResourceList, now metav1.Time, errs ...error) v1.NodeCondition {
	var missing []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		errs = append(slices.Clip(errs), errors.New("missing node capacity for resources: "+strings.Join(missing, ", ")))
	}
	c := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now,
		Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	return c
}

// setReady writes the Ready condition. It changed only if there was one with another status: a node's first is no
// change.
func setReady(conditions []v1.NodeCondition, ready v1.NodeCondition) (_ []v1.NodeCondition, written v1.NodeCondition, changed bool) {
	ready.LastTransitionTime = ready.LastHeartbeatTime
	i := find(conditions, v1.NodeReady)
	if i < 0 {
		return append(conditions, ready), ready, false
	}
	changed = conditions[i].Status != ready.Status
	if !changed {
		ready.LastTransitionTime = conditions[i].LastTransitionTime
	}
	conditions[i] = ready
	return conditions, ready, changed
}

func find(conditions []v1.NodeCondition, kind v1.NodeConditionType) int {
	return slices.IndexFunc(conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
}

// statusChanged compares two statuses but for their heartbeats and the order of their conditions.
func statusChanged(before, after v1.NodeStatus) bool {
	return !equality.Semantic.DeepEqual(still(before), still(after))
}

// still is the status without what moves by itself.
func still(s v1.NodeStatus) v1.NodeStatus {
	s.Conditions = slices.SortedFunc(slices.Values(s.Conditions), func(a, b v1.NodeCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	for i := range s.Conditions {
		s.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return s
}
