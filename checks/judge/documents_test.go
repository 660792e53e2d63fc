package judge

import (
	"fmt"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestMeasured checks that the documents have the numbers that were measured, 0 among them, and no others.
func TestMeasured(t *testing.T) {
	ok := func(name string, bytes, items int) crictl.Call {
		return crictl.Call{Method: name, Code: crictl.OK, Bytes: bytes, Items: items}
	}
	hung := crictl.Call{Method: facts.RPCContainers, Code: crictl.DeadlineExceeded}
	refused := crictl.Call{Method: facts.RPCContainers, Code: crictl.ResourceExhausted, Bytes: 17 << 20}
	number := func(n *int) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	for _, tt := range []struct {
		sandboxes, containers crictl.Call
		want                  string // bytes and items of the second call, containers and bytes of the sample
	}{
		{ok(facts.RPCSandboxes, 20, 1), ok(facts.RPCContainers, 90, 2), "90 2, 2 90"},
		{ok(facts.RPCSandboxes, 0, 0), ok(facts.RPCContainers, 0, 0), "0 0, 0 0"},
		{ok(facts.RPCSandboxes, 20, 1), hung, "- -, - 20"},
		{ok(facts.RPCSandboxes, 20, 1), refused, "17825792 -, - 17825792"},
		{ok(facts.RPCVersion, 38, 0), ok(facts.RPCStatus, 412, 0), "412 -, 0 412"},
	} {
		f := &facts.Input{Measurement: &plegbench.Measurement{
			Probes:  []crictl.Call{tt.sandboxes, tt.containers},
			Samples: []plegbench.Sample{{Sandboxes: tt.sandboxes, Containers: tt.containers}},
		}}
		r, s := NewRuntimeProbe(checks.Header{}, f).RPCs[1], NewRelistBenchmark(checks.Header{}, f).Samples[0]
		got := number(r.Bytes) + " " + number(r.Items) + ", " + number(s.Containers) + " " + number(s.Bytes)
		if got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.containers, got, tt.want)
		}
	}
	if r := NewReport(checks.Header{}, nil); r.Status != checks.Unknown || r.Causes == nil || len(r.Problems) == 0 {
		t.Errorf("of nothing: %+v", r)
	}
}
