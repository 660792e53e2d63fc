package pod

import (
	v1 "k8s.io/api/core/v1"
)

// QOSClass is the class of a pod that its status has, or the one that its requests and limits make it
// (pkg/apis/core/v1/helper/qos upstream): BestEffort without any of CPU and memory, Guaranteed if every container limits both and
// requests what it limits, else Burstable. Resources of the pod as a whole, where given, count instead of the containers'.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	var all []v1.ResourceRequirements
	if p.Spec.Resources != nil {
		all = append(all, *p.Spec.Resources)
	} else {
		for i := range p.Spec.Containers {
			all = append(all, p.Spec.Containers[i].Resources)
		}
		for i := range p.Spec.InitContainers {
			all = append(all, p.Spec.InitContainers[i].Resources)
		}
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	guaranteed := true
	for _, r := range all {
		add(requests, r.Requests)
		if add(limits, r.Limits) < 2 {
			guaranteed = false
		}
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return v1.PodQOSBestEffort
	case guaranteed && same(requests, limits):
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// add adds CPU and memory that are above zero to a sum, and returns how many of the two there are.
func add(sum, list v1.ResourceList) int {
	n := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := list[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		n++
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
	return n
}

func same(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
