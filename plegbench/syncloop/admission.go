package syncloop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// nodeCall bounds a call for the node's labels on the loop's goroutine.
const nodeCall = 10 * time.Second

// canAdmitPod reports whether the node admits a new pod, beside those that it has admitted and that are alive. A pod
// that is not admitted fails.
func (s *SyncLoop) canAdmitPod(p *v1.Pod) bool {
	if s.workers.IsPodTerminationRequested(p.UID) || pod.IsTerminal(p.Status.Phase) {
		return true
	}
	ok, reason, message := s.evictor.Admit(p)
	if ok {
		others := slices.DeleteFunc(s.activePods(), func(other *v1.Pod) bool { return other.UID == p.UID })
		ctx, cancel := context.WithTimeout(context.Background(), nodeCall)
		defer cancel()
		failures := generalFilter(s.log, p, others, s.node.GetNodeAnyWay(ctx, true))
		if len(failures) == 1 && failures[0].reason == "NodeAffinity" { // its labels may have changed just now
			failures = generalFilter(s.log, p, others, s.node.GetNodeAnyWay(ctx, false))
		}
		if len(failures) > 0 {
			ok, reason, message = false, failures[0].reason, failures[0].message
		}
	}
	if !ok {
		s.log.Info("Pod admission denied", "podUID", p.UID, "pod", klog.KObj(p), "reason", reason, "message", message)
		s.metrics.AdmissionRejections.WithLabelValues(reason).Inc()
		s.recorder.Eventf(p, v1.EventTypeWarning, reason, "%s", message)
		s.status.SetPodStatus(p, v1.PodStatus{
			QOSClass: p.Status.QOSClass, Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message,
		})
	}
	return ok
}

// A predicateFailure is why a pod does not fit on the node.
type predicateFailure struct{ reason, message string }

// generalFilter returns why a pod does not fit on a node beside others, the first for its status
// (pkg/kubelet/lifecycle/predicate.go upstream).
func generalFilter(log logr.Logger, p *v1.Pod, others []*v1.Pod, node *v1.Node) (out []predicateFailure) {
	out = insufficientResources(p, others, node.Status.Allocatable)
	predicate := func(failed bool, name, text string) {
		if failed {
			out = append(out, predicateFailure{name, "Predicate " + name + " failed: " + text})
		}
	}
	matches, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(node) // an affinity with an error does not match
	predicate(!matches, "NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	predicate(p.Spec.NodeName != "" && p.Spec.NodeName != node.Name, "NodeName",
		"node(s) didn't match the requested node name")
	_, untolerated := corev1.FindMatchingUntoleratedTaint(log, node.Spec.Taints, p.Spec.Tolerations,
		func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }, false)
	predicate(untolerated && !pod.IsStatic(p), "TaintToleration", "node(s) had taints that the pod didn't tolerate")
	return out
}

// insufficientResources returns the resources of which less is left than a pod requests.
func insufficientResources(p *v1.Pod, others []*v1.Pod, allocatable v1.ResourceList) (out []predicateFailure) {
	check := func(name v1.ResourceName, requested, used, capacity int64) {
		if requested > capacity-used {
			out = append(out, predicateFailure{"OutOf" + string(name), fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)})
		}
	}
	check(v1.ResourcePods, 1, int64(len(others)), allocatable.Pods().Value())
	amount := func(name v1.ResourceName, list v1.ResourceList) int64 {
		q := list[name]
		if name == v1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	requests := podresource.PodRequests(p, podresource.PodResourcesOptions{})
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		// A resource of the cluster, which its nodes do not know, is not theirs to count.
		if _, known := allocatable[name]; !slices.Contains(names, name) && (known || !strings.Contains(string(name), "/")) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		requested, used := amount(name, requests), int64(0)
		for _, other := range others {
			used += amount(name, podresource.PodRequests(other, podresource.PodResourcesOptions{}))
		}
		if requested > 0 {
			check(name, requested, used, amount(name, allocatable))
		}
	}
	return out
}
