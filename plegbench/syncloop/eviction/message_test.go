package eviction

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestExplain(t *testing.T) {
	p := testPod("p", 0, "1Mi", "100")
	s := figures("p", 3<<20, 1, 200, 0, 0)
	o := observe(summary(1, 50, 60))
	for name, tt := range map[string]struct {
		stats *statsapi.PodStats
		t     Threshold
		want  string
		notes map[string]string
	}{
		"memory": {
			&s,
			Threshold{Signal: MemoryAvailable, Value: amount("100Mi")},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50. Container c was using 3Mi, request is 1Mi, has larger consumption of memory. ",
			map[string]string{offendingContainers: "c", offendingUsage: "3Mi", starvedResource: "memory"},
		},
		"disk": {
			&s,
			Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.1}},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 100, available: 60. Container c was using 200, request is 100, has larger consumption of ephemeral-storage. ",
			map[string]string{offendingContainers: "c", offendingUsage: "200", starvedResource: "ephemeral-storage"},
		},
		"processes": {
			&s,
			Threshold{Signal: PIDAvailable, Value: amount("1k")},
			"The node was low on resource: pids. Threshold quantity: 1k, available: 900. ",
			map[string]string{offendingContainers: "", offendingUsage: "", starvedResource: "pids"},
		},
		"no figures": {nil, Threshold{Signal: MemoryAvailable, Value: amount("100Mi")}, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50. ", nil},
	} {
		message, notes := explain(p, tt.stats, tt.t, o)
		if diff := cmp.Diff(tt.want, message); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(tt.notes, notes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOverLimit(t *testing.T) {
	limited := func(container, volume string) *v1.Pod {
		p := testPod("p", 0, "", "")
		if container != "" {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(container)}
		}
		if volume != "" {
			p.Spec.Volumes[0].EmptyDir.SizeLimit = quantity(volume)
		}
		return p
	}
	for name, tt := range map[string]struct {
		pod       *v1.Pod
		dedicated bool
		want      [2]string
	}{
		"none":                {limited("", ""), false, [2]string{}},
		"within":              {limited("100", "50"), false, [2]string{}},
		"volume":              {limited("1", "49"), false, [2]string{emptyDirLimit, `Usage of EmptyDir volume "local" exceeds the limit "49". `}},
		"pod":                 {limited("99", ""), false, [2]string{podLimit, "Pod ephemeral local storage usage exceeds the total limit of containers 99. "}},
		"a volume of no size": {limited("", "0"), false, [2]string{}},
	} {
		s := figures("p", 0, 0, 30, 20, 50)
		signal, message := overLimit(tt.pod, &s, tt.dedicated)
		if diff := cmp.Diff(tt.want, [2]string{signal, message}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	s := figures("p", 0, 0, 30, 20, 0)
	s.EphemeralStorage = nil
	if signal, message := overLimit(limited("49", ""), &s, false); signal != containerLimit || message != `Container c exceeded its local ephemeral storage limit "49". ` {
		t.Error(signal, message)
	}
	if signal, _ := overLimit(limited("49", ""), &s, true); signal != "" {
		t.Error(signal)
	}
}
