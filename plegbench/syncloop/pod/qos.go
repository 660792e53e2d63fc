package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// QOSClass is the class of a pod that its status has, or the one that its requests and limits make it
// (pkg/apis/core/v1/helper/qos upstream): BestEffort without any of CPU and memory, Guaranteed if every container
// limits both and requests what it limits, else Burstable. Resources of the pod as a whole replace those of the
// containers.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	guaranteed := true
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	if p.Spec.Resources != nil {
		all = []v1.Container{{Resources: *p.Spec.Resources}}
	}
	for _, c := range all {
		add(requests, c.Resources.Requests)
		guaranteed = add(limits, c.Resources.Limits) == 2 && guaranteed
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return v1.PodQOSBestEffort
	case guaranteed && len(requests) == 2 &&
		requests.Cpu().Cmp(*limits.Cpu()) == 0 && requests.Memory().Cmp(*limits.Memory()) == 0:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// add adds CPU and memory above zero to a sum, and returns how many of the two there are.
func add(sum, list v1.ResourceList) int {
	n := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q := list[name]; q.Sign() > 0 {
			n++
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	return n
}
