package checks

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

// everyRPC is all that a runtime is asked once.
func everyRPC() []string {
	return []string{rpcVersion, rpcStatus, rpcSandboxes, rpcContainers, rpcImages, rpcImageFs}
}

// TestPattern holds one row for each picture that the RPCs of a runtime can make together.
func TestPattern(t *testing.T) {
	stuckCNI := host.Process{PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S', Started: now().Add(-7 * time.Minute)}
	notInitialised := "server is not initialized yet"
	unknownService := "unknown service runtime.v1.RuntimeService"
	tooLarge := "grpc: trying to send message larger than max (26300000 vs. 16777216)"
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string
	}{
		{"all well", nil, []string{}},
		{"missing socket", []tweak{socket(crictl.ConnectMissing, "no such file or directory")}, []string{codeRuntimeDown}},
		{"refused", []tweak{socket(crictl.ConnectRefused, "connection refused")}, []string{codeRuntimeDown}},
		{"backlogged", []tweak{socket(crictl.ConnectBacklogged, "")}, []string{codeRuntimeHung}},
		{"silent", []tweak{socket(crictl.ConnectSilent, "")}, []string{codeRuntimeHung}},
		{"foreign", []tweak{socket(crictl.ConnectForeign, "")}, []string{codeRuntimeUnsupported}},
		{"denied", []tweak{socket(crictl.ConnectDenied, "permission denied")}, []string{}},
		{"not a socket", []tweak{socket(crictl.ConnectNotSocket, "")}, []string{}},
		{"everything hangs", []tweak{hangs(everyRPC()...)}, []string{codeRuntimeHung}},
		{"everything but Version hangs", []tweak{hangs(everyRPC()[1:]...)}, []string{codeRuntimeHung}},
		{"Version late, the rest not in time", []tweak{hangs(everyRPC()[1:]...), takes(2*time.Second, rpcVersion)}, []string{codeRuntimeSlow}},
		{"Status hangs", []tweak{hangs(rpcStatus)}, []string{codeCNIHung}},
		{"CNI plugin stuck", []tweak{processes(stuckCNI)}, []string{codeCNIHung}},
		{"ListContainers hangs", []tweak{hangs(rpcContainers)}, []string{codeListHang}},
		{"ListContainers and one status hang", []tweak{hangs(rpcContainers), statusHangs("container1-0")}, []string{codeListHang}},
		{"ListPodSandbox hangs, containers not asked", []tweak{hangs(rpcSandboxes)}, []string{codeListHang}},
		{"both lists hang, Status answers", []tweak{hangs(rpcSandboxes, rpcContainers)}, []string{codeListHang}},
		{"one container's status hangs", []tweak{statusHangs("container1-0")}, []string{codeInspectHang}},
		{"one sandbox's status hangs", []tweak{statusHangs("sandbox2")}, []string{codeInspectHang}},
		{"images hang", []tweak{hangs(rpcImages, rpcImageFs)}, []string{codeImageServiceHung}},
		{"images and one status hang", []tweak{hangs(rpcImages), statusHangs("container1-0")}, []string{codeImageServiceHung, codeInspectHang}},
		{"the list is refused for its size", []tweak{fails(crictl.ResourceExhausted, tooLarge, rpcContainers)}, []string{codeListTooLarge}},
		{"everything is slow", []tweak{takes(3*time.Second, everyRPC()...)}, []string{codeRuntimeSlow}},
		{"Unimplemented", []tweak{fails(crictl.Unimplemented, unknownService, everyRPC()...)}, []string{codeRuntimeUnsupported}},
		{"starting", []tweak{fails(crictl.Unavailable, notInitialised, everyRPC()[1:]...)}, []string{codeRuntimeNotReady}},
		{"gone between the knock and the calls", []tweak{fails(crictl.Unavailable, "connect: connection refused", everyRPC()...)}, []string{codeRuntimeDown}},
		{"Status fails", []tweak{fails(crictl.Internal, "boltdb: file is closed", rpcStatus)}, []string{codeRuntimeNotReady}},
		{"RuntimeReady=false", []tweak{condition(0, false)}, []string{codeRuntimeNotReady}},
		{"NetworkReady=false", []tweak{condition(1, false)}, []string{codeNetworkNotReady}},
		{"no conditions", []tweak{func(f *Facts) { f.Measurement.Status.Conditions = nil }}, []string{codeRuntimeNotReady}},
		{"nothing was asked", []tweak{func(f *Facts) { f.Measurement = nil }}, []string{}},
		{"no RPC was reached", []tweak{func(f *Facts) { f.Measurement.Probes, f.Measurement.Samples = nil, nil }}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, codes(Judge(node(tt.tweaks...)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// condition sets the status of one of the two conditions.
func condition(n int, status bool) tweak {
	return func(f *Facts) {
		c := &f.Measurement.Status.Conditions[n]
		c.Status, c.Reason, c.Message = status, "SomeReason", "cni plugin not\x1b[31m initialized"
	}
}

// TestPairs holds the likely pairs: which cause explains which, and which stand side by side.
func TestPairs(t *testing.T) {
	stuckCNI := host.Process{PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S', Started: now().Add(-7 * time.Minute)}
	for _, tt := range []struct {
		name     string
		tweaks   []tweak
		want     []string
		causedBy []string
	}{
		{
			"exited and too large",
			[]tweak{exited(17000, 100, 1000)},
			[]string{codeTooManyExited, codeListTooLarge},
			[]string{"", codeTooManyExited},
		},
		{
			"large entries and exited",
			[]tweak{exited(3000, 10, 6000)},
			[]string{codeListTooLarge, codeTooManyExited},
			[]string{"", ""},
		},
		{
			"slow and overloaded",
			[]tweak{pods(100, 2), swept, takes(3*time.Second, everyRPC()...), statusTakes(2500 * time.Millisecond)},
			[]string{codeRuntimeSlow, codeRelistOverloaded},
			[]string{"", codeRuntimeSlow},
		},
		{
			"slow and one status hangs",
			[]tweak{takes(3*time.Second, everyRPC()...), statusHangs("container1-0")},
			[]string{codeRuntimeSlow, codeInspectHang},
			[]string{"", codeRuntimeSlow},
		},
		{
			"one status hangs and so does Status",
			[]tweak{hangs(rpcStatus), statusHangs("container1-0")},
			[]string{codeInspectHang, codeCNIHung},
			[]string{"", ""},
		},
		{
			"network not ready and a plugin stuck",
			[]tweak{condition(1, false), processes(stuckCNI)},
			[]string{codeCNIHung, codeNetworkNotReady},
			[]string{"", codeCNIHung},
		},
		{
			"list and status of its holder hang",
			[]tweak{hangs(rpcContainers), statusHangs("container1-0")},
			[]string{codeListHang},
			[]string{""},
		},
		{
			"a list and Status hang",
			[]tweak{hangs(rpcContainers, rpcStatus)},
			[]string{codeListHang, codeCNIHung},
			[]string{"", ""},
		},
		{
			"hung, images too",
			[]tweak{hangs(everyRPC()...)},
			[]string{codeRuntimeHung},
			[]string{""},
		},
		{
			"one status hangs and many are dead",
			[]tweak{exited(2000, 100, 1000), statusHangs("container1-0")},
			[]string{codeInspectHang, codeTooManyExited},
			[]string{"", ""},
		},
		{
			"both conditions are false",
			[]tweak{condition(0, false), condition(1, false)},
			[]string{codeRuntimeNotReady, codeNetworkNotReady},
			[]string{"", ""},
		},
		{
			"large lists are slow because of their size",
			[]tweak{exited(6000, 100, 1000), takes(700*time.Millisecond, rpcSandboxes, rpcContainers)},
			[]string{codeTooManyExited},
			[]string{""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			causes := Judge(node(tt.tweaks...))
			if diff := cmp.Diff(tt.want, codes(causes)); diff != "" {
				t.Fatal(diff)
			}
			var by []string
			for _, c := range causes {
				by = append(by, c.CausedBy)
			}
			if diff := cmp.Diff(tt.causedBy, by); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// statusTakes makes all status calls take so long.
func statusTakes(d time.Duration) tweak {
	return func(f *Facts) {
		for i := range f.Measurement.Sweep.Inspections {
			f.Measurement.Sweep.Inspections[i].Call.Elapsed = d
		}
	}
}
