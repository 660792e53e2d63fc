package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestVerdicts checks what must be seen for each document, and the problem that is named when it was not.
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
	notTaken := func(f *facts.Input) {
		f.NotTaken = []crictl.Tried{{What: "kubelet (pid 7)", Why: "runs as user 65534"}}
	}
	settings := func(f *facts.Input) { f.Kubelet.Unreadable = "config.yaml" }
	refused := socket(crictl.ConnectRefused, "refused")
	version := fails(crictl.PermissionDenied, "x", facts.RPCVersion)
	for _, tt := range []scenario{ // the verdicts of report, probe and benchmark, and the problem of any of them
		row("healthy", "healthy healthy healthy"),
		row("down", "unhealthy unhealthy unhealthy", refused),
		row("a warning", "degraded degraded degraded", exited(1000, 10, 1000), sweep),
		row("nothing measured", "unknown unknown unknown: no runtime was asked",
			func(f *facts.Input) { f.Measurement = nil }),
		row("denied", "unknown unknown unknown: cannot be opened", socket(crictl.ConnectDenied, "permission denied")),
		row("a directory", "unhealthy unhealthy unhealthy", socket(crictl.ConnectNotSocket, "")),
		row("interrupted", "unknown unknown unknown: ended early: interrupted by a signal", interrupted),
		row("one running container not asked", "unknown healthy unknown: status of 1 of 9 objects", unswept),
		row("no sweep", "unknown healthy healthy: status of 9 of 9 objects", noSweep),
		row("cut short", "unknown healthy healthy: status of 9 of 9 objects",
			statuses(every, withError(crictl.Canceled, ""))),
		row("lists not asked", "unknown unknown unknown: ListPodSandbox was not asked", noLists),
		row("Status not asked", "unknown unknown unknown: Status was not asked", noStatus),
		row("Version not allowed", "unknown unknown unknown: Version failed", version),
		row("one list failed", "unknown unknown unknown: the lists of 1 of 3 relists failed",
			sampleFails(crictl.PermissionDenied, "no", 1)),
		row("nothing is found", "unknown healthy unknown: disagree: 9 of 9",
			statuses(every, withError(crictl.NotFound, ""))),
		row("another socket", "unknown unknown unknown: another endpoint: unix:///run/crio/crio.sock",
			askedBy(crictl.SourceEnv)),
		row("another socket, on purpose", "healthy healthy healthy: another endpoint", askedBy(crictl.SourceFlag)),
		row("another kubelet was not taken", "healthy healthy healthy: kubelet (pid 7): runs as user 65534", notTaken),
		row("settings could not be read", "healthy healthy healthy: config.yaml", settings),
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweaks...)
			want, problem, _ := strings.Cut(tt.want, ": ")
			report, probe, benchmark := NewReport(checks.Header{}, f), NewRuntimeProbe(
				checks.Header{},
				f,
			), NewRelistBenchmark(checks.Header{}, f)
			if got := fmt.Sprint(report.Status, " ", probe.Status, " ", benchmark.Status); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			for _, lines := range [][]string{report.Problems, probe.Problems, benchmark.Problems} {
				if len(slices.Compact(slices.Sorted(slices.Values(lines)))) != len(lines) {
					t.Errorf("repeated: %q", lines)
				}
			}
			all := slices.Concat(report.Problems, probe.Problems, benchmark.Problems)
			if problem == "" && len(all) > 0 || !mentions(append(all, ""), problem) {
				t.Errorf("problems %q, want %q", all, problem)
			}
			if got := VerdictOf(f, report.Causes); got != report.Status {
				t.Errorf("VerdictOf = %s, the report has %s", got, report.Status)
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
