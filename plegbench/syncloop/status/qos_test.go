package status

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
	with := func(requests, limits v1.ResourceList) podOption {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
		}
	}
	for _, tt := range []struct {
		name string
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		{name: "nothing", pod: newPod(), want: v1.PodQOSBestEffort},
		{name: "zero", pod: newPod(with(list("0", ""), nil)), want: v1.PodQOSBestEffort},
		{name: "others do not count", pod: newPod(with(v1.ResourceList{"gpu": resource.MustParse("1")}, nil)), want: v1.PodQOSBestEffort},
		{name: "requests", pod: newPod(with(list("1", "1Gi"), nil)), want: v1.PodQOSBurstable},
		{name: "equal", pod: newPod(with(list("1", "1Gi"), list("1000m", "1024Mi"))), want: v1.PodQOSGuaranteed},
		{name: "one limit", pod: newPod(with(list("1", ""), list("1", ""))), want: v1.PodQOSBurstable},
		{name: "second container without", pod: newPod(also("b"), with(list("1", "1Gi"), list("1", "1Gi"))), want: v1.PodQOSBurstable},
		{name: "init container without", pod: newPod(withInit("i"), with(list("1", "1Gi"), list("1", "1Gi"))), want: v1.PodQOSBurstable},
		{name: "the pod's own", pod: newPod(also("b"), func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
		}), want: v1.PodQOSGuaranteed},
		{name: "as it was", pod: newPod(func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }), want: v1.PodQOSGuaranteed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := QOSClass(tt.pod); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
