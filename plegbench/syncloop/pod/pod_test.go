package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestRestarts(t *testing.T) {
	never := new(v1.ContainerRestartPolicyNever)
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator) v1.Container {
		codes := &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}}
		return v1.Container{RestartPolicy: never, RestartPolicyRules: []v1.ContainerRestartRule{
			{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: codes},
		}}
	}
	own := v1.Container{RestartPolicy: new(v1.ContainerRestartPolicyAlways)}
	for _, tt := range []struct {
		name string
		pod  v1.RestartPolicy
		c    v1.Container
		want [3]bool // after 0, 1 and 42
	}{
		{"not set", "", v1.Container{}, [3]bool{true, true, true}},
		{"never", v1.RestartPolicyNever, v1.Container{}, [3]bool{}},
		{"its own policy", v1.RestartPolicyNever, own, [3]bool{true, true, true}},
		{"in", "", rule(v1.ContainerRestartRuleOnExitCodesOpIn), [3]bool{false, false, true}},
		{"not in", "", rule(v1.ContainerRestartRuleOnExitCodesOpNotIn), [3]bool{true, true, false}},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
		got := [3]bool{Restarts(p, &tt.c, 0), Restarts(p, &tt.c, 1), Restarts(p, &tt.c, 42)}
		looptest.Equal(t, tt.name, tt.want, got)
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "": "none", "A b": "2", "A(": "odd", "E": ""}
	for text, want := range map[string]string{
		"": "", "$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$(NO)": "$(NO)", "$$(A)": "$(A)", "$$$(A)": "$1", "$(E)": "",
		"a$": "a$", "a$$b": "a$b", "$(A": "$(A", "$A": "$A", "$()": "none", "$(A b)": "2", "$(A()": "odd",
		"$($(A))": "$($(A))", "$é(A)": "$é(A)",
	} {
		looptest.Equal(t, text, want, Expand(text, values))
	}
	looptest.Equal(t, "command", []string{"1", "$(X)"}, ExpandAll([]string{"$(A)", "$(X)"}, values))
}

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
	all := list("1", "1Gi")
	for _, tt := range []struct {
		name             string
		requests, limits v1.ResourceList // of the first container
		change           func(*v1.Pod)
		want             v1.PodQOSClass
	}{
		{"nothing", nil, nil, nil, v1.PodQOSBestEffort},
		{"requests", all, nil, nil, v1.PodQOSBurstable},
		{"equal", all, list("1000m", "1024Mi"), nil, v1.PodQOSGuaranteed},
		{"init container without", all, all, func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i"}}
		}, v1.PodQOSBurstable},
		{"as it was", nil, nil, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }, v1.PodQOSGuaranteed},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "app", Resources: v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}},
		}}}
		if tt.change != nil {
			tt.change(p)
		}
		looptest.Equal(t, tt.name, tt.want, QOSClass(p))
	}
}
