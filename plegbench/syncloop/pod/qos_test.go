package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, q := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if q != "" {
				out[name] = resource.MustParse(q)
			}
		}
		return out
	}
	// of is a pod whose first container has those resources, with a change.
	of := func(requests, limits v1.ResourceList, change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "app", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}},
		}}}
		if change != nil {
			change(p)
		}
		return p
	}
	all := list("1", "1Gi")
	also := func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "b"}) }
	for _, tt := range []struct {
		name string
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		{"nothing", of(nil, nil, nil), v1.PodQOSBestEffort},
		{"zero", of(list("0", ""), nil, nil), v1.PodQOSBestEffort},
		{"others do not count", of(v1.ResourceList{"gpu": resource.MustParse("1")}, nil, nil), v1.PodQOSBestEffort},
		{"requests", of(all, nil, nil), v1.PodQOSBurstable},
		{"limits alone, which nobody has made requests", of(nil, all, nil), v1.PodQOSBurstable},
		{"equal", of(all, list("1000m", "1024Mi"), nil), v1.PodQOSGuaranteed},
		{"one limit", of(list("1", ""), list("1", ""), nil), v1.PodQOSBurstable},
		{"second container without", of(all, all, also), v1.PodQOSBurstable},
		{"init container without", of(all, all, func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "i"}} }), v1.PodQOSBurstable},
		{"as it was", of(nil, nil, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }), v1.PodQOSGuaranteed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := QOSClass(tt.pod); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
