package syncloop

import (
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// TestGeneralFilter has a node with two pods, of which one is left out by its own name.
func TestGeneralFilter(t *testing.T) {
	node, others := &v1.Node{}, []*v1.Pod{{}, {}}
	looptest.Decode(t, `
metadata: {name: node-1, labels: {zone: a}}
spec: {taints: [{key: k, value: "1", effect: NoExecute}, {key: n, effect: NoSchedule}]}
status: {allocatable: {pods: 3, cpu: 2, memory: 1Gi, ephemeral-storage: 1Gi, example.com/gpu: 1}}
`, node)
	for _, p := range others {
		looptest.Decode(t, `{spec: {containers: [{resources: {requests: {cpu: 500m, example.com/gpu: 1}}}]}}`, p)
	}
	others = others[:1]
	const tolerated = "tolerations: [{key: k, operator: Exists}]"
	resources := func(list string) string {
		return tolerated + ", containers: [{resources: {requests: {" + list + "}}}]"
	}
	const short = "Node didn't have enough resource: "
	for _, tt := range []struct {
		metadata, spec string
		reason, text   string
	}{
		{"", tolerated, "", ""},
		{"", resources("cpu: 1500m, memory: 1Gi, ephemeral-storage: 1Gi"), "", ""},
		{"", resources("cpu: 1501m"), "OutOfcpu", short + "cpu, requested: 1501, used: 500, capacity: 2000"},
		{
			"", resources("example.com/gpu: 1"), "OutOfexample.com/gpu",
			short + "example.com/gpu, requested: 1, used: 1, capacity: 1",
		},
		{"", resources("example.com/license: 1"), "", ""}, // of the cluster
		{
			"", tolerated + ", nodeSelector: {zone: b}", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"", tolerated + ", nodeName: node-2", "NodeName",
			"Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{
			"", "nodeName: node-1", "TaintToleration",
			"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{"annotations: {kubernetes.io/config.source: file}", "nodeName: node-1", "", ""},
	} {
		p := &v1.Pod{}
		looptest.Decode(t, "{metadata: {"+tt.metadata+"}, spec: {"+tt.spec+"}}", p)
		got := append(generalFilter(logr.Discard(), p, others, node), predicateFailure{})[0]
		looptest.Equal(t, tt.spec, []string{tt.reason, tt.text}, []string{got.reason, got.message})
	}
	got := generalFilter(logr.Discard(), &v1.Pod{}, append(others, others[0], others[0]), node)
	looptest.Equal(t, "too many", short+"pods, requested: 1, used: 3, capacity: 3", got[0].message)
}
