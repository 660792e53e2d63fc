package eviction

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Conditions returns the pressures that the node is under now, or was within the transition period.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.conditions)
}

// Admit reports whether a pod may start on this node now. If not, reason and message are for its status.
func (m *Manager) Admit(p *v1.Pod) (ok bool, reason, message string) {
	conditions := m.Conditions()
	if admits(p, conditions) {
		return true, "", ""
	}
	m.cfg.Log.Info("Failed to admit pod to node", "pod", klog.KObj(p), "nodeCondition", conditions)
	return false, evicted, fmt.Sprintf("The node had condition: %v. ", conditions)
}

// admits lets critical pods in always. When only memory is short it lets in pods that ask for some of it, and those
// that tolerate the shortage.
func admits(p *v1.Pod, conditions []v1.NodeConditionType) bool {
	if len(conditions) == 0 || pod.IsCritical(p) {
		return true
	}
	if !slices.Equal(conditions, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		return false
	}
	return pod.QOSClass(p) != v1.PodQOSBestEffort || slices.ContainsFunc(p.Spec.Tolerations, toleratesMemoryPressure)
}

func toleratesMemoryPressure(t v1.Toleration) bool {
	if t.Effect != "" && t.Effect != v1.TaintEffectNoSchedule || t.Key != "" && t.Key != v1.TaintNodeMemoryPressure {
		return false
	}
	return t.Operator == v1.TolerationOpExists || (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == ""
}
