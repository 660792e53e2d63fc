package status

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Reasons of conditions (pkg/kubelet/status/generate.go upstream).
const (
	reasonUnknown        = "UnknownContainerStatuses"
	reasonCompleted      = "PodCompleted"
	reasonFailed         = "PodFailed"
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonGates          = "ReadinessGatesNotReady"
)

// containersReady is True when every regular container and sidecar is ready.
func containersReady(p *v1.Pod, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	no := func(reason, message string) v1.PodCondition {
		return newCondition(p, v1.ContainersReady, v1.ConditionFalse, reason, message)
	}
	if len(statuses) == 0 {
		return no(reasonUnknown, "")
	}
	var unknown, unready []string
	look := func(c *v1.Container) {
		if st := statusOf(statuses, c.Name); st == nil {
			unknown = append(unknown, c.Name)
		} else if !st.Ready {
			unready = append(unready, c.Name)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			look(c)
		}
	}
	for i := range p.Spec.Containers {
		look(&p.Spec.Containers[i])
	}
	switch message := listed(unknown, "unready", unready); {
	case phase == v1.PodSucceeded && len(unknown) == 0:
		return no(reasonCompleted, "")
	case phase == v1.PodFailed:
		return no(reasonFailed, "")
	case message != "":
		return no(reasonNotReady, message)
	}
	return newCondition(p, v1.ContainersReady, v1.ConditionTrue, "", "")
}

func listed(unknown []string, lack string, lacking []string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", unknown))
	}
	if len(lacking) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", lack, lacking))
	}
	return strings.Join(parts, ", ")
}

// ready is containersReady, and True only if the readiness gates among the conditions are too.
func ready(p *v1.Pod, conditions []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	c := containersReady(p, statuses, phase)
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range p.Spec.ReadinessGates {
		switch g := condition(conditions, gate.ConditionType); {
		case g == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case g.Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, g.Status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonGates, strings.Join(closed, ", ")
	}
	return c
}

// NeedsReadinessSync reports whether a readiness gate of a pod has changed, so that its Ready condition has to
// be computed again.
func NeedsReadinessSync(p *v1.Pod) bool {
	is := condition(p.Status.Conditions, v1.PodReady)
	if len(p.Spec.ReadinessGates) == 0 || is == nil {
		return false
	}
	should := ready(p, p.Status.Conditions, p.Status.ContainerStatuses, p.Status.Phase)
	return is.Status != should.Status || is.Message != should.Message
}

// initialized is True when every ordinary init container has succeeded and every sidecar has started, and stays so.
func initialized(p *v1.Pod, old []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	is := func(status v1.ConditionStatus, reason, message string) v1.PodCondition {
		return newCondition(p, v1.PodInitialized, status, reason, message)
	}
	if len(statuses) == 0 && len(p.Spec.InitContainers) > 0 {
		return is(v1.ConditionFalse, reasonUnknown, "")
	}
	var unknown, incomplete []string
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		switch st := statusOf(statuses, c.Name); {
		case st == nil:
			unknown = append(unknown, c.Name)
		case pod.IsSidecar(c) && (st.Started == nil || !*st.Started), !pod.IsSidecar(c) && !st.Ready:
			incomplete = append(incomplete, c.Name)
		}
	}
	message := listed(unknown, "incomplete", incomplete)
	was := condition(old, v1.PodInitialized)
	switch {
	case phase == v1.PodSucceeded && len(unknown) == 0:
		return is(v1.ConditionTrue, reasonCompleted, "")
	case message != "" && !anyStarted(p, statuses) && (was == nil || was.Status != v1.ConditionTrue):
		return is(v1.ConditionFalse, reasonNotInitialized, message)
	}
	return is(v1.ConditionTrue, "", "")
}

// anyStarted reports whether a regular container runs or has ended.
func anyStarted(p *v1.Pod, statuses []v1.ContainerStatus) bool {
	for i := range p.Spec.Containers {
		if st := statusOf(statuses, p.Spec.Containers[i].Name); st != nil && (st.State.Running != nil || st.State.Terminated != nil) {
			return true
		}
	}
	return false
}

// sandboxCondition is whether there is a sandbox, with its network, in which containers can be started: exactly one is
// ready, it is the newest, and it has the network namespace and the address that the pod needs.
func sandboxCondition(p *v1.Pod, st *container.PodStatus) v1.PodCondition {
	are := v1.ConditionFalse
	readies := 0
	for _, sb := range st.SandboxStatuses {
		if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			readies++
		}
	}
	if readies == 1 && usable(p, st.SandboxStatuses[0]) {
		are = v1.ConditionTrue
	}
	return newCondition(p, v1.PodReadyToStartContainers, are, "", "")
}

func usable(p *v1.Pod, sb *runtimeapi.PodSandboxStatus) bool {
	want := runtimeapi.NamespaceMode_POD
	if p.Spec.HostNetwork {
		want = runtimeapi.NamespaceMode_NODE
	}
	return sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY &&
		sb.GetLinux().GetNamespaces().GetOptions().GetNetwork() == want &&
		(p.Spec.HostNetwork || sb.GetNetwork() == nil || sb.GetNetwork().GetIp() != "")
}
