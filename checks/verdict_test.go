package checks

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

func interrupted(f *Facts) { f.Measurement.Interrupted = "interrupted by a signal" }

// unswept leaves out the status of one running container.
func unswept(f *Facts) {
	s := &f.Measurement.Sweep
	s.Inspections = s.Inspections[:len(s.Inspections)-1]
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		f                         *Facts
		report, runtime, benchmrk Verdict
	}{
		{"healthy", node(), Healthy, Healthy, Healthy},
		{"no pods", node(pods(0, 0), swept), Healthy, Healthy, Healthy},
		{"no facts", nil, Unknown, Unknown, Unknown},
		{"nothing measured", node(func(f *Facts) { f.Measurement = nil }), Unknown, Unknown, Unknown},
		{"denied", node(socket(crictl.ConnectDenied, "permission denied")), Unknown, Unknown, Unknown},
		{"a directory", node(socket(crictl.ConnectNotSocket, "")), Unknown, Unknown, Unknown},
		{"down", node(socket(crictl.ConnectRefused, "connection refused")), Unhealthy, Unhealthy, Unhealthy},
		{"down and interrupted", node(socket(crictl.ConnectRefused, ""), interrupted), Unhealthy, Unhealthy, Unhealthy},
		{"warning", node(exited(1000, 10, 1000), swept), Degraded, Degraded, Degraded},
		{"warning and interrupted", node(exited(1000, 10, 1000), interrupted), Degraded, Degraded, Degraded},
		{"interrupted", node(interrupted), Unknown, Unknown, Unknown},
		{"one running container not asked", node(unswept), Unknown, Healthy, Unknown},
		{"no sweep", node(func(f *Facts) { f.Measurement.Sweep = plegbench.Sweep{} }), Unknown, Healthy, Healthy},
		{"lists not asked", node(func(f *Facts) {
			f.Measurement.Probes, f.Measurement.Samples = f.Measurement.Probes[:2], nil
			f.Measurement.Sandboxes, f.Measurement.Containers = nil, nil
		}), Unknown, Unknown, Unknown},
		{"Status not asked", node(func(f *Facts) { f.Measurement.Probes = f.Measurement.Probes[2:] }), Unknown, Unknown, Unknown},
		{"calls were cut short", node(func(f *Facts) {
			for i := range f.Measurement.Sweep.Inspections {
				f.Measurement.Sweep.Inspections[i].Call.Code = crictl.Canceled
			}
		}), Unknown, Healthy, Healthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, probe, benchmark := NewReport(Header{}, tt.f), NewRuntimeProbe(Header{}, tt.f), NewRelistBenchmark(Header{}, tt.f)
			got := []Verdict{report.Status, probe.Status, benchmark.Status}
			if diff := cmp.Diff([]Verdict{tt.report, tt.runtime, tt.benchmrk}, got); diff != "" {
				t.Error(diff)
			}
			if got := VerdictOf(tt.f, report.Causes); got != report.Status {
				t.Errorf("VerdictOf = %s, the report says %s", got, report.Status)
			}
			if report.Status == Unknown && len(report.Problems) == 0 {
				t.Error("unknown, and no problem says why")
			}
			if report.Status == Healthy && len(report.Problems) > 0 {
				t.Errorf("healthy, with problems %q", report.Problems)
			}
		})
	}
}

func TestCheckResults(t *testing.T) {
	status := func(f *Facts) map[string]Status {
		said()(f)
		out := map[string]Status{}
		for _, r := range Results(f) {
			if r.Summary == "" {
				t.Errorf("%s has no summary", r.ID)
			}
			if r.Status != StatusOK && r.Summary != onlyRuntime {
				out[r.ID] = r.Status
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		f    *Facts
		want map[string]Status // all that is not ok
	}{
		{"healthy", node(), map[string]Status{}},
		{"refused", node(socket(crictl.ConnectRefused, "connection refused")), map[string]Status{
			"runtime.connect": StatusCritical, "runtime.version": StatusSkipped, "runtime.status": StatusSkipped, "runtime.network": StatusSkipped,
			"runtime.lists": StatusSkipped, "runtime.inspect": StatusSkipped, "image.service": StatusSkipped, "relist.size": StatusSkipped,
			"relist.exited": StatusSkipped, "relist.projection": StatusSkipped,
		}},
		{"Status hangs", node(hangs(rpcStatus)), map[string]Status{"runtime.status": StatusCritical, "runtime.network": StatusUnknown}},
		{"one status hangs", node(statusHangs("container1-0")), map[string]Status{"runtime.inspect": StatusCritical, "relist.projection": StatusWarning}},
		{"images fail", node(fails(crictl.Internal, "x", rpcImageFs)), map[string]Status{"image.service": StatusWarning}},
		{"stopped", node(daemonIn('T', "")), map[string]Status{"host.processes": StatusCritical}},
		{"no processes", node(func(f *Facts) { f.HostMissing = "permission denied" }), map[string]Status{"host.processes": StatusUnknown}},
		{"other endpoint", node(func(f *Facts) { f.Kubelet.Endpoint = "unix:///run/crio/crio.sock" }), map[string]Status{"runtime.endpoint": StatusWarning}},
		{"same endpoint in other words", node(func(f *Facts) { f.Kubelet.Endpoint = "/var/run/containerd/containerd.sock" }), map[string]Status{}},
		{"same endpoint with one slash", node(func(f *Facts) { f.Kubelet.Endpoint = "unix:/run/containerd/containerd.sock" }), map[string]Status{}},
		{"slow lists", node(takes(time.Second, rpcSandboxes, rpcContainers)), map[string]Status{"runtime.lists": StatusWarning}},
		{"flood", node(exited(17000, 100, 1000)), map[string]Status{"relist.size": StatusCritical, "relist.exited": StatusCritical}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, status(tt.f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
