package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

func interrupted(f *facts.Input) { f.Measurement.Interrupted = "interrupted by a signal" }

// unswept leaves out the status of one running container.
func unswept(f *facts.Input) {
	s := &f.Measurement.Sweep
	s.Inspections = s.Inspections[:len(s.Inspections)-1]
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		f                         *facts.Input
		report, runtime, benchmrk checks.Verdict
	}{
		{"healthy", node(), checks.Healthy, checks.Healthy, checks.Healthy},
		{"no pods", node(pods(0, 0), swept), checks.Healthy, checks.Healthy, checks.Healthy},
		{"no facts", nil, checks.Unknown, checks.Unknown, checks.Unknown},
		{"nothing measured", node(func(f *facts.Input) { f.Measurement = nil }), checks.Unknown, checks.Unknown, checks.Unknown},
		{"denied", node(socket(crictl.ConnectDenied, "permission denied")), checks.Unknown, checks.Unknown, checks.Unknown},
		{"a directory", node(socket(crictl.ConnectNotSocket, "")), checks.Unknown, checks.Unknown, checks.Unknown},
		{"down", node(socket(crictl.ConnectRefused, "connection refused")), checks.Unhealthy, checks.Unhealthy, checks.Unhealthy},
		{"down and interrupted", node(socket(crictl.ConnectRefused, ""), interrupted), checks.Unhealthy, checks.Unhealthy, checks.Unhealthy},
		{"warning", node(exited(1000, 10, 1000), swept), checks.Degraded, checks.Degraded, checks.Degraded},
		{"warning and interrupted", node(exited(1000, 10, 1000), interrupted), checks.Degraded, checks.Degraded, checks.Degraded},
		{"interrupted", node(interrupted), checks.Unknown, checks.Unknown, checks.Unknown},
		{"one running container not asked", node(unswept), checks.Unknown, checks.Healthy, checks.Unknown},
		{"no sweep", node(func(f *facts.Input) { f.Measurement.Sweep = plegbench.Sweep{} }), checks.Unknown, checks.Healthy, checks.Healthy},
		{"lists not asked", node(func(f *facts.Input) {
			f.Measurement.Probes, f.Measurement.Samples = f.Measurement.Probes[:2], nil
			f.Measurement.Sandboxes, f.Measurement.Containers = nil, nil
		}), checks.Unknown, checks.Unknown, checks.Unknown},
		{"Status not asked", node(func(f *facts.Input) { f.Measurement.Probes = f.Measurement.Probes[2:] }), checks.Unknown, checks.Unknown, checks.Unknown},
		{"calls were cut short", node(func(f *facts.Input) {
			for i := range f.Measurement.Sweep.Inspections {
				f.Measurement.Sweep.Inspections[i].Call.Code = crictl.Canceled
			}
		}), checks.Unknown, checks.Healthy, checks.Healthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, probe, benchmark := NewReport(checks.Header{}, tt.f), NewRuntimeProbe(checks.Header{}, tt.f), NewRelistBenchmark(checks.Header{}, tt.f)
			got := []checks.Verdict{report.Status, probe.Status, benchmark.Status}
			if diff := cmp.Diff([]checks.Verdict{tt.report, tt.runtime, tt.benchmrk}, got); diff != "" {
				t.Error(diff)
			}
			if got := VerdictOf(tt.f, report.Causes); got != report.Status {
				t.Errorf("VerdictOf = %s, the report says %s", got, report.Status)
			}
			if report.Status == checks.Unknown && len(report.Problems) == 0 {
				t.Error("unknown, and no problem says why")
			}
			if report.Status == checks.Healthy && len(report.Problems) > 0 {
				t.Errorf("healthy, with problems %q", report.Problems)
			}
		})
	}
}

func TestCheckResults(t *testing.T) {
	status := func(f *facts.Input) map[string]checks.Status {
		said()(f)
		out := map[string]checks.Status{}
		for _, r := range Results(f) {
			if r.Summary == "" {
				t.Errorf("%s has no summary", r.ID)
			}
			if r.Status != checks.StatusOK && r.Summary != onlyRuntime {
				out[r.ID] = r.Status
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		f    *facts.Input
		want map[string]checks.Status // all that is not ok
	}{
		{"healthy", node(), map[string]checks.Status{}},
		{"refused", node(socket(crictl.ConnectRefused, "connection refused")), map[string]checks.Status{
			"runtime.connect": checks.StatusCritical, "runtime.version": checks.StatusSkipped, "runtime.status": checks.StatusSkipped, "runtime.network": checks.StatusSkipped,
			"runtime.lists": checks.StatusSkipped, "runtime.inspect": checks.StatusSkipped, "image.service": checks.StatusSkipped, "relist.size": checks.StatusSkipped,
			"relist.exited": checks.StatusSkipped, "relist.projection": checks.StatusSkipped,
		}},
		{"Status hangs", node(hangs(facts.RPCStatus)), map[string]checks.Status{"runtime.status": checks.StatusCritical, "runtime.network": checks.StatusUnknown}},
		{"one status hangs", node(statusHangs("container1-0")), map[string]checks.Status{"runtime.inspect": checks.StatusCritical, "relist.projection": checks.StatusWarning}},
		{"images fail", node(fails(crictl.Internal, "x", facts.RPCImageFs)), map[string]checks.Status{"image.service": checks.StatusWarning}},
		{"stopped", node(daemonIn('T', "")), map[string]checks.Status{"host.processes": checks.StatusCritical}},
		{"no processes", node(func(f *facts.Input) { f.HostMissing = "permission denied" }), map[string]checks.Status{"host.processes": checks.StatusUnknown}},
		{"other endpoint", node(func(f *facts.Input) { f.Kubelet.Endpoint = "unix:///run/crio/crio.sock" }), map[string]checks.Status{"runtime.endpoint": checks.StatusWarning}},
		{"same endpoint in other words", node(func(f *facts.Input) { f.Kubelet.Endpoint = "/var/run/containerd/containerd.sock" }), map[string]checks.Status{}},
		{"same endpoint with one slash", node(func(f *facts.Input) { f.Kubelet.Endpoint = "unix:/run/containerd/containerd.sock" }), map[string]checks.Status{}},
		{"slow lists", node(takes(time.Second, facts.RPCSandboxes, facts.RPCContainers)), map[string]checks.Status{"runtime.lists": checks.StatusWarning}},
		{"flood", node(exited(17000, 100, 1000)), map[string]checks.Status{"relist.size": checks.StatusCritical, "relist.exited": checks.StatusCritical}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, status(tt.f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
