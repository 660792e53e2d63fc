package judge

import (
	"encoding/json"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestMeasured checks that the documents have the numbers that were measured, 0 among them, and no others.
func TestMeasured(t *testing.T) {
	none := crictl.Call{Method: facts.RPCContainers, Code: crictl.OK}
	hung := crictl.Call{Method: facts.RPCContainers, Code: crictl.DeadlineExceeded}
	refused := crictl.Call{Method: facts.RPCContainers, Code: crictl.ResourceExhausted, Bytes: 17 << 20}
	for want, call := range map[string]crictl.Call{
		"[0,0,0,20]": none, "[null,null,null,20]": hung, "[17825792,null,null,17825792]": refused,
	} {
		sandboxes := crictl.Call{Method: facts.RPCSandboxes, Code: crictl.OK, Bytes: 20}
		f := &facts.Input{Measurement: &plegbench.Measurement{
			Probes: []crictl.Call{call}, Samples: []plegbench.Sample{{Sandboxes: sandboxes, Containers: call}},
		}}
		r, s := NewRuntimeProbe(checks.Header{}, f).RPCs[0], NewRelistBenchmark(checks.Header{}, f).Samples[0]
		got, _ := json.Marshal([]any{r.Bytes, r.Items, s.Containers, s.Bytes})
		equal(t, string(call.Code), want, string(got))
	}
	if r := NewReport(checks.Header{}, nil); r.Status != checks.Unknown || r.Causes == nil || len(r.Problems) == 0 {
		t.Errorf("of nothing: %+v", r)
	}
}
