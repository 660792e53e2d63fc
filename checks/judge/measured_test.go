package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestMeasured wants numbers that were measured in the documents, 0 among them, and no others.
func TestMeasured(t *testing.T) {
	ok := func(name string, bytes, items int) crictl.Call {
		return crictl.Call{Method: name, Code: crictl.OK, Bytes: bytes, Items: items}
	}
	hung := func(name string) crictl.Call { return crictl.Call{Method: name, Code: crictl.DeadlineExceeded} }
	refused := crictl.Call{Method: facts.RPCContainers, Code: crictl.ResourceExhausted, Bytes: 17 << 20}
	tests := []struct {
		name                  string
		sandboxes, containers crictl.Call
		rpcs, sample          string
	}{
		{"full", ok(facts.RPCSandboxes, 20, 1), ok(facts.RPCContainers, 90, 2), "bytes 20 items 1, bytes 90 items 2", "bytes 90 containers 2"},
		{"an empty runtime", ok(facts.RPCSandboxes, 0, 0), ok(facts.RPCContainers, 0, 0), "bytes 0 items 0, bytes 0 items 0", "bytes 0 containers 0"},
		{"hung", hung(facts.RPCSandboxes), crictl.Call{}, ", ", ""},
		{"one hung", ok(facts.RPCSandboxes, 20, 1), hung(facts.RPCContainers), "bytes 20 items 1, ", "bytes 20"},
		{"refused for its size", ok(facts.RPCSandboxes, 20, 1), refused, "bytes 20 items 1, bytes 17825792", "bytes 17825792"},
		{"no list", ok(facts.RPCVersion, 38, 0), ok(facts.RPCStatus, 412, 0), "bytes 38, bytes 412", "bytes 412 containers 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &facts.Input{Measurement: &plegbench.Measurement{
				Probes: []crictl.Call{tt.sandboxes, tt.containers}, Samples: []plegbench.Sample{{Sandboxes: tt.sandboxes, Containers: tt.containers}},
			}}
			rpcs := NewRuntimeProbe(checks.Header{}, f).RPCs
			if diff := cmp.Diff(tt.rpcs, numbers(t, rpcs[0])+", "+numbers(t, rpcs[1])); diff != "" {
				t.Errorf("rpcs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.sample, numbers(t, NewRelistBenchmark(checks.Header{}, f).Samples[0])); diff != "" {
				t.Errorf("sample (-want +got):\n%s", diff)
			}
		})
	}
}

// numbers returns the counts that a document has, by name.
func numbers(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, name := range []string{"bytes", "containers", "items"} {
		if value, ok := fields[name]; ok {
			list = append(list, name+" "+string(value))
		}
	}
	return strings.Join(list, " ")
}

// TestKdiagCommand wants next steps to mean the runtime that was asked, and a simulation's never the node at hand.
func TestKdiagCommand(t *testing.T) {
	for _, tt := range []struct {
		name    string
		runtime checks.Runtime
		want    string
	}{
		{"found", checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "well-known"}, "kdiag gc-exited --yes"},
		{"given", checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "flag"}, "kdiag gc-exited --yes --runtime-endpoint unix:///run/x.sock"},
		{"simulated", checks.Runtime{EndpointSource: "simulated", Simulate: "exited-flood"}, "kdiag gc-exited --yes --simulate exited-flood"},
		{"from a file", checks.Runtime{EndpointSource: "simulated", Simulate: "'./a b.yaml'"}, "kdiag gc-exited --yes --simulate './a b.yaml'"},
		{"it is not known which", checks.Runtime{EndpointSource: "simulated"}, "kdiag gc-exited --yes --simulate SCENARIO"},
	} {
		f := &facts.Input{Runtime: tt.runtime}
		if got := facts.KdiagCommand(facts.New(&facts.Input{Runtime: facts.RuntimeOf(facts.New(f))}), "gc-exited --yes"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
