package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

// everyRPC is all that a runtime is asked once.
func everyRPC() []string {
	return []string{
		facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCImages,
		facts.RPCImageFs,
	}
}

// TestPattern holds one row for each picture that the RPCs of a runtime can make together.
func TestPattern(t *testing.T) {
	stuckCNI := host.Process{
		PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S',
		Started: now().Add(-7 * time.Minute),
	}
	notInitialised := "server is not initialized yet"
	unknownService := "unknown service runtime.v1.RuntimeService"
	tooLarge := "grpc: trying to send message larger than max (26300000 vs. 16777216)"
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string
	}{
		{"all well", nil, []string{}},
		{
			"missing socket",
			[]tweak{socket(crictl.ConnectMissing, "no such file or directory")},
			[]string{causes.RuntimeDown},
		},
		{"refused", []tweak{socket(crictl.ConnectRefused, "connection refused")}, []string{causes.RuntimeDown}},
		{"backlogged", []tweak{socket(crictl.ConnectBacklogged, "")}, []string{causes.RuntimeHung}},
		{"silent", []tweak{socket(crictl.ConnectSilent, "")}, []string{causes.RuntimeHung}},
		{"foreign", []tweak{socket(crictl.ConnectForeign, "")}, []string{causes.RuntimeUnsupported}},
		{"denied", []tweak{socket(crictl.ConnectDenied, "permission denied")}, []string{}},
		{"not a socket", []tweak{socket(crictl.ConnectNotSocket, "")}, []string{}},
		{"everything hangs", []tweak{hangs(everyRPC()...)}, []string{causes.RuntimeHung}},
		{"everything but Version hangs", []tweak{hangs(everyRPC()[1:]...)}, []string{causes.RuntimeHung}},
		{"Version late, the rest not in time", []tweak{
			hangs(everyRPC()[1:]...),
			takes(2*time.Second, facts.RPCVersion),
		}, []string{causes.RuntimeSlow}},
		{"Status hangs", []tweak{hangs(facts.RPCStatus)}, []string{causes.CNIHung}},
		{"CNI plugin stuck", []tweak{processesOf(stuckCNI)}, []string{causes.CNIHung}},
		{"ListContainers hangs", []tweak{hangs(facts.RPCContainers)}, []string{causes.ListHang}},
		{
			"ListContainers and one status hang",
			[]tweak{hangs(facts.RPCContainers), statusHangs("container1-0")},
			[]string{causes.ListHang},
		},
		{"ListPodSandbox hangs, containers not asked", []tweak{hangs(facts.RPCSandboxes)}, []string{causes.ListHang}},
		{
			"both lists hang, Status answers",
			[]tweak{hangs(facts.RPCSandboxes, facts.RPCContainers)},
			[]string{causes.ListHang},
		},
		{"one container's status hangs", []tweak{statusHangs("container1-0")}, []string{causes.InspectHang}},
		{"one sandbox's status hangs", []tweak{statusHangs("sandbox2")}, []string{causes.InspectHang}},
		{"images hang", []tweak{hangs(facts.RPCImages, facts.RPCImageFs)}, []string{causes.ImageServiceHung}},
		{
			"images and one status hang",
			[]tweak{hangs(facts.RPCImages), statusHangs("container1-0")},
			[]string{causes.ImageServiceHung, causes.InspectHang},
		},
		{
			"the list is refused for its size",
			[]tweak{fails(crictl.ResourceExhausted, tooLarge, facts.RPCContainers)},
			[]string{causes.ListTooLarge},
		},
		{"everything is slow", []tweak{takes(3*time.Second, everyRPC()...)}, []string{causes.RuntimeSlow}},
		{
			"Unimplemented",
			[]tweak{fails(crictl.Unimplemented, unknownService, everyRPC()...)},
			[]string{causes.RuntimeUnsupported},
		},
		{
			"starting",
			[]tweak{fails(crictl.Unavailable, notInitialised, everyRPC()[1:]...)},
			[]string{causes.RuntimeNotReady},
		},
		{"gone between the probe and the calls", []tweak{fails(crictl.Unavailable, "connect: connection refused",
			everyRPC()...)}, []string{causes.RuntimeDown}},
		{
			"Status fails",
			[]tweak{fails(crictl.Internal, "boltdb: file is closed", facts.RPCStatus)},
			[]string{causes.RuntimeNotReady},
		},
		{"RuntimeReady=false", []tweak{condition(0, false)}, []string{causes.RuntimeNotReady}},
		{"NetworkReady=false", []tweak{condition(1, false)}, []string{causes.NetworkNotReady}},
		{
			"no conditions",
			[]tweak{func(f *facts.Input) { f.Measurement.Status.Conditions = nil }},
			[]string{causes.RuntimeNotReady},
		},
		{"nothing was asked", []tweak{func(f *facts.Input) { f.Measurement = nil }}, []string{}},
		{"no RPC was reached", []tweak{func(f *facts.Input) {
			f.Measurement.Probes, f.Measurement.Samples = nil,
				nil
		}}, []string{}},
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
	return func(f *facts.Input) {
		c := &f.Measurement.Status.Conditions[n]
		c.Status, c.Reason, c.Message = status, "SomeReason", "cni plugin not\x1b[31m initialized"
	}
}

// TestPairs holds the likely pairs: which cause explains which, and which stand side by side.
func TestPairs(t *testing.T) {
	stuckCNI := host.Process{
		PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S',
		Started: now().Add(-7 * time.Minute),
	}
	for _, tt := range []struct {
		name     string
		tweaks   []tweak
		want     []string
		causedBy []string
	}{
		{
			"exited and too large",
			[]tweak{exited(17000, 100, 1000)},
			[]string{causes.TooManyExited, causes.ListTooLarge},
			[]string{"", causes.TooManyExited},
		},
		{
			"large entries and exited",
			[]tweak{exited(3000, 10, 6000)},
			[]string{causes.ListTooLarge, causes.TooManyExited},
			[]string{"", ""},
		},
		{
			"slow and overloaded",
			[]tweak{pods(100, 2), swept, takes(3*time.Second, everyRPC()...), statusTakes(2500 * time.Millisecond)},
			[]string{causes.RuntimeSlow, causes.RelistOverloaded},
			[]string{"", causes.RuntimeSlow},
		},
		{
			"slow and one status hangs",
			[]tweak{takes(3*time.Second, everyRPC()...), statusHangs("container1-0")},
			[]string{causes.RuntimeSlow, causes.InspectHang},
			[]string{"", causes.RuntimeSlow},
		},
		{
			"one status hangs and so does Status",
			[]tweak{hangs(facts.RPCStatus), statusHangs("container1-0")},
			[]string{causes.InspectHang, causes.CNIHung},
			[]string{"", ""},
		},
		{
			"network not ready and a plugin stuck",
			[]tweak{condition(1, false), processesOf(stuckCNI)},
			[]string{causes.CNIHung, causes.NetworkNotReady},
			[]string{"", causes.CNIHung},
		},
		{
			"list and status of its holder hang",
			[]tweak{hangs(facts.RPCContainers), statusHangs("container1-0")},
			[]string{causes.ListHang},
			[]string{""},
		},
		{
			"a list and Status hang",
			[]tweak{hangs(facts.RPCContainers, facts.RPCStatus)},
			[]string{causes.ListHang, causes.CNIHung},
			[]string{"", ""},
		},
		{
			"hung, images too",
			[]tweak{hangs(everyRPC()...)},
			[]string{causes.RuntimeHung},
			[]string{""},
		},
		{
			"one status hangs and many are dead",
			[]tweak{exited(2000, 100, 1000), statusHangs("container1-0")},
			[]string{causes.InspectHang, causes.TooManyExited},
			[]string{"", ""},
		},
		{
			"both conditions are false",
			[]tweak{condition(0, false), condition(1, false)},
			[]string{causes.RuntimeNotReady, causes.NetworkNotReady},
			[]string{"", ""},
		},
		{
			"large lists are slow because of their size",
			[]tweak{exited(6000, 100, 1000), takes(700*time.Millisecond, facts.RPCSandboxes, facts.RPCContainers)},
			[]string{causes.TooManyExited},
			[]string{""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			if diff := cmp.Diff(tt.want, codes(named)); diff != "" {
				t.Fatal(diff)
			}
			var by []string
			for _, c := range named {
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
	return func(f *facts.Input) {
		for i := range f.Measurement.Sweep.Inspections {
			f.Measurement.Sweep.Inspections[i].Call.Elapsed = d
		}
	}
}
