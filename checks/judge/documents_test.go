package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestVerdicts holds what must be seen for each document, and the problem that is named when it was not.
func TestVerdicts(t *testing.T) {
	unswept := func(f *facts.Input) {
		s := &f.Measurement.Sweep
		s.Inspections = s.Inspections[:len(s.Inspections)-1]
	}
	noLists := func(f *facts.Input) {
		f.Measurement.Probes, f.Measurement.Samples = f.Measurement.Probes[:2], nil
		f.Measurement.Sandboxes, f.Measurement.Containers = nil, nil
	}
	noStatus := func(f *facts.Input) { f.Measurement.Probes = f.Measurement.Probes[2:] }
	wrong := func(f *facts.Input) { f.Kubelet.Endpoint = "unix://unix:///run/x.sock" }
	notTaken := func(f *facts.Input) {
		f.NotTaken = []crictl.Tried{{What: "kubelet (pid 7)", Why: "runs as user 65534"}}
	}
	settings := func(f *facts.Input) { f.Kubelet.Unreadable = "config.yaml" }
	stopped := func(f *facts.Input) {
		f.Processes = append(f.Processes, host.Process{PID: 81, Name: "kubelet", Role: host.RoleKubelet, State: 'T'})
	}
	for _, tt := range []struct {
		scenario        // want holds the verdicts of report, probe and benchmark
		problems string // of the three documents together, one word of each
	}{
		{row("healthy", "healthy healthy healthy"), ""},
		{
			row("nothing measured", "unknown unknown unknown", func(f *facts.Input) { f.Measurement = nil }),
			"no runtime was asked",
		},
		{
			row("denied", "unknown unknown unknown", socket(crictl.ConnectDenied, "permission denied")),
			"may not open the runtime's socket",
		},
		{row("a directory", "unknown unknown unknown", socket(crictl.ConnectNotSocket, "")), "not a socket"},
		{row("down", "unhealthy unhealthy unhealthy", socket(crictl.ConnectRefused, "refused")), ""},
		{row("a warning", "degraded degraded degraded", exited(1000, 10, 1000), sweep), ""},
		{row("interrupted", "unknown unknown unknown", interrupted), "ended early: interrupted by a signal"},
		{row("one running container not asked", "unknown healthy unknown", unswept), "status of 1 of 9 objects"},
		{row("no sweep", "unknown healthy healthy", noSweep), "status of 9 of 9 objects"},
		{
			row("calls were cut short", "unknown healthy healthy", statuses(every, withError(crictl.Canceled, ""))),
			"status of 9 of 9 objects",
		},
		{row("lists not asked", "unknown unknown unknown", noLists), "ListPodSandbox was not asked"},
		{row("Status not asked", "unknown unknown unknown", noStatus), "Status was not asked"},
		{
			row("Version not allowed", "unknown unknown unknown", fails(crictl.PermissionDenied, "x", facts.RPCVersion)),
			"Version failed",
		},
		{
			row("one list failed", "unknown unknown unknown", sampleFails(crictl.PermissionDenied, "no", 1)),
			"the lists of 1 of 3 relists failed",
		},
		{
			row("nothing is found", "unknown healthy unknown", statuses(every, withError(crictl.NotFound, ""))),
			"disagree: 9 of 9",
		},
		{
			row("another socket", "unknown unknown unknown", askedBy(crictl.SourceEnv)),
			"another endpoint: unix:///run/crio/crio.sock",
		},
		{row("another socket, on purpose", "healthy healthy healthy", askedBy(crictl.SourceFlag)), "another endpoint"},
		{
			row("the kubelet's endpoint is none", "unknown unknown unknown", wrong),
			"another endpoint: unix://unix:///run/x.sock",
		},
		{
			row("another kubelet was not taken", "healthy healthy healthy", notTaken),
			"kubelet (pid 7): runs as user 65534",
		},
		{row("settings could not be read", "healthy healthy healthy", settings), "config.yaml"},
		{
			row("a stopped kubelet makes no relists", "healthy healthy healthy", stopped),
			"(pid 81) is stopped and makes no relists",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweaks...)
			report, probe, benchmark := NewReport(checks.Header{}, f), NewRuntimeProbe(
				checks.Header{},
				f,
			), NewRelistBenchmark(checks.Header{}, f)
			if got := fmt.Sprint(report.Status, " ", probe.Status, " ", benchmark.Status); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			for _, lines := range [][]string{report.Problems, probe.Problems, benchmark.Problems} {
				if len(slices.Compact(slices.Sorted(slices.Values(lines)))) != len(lines) {
					t.Errorf("said twice: %q", lines)
				}
			}
			all := slices.Concat(report.Problems, probe.Problems, benchmark.Problems)
			if tt.problems == "" && len(all) > 0 || tt.problems != "" && !mentions(all, tt.problems) {
				t.Errorf("problems %q, want %q", all, tt.problems)
			}
			if report.Status == checks.Unknown && len(report.Problems) == 0 {
				t.Error("unknown, and no problem is named")
			}
		})
	}
	if r := NewReport(checks.Header{}, nil); r.Status != checks.Unknown || r.Causes == nil || len(r.Problems) == 0 {
		t.Errorf("of nothing: %+v", r)
	}
}

// TestMeasured wants numbers that were measured in the documents, 0 among them, and no others.
func TestMeasured(t *testing.T) {
	ok := func(name string, bytes, items int) crictl.Call {
		return crictl.Call{Method: name, Code: crictl.OK, Bytes: bytes, Items: items}
	}
	hung := func(name string) crictl.Call { return crictl.Call{Method: name, Code: crictl.DeadlineExceeded} }
	refused := crictl.Call{Method: facts.RPCContainers, Code: crictl.ResourceExhausted, Bytes: 17 << 20}
	for _, tt := range []struct {
		name                  string
		sandboxes, containers crictl.Call
		rpcs, sample          string
	}{
		{
			"full", ok(facts.RPCSandboxes, 20, 1), ok(facts.RPCContainers, 90, 2), "bytes 20 items 1, bytes 90 items 2",
			"bytes 90 containers 2",
		},
		{
			"empty", ok(facts.RPCSandboxes, 0, 0), ok(facts.RPCContainers, 0, 0), "bytes 0 items 0, bytes 0 items 0",
			"bytes 0 containers 0",
		},
		{"hung", hung(facts.RPCSandboxes), crictl.Call{}, ", ", ""},
		{"one hung", ok(facts.RPCSandboxes, 20, 1), hung(facts.RPCContainers), "bytes 20 items 1, ", "bytes 20"},
		{
			"refused for its size", ok(facts.RPCSandboxes, 20, 1), refused, "bytes 20 items 1, bytes 17825792",
			"bytes 17825792",
		},
		{
			"no list", ok(facts.RPCVersion, 38, 0), ok(facts.RPCStatus, 412, 0), "bytes 38, bytes 412",
			"bytes 412 containers 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &facts.Input{Measurement: &plegbench.Measurement{
				Probes:  []crictl.Call{tt.sandboxes, tt.containers},
				Samples: []plegbench.Sample{{Sandboxes: tt.sandboxes, Containers: tt.containers}},
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
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encode(t, v), &fields); err != nil {
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

func TestConfidence(t *testing.T) {
	lines := func(n int) []string { return slices.Repeat([]string{"x"}, n) }
	for _, tt := range []struct {
		step             float64
		against, missing int
		want             float64
	}{
		{checks.Certain, 0, 0, 0.95},
		{checks.Certain + checks.Agreement, 0, 0, 0.95},
		{checks.Certain, 0, 1, 0.9},
		{checks.Strong, 1, 2, 0.55},
		{checks.Fair, 0, 3, 0.45},
		{checks.Fair, 0, 30, 0.45},
		{checks.Weak, 5, 5, 0.1},
	} {
		got := checks.Confidence(tt.step, checks.Evidence{Against: lines(tt.against), Missing: lines(tt.missing)})
		if got != tt.want {
			t.Errorf(
				"Confidence(%v, %d against, %d missing) = %v, want %v",
				tt.step,
				tt.against,
				tt.missing,
				got,
				tt.want,
			)
		}
	}
}
