package eviction

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	}{
		"memory": {
			&s,
			Threshold{Signal: MemoryAvailable, Value: amount("100Mi")},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50. Container c was using 3Mi, request is 1Mi, has larger consumption of memory. ",
		},
		"disk": {
			&s,
			Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.1}},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 100, available: 60. Container c was using 200, request is 100, has larger consumption of ephemeral-storage. ",
		},
		"processes": {
			&s,
			Threshold{Signal: PIDAvailable, Value: amount("1k")},
			"The node was low on resource: pids. Threshold quantity: 1k, available: 900. ",
		},
		"no figures": {nil, Threshold{Signal: MemoryAvailable, Value: amount("100Mi")}, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50. "},
	} {
		if diff := cmp.Diff(tt.want, explain(p, tt.stats, tt.t, o)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
