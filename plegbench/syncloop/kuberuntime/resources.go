package kuberuntime

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Bounds of the cgroup's values (pkg/kubelet/cm/helpers_linux.go upstream).
const (
	sharesPerCPU = 1024
	leastShares  = 2
	mostShares   = 262144
	quotaPeriod  = 100_000 // microseconds
	leastQuota   = 1000    // microseconds
	milliPerCPU  = 1000
)

// OOM scores (pkg/kubelet/qos/policy.go upstream).
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
	// nodeCritical is the priority class whose pods are killed last.
	nodeCritical = "system-node-critical"
)

// linuxResources are a container's cgroup values.
func (m *Manager) linuxResources(p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpu, limit := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Limits.Cpu().MilliValue()
	if _, ok := c.Resources.Requests[v1.ResourceCPU]; !ok {
		cpu = limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares: shares(cpu), CpuPeriod: quotaPeriod, CpuQuota: quota(limit),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
		OomScoreAdj:        oomScore(p, c, pod.QOSClass(p), m.MemoryCapacity),
	}
	if m.CgroupV2 {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

func shares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/milliPerCPU, leastShares), mostShares)
}

// quota is the time that a container may run within a period; 0 is unlimited.
func quota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*quotaPeriod/milliPerCPU, leastQuota)
}

// oomScore is how readily the kernel kills a container's processes when memory runs out: of burstable pods the more readily,
// the smaller the part of the node's memory that the container requests.
func oomScore(p *v1.Pod, c *v1.Container, class v1.PodQOSClass, capacity int64) int64 {
	if pod.IsCritical(p) && p.Spec.PriorityClassName == nodeCritical {
		return guaranteedOOMScore
	}
	switch {
	case class == v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case class == v1.PodQOSBestEffort || capacity <= 0:
		return bestEffortOOMScore
	}
	request := c.Resources.Requests.Memory().Value()
	if pod.IsSidecar(c) { // no worse than the regular containers that it serves
		least := int64(-1)
		for i := range p.Spec.Containers {
			if r := p.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || r < least {
				least = r
			}
		}
		request = max(request, least)
	}
	score := bestEffortOOMScore - bestEffortOOMScore*request/capacity
	return min(max(score, bestEffortOOMScore+guaranteedOOMScore), bestEffortOOMScore-1)
}
