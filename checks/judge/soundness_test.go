package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// statuses changes the status calls for which pick is true.
func statuses(pick func(n int, i plegbench.Inspection) bool, change func(crictl.Call) crictl.Call) tweak {
	return func(f *facts.Input) {
		for n := range f.Measurement.Sweep.Inspections {
			if in := &f.Measurement.Sweep.Inspections[n]; pick(n, *in) {
				in.Call = change(in.Call)
			}
		}
	}
}

func every(int, plegbench.Inspection) bool { return true }

func containersOnly(_ int, i plegbench.Inspection) bool { return i.Kind == facts.KindContainer }

// withError makes calls come back with an error.
func withError(code crictl.Code, text string) func(crictl.Call) crictl.Call {
	return func(c crictl.Call) crictl.Call {
		c.Code, c.Err = code, text
		return c
	}
}

// pulse is an answer to Version while status calls hang.
func pulse(f *facts.Input) {
	f.Measurement.Liveness = append(f.Measurement.Liveness, call(facts.RPCVersion, "", 3*time.Second, time.Millisecond))
}

// sampleFails makes the container list of some relists fail.
func sampleFails(code crictl.Code, text string, which ...int) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		for _, n := range which {
			m.Samples[n].Containers = withError(code, text)(m.Samples[n].Containers)
		}
		m.Probes[3] = m.Samples[0].Containers
	}
}

// askedBy makes the endpoint another one than the kubelet's, from a source.
func askedBy(source crictl.Source) tweak {
	return func(f *facts.Input) {
		f.Kubelet.Endpoint, f.Runtime.EndpointSource = "unix:///run/crio/crio.sock", string(source)
	}
}

// TestNeverHealthy holds pictures in which the last of each call looks well and the node may not be called so.
func TestNeverHealthy(t *testing.T) {
	const starting, eof = "server is not initialized yet", "error reading from server: EOF"
	firstFive := func(n int, _ plegbench.Inspection) bool { return n < 5 }
	for _, tt := range []struct {
		name    string
		tweaks  []tweak
		want    checks.Verdict
		named   []string
		problem string // of an unknown verdict
		check   string // that is not ok, with its status
	}{
		{
			"all statuses are refused",
			[]tweak{statuses(every, withError(crictl.Unavailable, starting))},
			checks.Unhealthy,
			[]string{causes.RuntimeNotReady},
			"", "runtime.inspect warning",
		},
		{"restarted before the sweep ended", []tweak{statuses(func(n int,
			_ plegbench.Inspection,
		) bool {
			return n >= 5
		}, withError(crictl.Unavailable, starting))}, checks.Unhealthy, []string{causes.RuntimeNotReady}, "", "runtime.inspect warning"},
		{
			"restarted in the sweep",
			[]tweak{statuses(firstFive, withError(crictl.Unavailable, eof))},
			checks.Degraded,
			[]string{causes.RuntimeNotReady},
			"", "runtime.inspect warning",
		},
		{"one shim is gone", []tweak{statuses(func(n int, _ plegbench.Inspection) bool { return n == 4 },
			withError(crictl.Unavailable,
				"ttrpc: closed"))}, checks.Degraded, []string{causes.InspectHang}, "", "runtime.inspect warning"},
		{
			"one relist failed",
			[]tweak{sampleFails(crictl.Unavailable, eof, 1)},
			checks.Degraded,
			[]string{causes.RuntimeNotReady},
			"", "runtime.lists warning",
		},
		{
			"two of three relists failed",
			[]tweak{sampleFails(crictl.Internal, "boltdb: timeout", 0, 1)},
			checks.Degraded,
			[]string{causes.RuntimeNotReady},
			"", "runtime.lists warning",
		},
		{
			"a relist was not allowed",
			[]tweak{sampleFails(crictl.PermissionDenied, "no", 1)},
			checks.Unknown,
			[]string{},
			"the lists of 1 of 3 relists failed", "runtime.lists warning",
		},
		{
			"nothing is found",
			[]tweak{statuses(every, withError(crictl.NotFound, "not found"))},
			checks.Unknown,
			[]string{},
			"lists and statuses disagree: 9 of 9", "runtime.inspect warning",
		},
		{"much is not found", []tweak{
			pods(10, 2), swept,
			statuses(func(n int, _ plegbench.Inspection) bool { return n < 7 },
				withError(crictl.NotFound, "")),
		}, checks.Unknown, []string{}, "7 of 30", "runtime.inspect warning"},
		{"much is not found of much more", []tweak{pods(12, 2), swept, statuses(func(n int,
			_ plegbench.Inspection,
		) bool {
			return n < 7
		}, withError(crictl.NotFound, ""))}, checks.Healthy, []string{}, "", ""},
		{
			"a handful ended",
			[]tweak{statuses(firstFive, withError(crictl.NotFound, ""))},
			checks.Healthy,
			[]string{},
			"", "",
		},
		{
			"another socket, from the environment",
			[]tweak{askedBy(crictl.SourceEnv)},
			checks.Unknown,
			[]string{},
			"another endpoint: unix:///run/crio/crio.sock", "runtime.endpoint warning",
		},
		{
			"another socket, well-known",
			[]tweak{askedBy(crictl.SourceWellKnown)},
			checks.Unknown,
			[]string{},
			"another endpoint", "runtime.endpoint warning",
		},
		{
			"another socket, on purpose",
			[]tweak{askedBy(crictl.SourceFlag)},
			checks.Healthy,
			[]string{},
			"another endpoint", "runtime.endpoint warning",
		},
		{"the kubelet's endpoint is none", []tweak{
			askedBy(crictl.SourceWellKnown),
			func(f *facts.Input) { f.Kubelet.Endpoint = "unix://unix:///run/x.sock" },
		}, checks.Unknown, []string{}, `was given the endpoint "unix://unix:///run/x.sock", which has unix:// twice`, "runtime.endpoint warning"},
		{"simulated", []tweak{askedBy(crictl.SourceSimulated)}, checks.Healthy, []string{}, "", ""},
		{
			"another socket, down",
			[]tweak{socket(crictl.ConnectRefused, ""), askedBy(crictl.SourceEnv)},
			checks.Unhealthy,
			[]string{causes.RuntimeDown},
			"", "",
		},
		{
			"Version fails",
			[]tweak{fails(crictl.Internal, "x", facts.RPCVersion)},
			checks.Degraded,
			[]string{causes.RuntimeNotReady},
			"", "runtime.version critical",
		},
		{
			"Version is not allowed",
			[]tweak{fails(crictl.PermissionDenied, "x", facts.RPCVersion)},
			checks.Unknown,
			[]string{},
			"Version failed", "runtime.version critical",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweaks...)
			r := NewReport(checks.Header{}, f)
			if diff := cmp.Diff(tt.named, codes(r.Causes)); diff != "" {
				t.Error(diff)
			}
			if r.Status != tt.want {
				t.Errorf("%s, want %s", r.Status, tt.want)
			}
			if tt.problem != "" && !mentions(r.Problems, tt.problem) {
				t.Errorf("problems %q, want %q", r.Problems, tt.problem)
			}
			if n := len(r.Problems); n > 1 && r.Problems[n-1] == r.Problems[n-2] {
				t.Errorf("said twice: %q", r.Problems)
			}
			if tt.check == "" {
				return
			}
			if !slices.ContainsFunc(r.Checks,
				func(c checks.Result) bool { return c.ID+" "+string(c.Status) == tt.check }) {
				t.Errorf("no check is %q", tt.check)
			}
		})
	}
}

// TestProjectionCheck holds what is said of a relist when the time of a status call is not known.
func TestProjectionCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   checks.Status
	}{
		{"all well", nil, checks.StatusOK},
		{"no pods", []tweak{pods(0, 0), swept}, checks.StatusOK},
		{"no sweep", []tweak{func(f *facts.Input) { f.Measurement.Sweep = plegbench.Sweep{} }}, checks.StatusUnknown},
		{
			"all refused",
			[]tweak{statuses(every, withError(crictl.Unavailable, "server is not initialized yet"))},
			checks.StatusUnknown,
		},
		{"all hang", []tweak{statuses(every, lost)}, checks.StatusCritical},
		{"lists alone are too slow", []tweak{
			func(f *facts.Input) { f.Measurement.Sweep = plegbench.Sweep{} },
			takes(50*time.Second, facts.RPCSandboxes, facts.RPCContainers),
		}, checks.StatusCritical},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := lineOf(node(tt.tweaks...), "relist.projection"); r.Status != tt.want {
				t.Errorf("%s: %s, want %s", r.Status, r.Summary, tt.want)
			}
		})
	}
}

// TestProcessStates holds the states of each role's processes.
func TestProcessStates(t *testing.T) {
	for _, tt := range []struct {
		role    host.Role
		state   byte
		lasting bool
		want    checks.Status
	}{
		{host.RoleRuntime, 'S', false, checks.StatusOK},
		{host.RoleRuntime, 'T', false, checks.StatusCritical},
		{host.RoleRuntime, 'D', true, checks.StatusCritical},
		{host.RoleRuntime, 'D', false, checks.StatusWarning},
		{host.RoleShim, 'D', false, checks.StatusWarning},
		{host.RoleShim, 'S', false, checks.StatusOK},
		{host.RoleOCI, 'D', false, checks.StatusWarning},
		{host.RoleCNI, 'D', false, checks.StatusWarning},
		{host.RoleKubelet, 'D', false, checks.StatusWarning},
		{host.RoleKubelet, 'T', false, checks.StatusWarning},
		{host.RoleKubelet, 'S', false, checks.StatusOK},
	} {
		p := host.Process{
			PID: 7, Name: "p", Role: tt.role, State: tt.state, Lasting: tt.lasting,
			Started: now().Add(-time.Second),
		}
		f := node(func(f *facts.Input) { f.Measurement.Connect.PeerPID, f.Processes = p.PID, append(f.Processes, p) })
		if r := lineOf(f, "host.processes"); r.Status != tt.want {
			t.Errorf("%s in %c: %s (%s), want %s", tt.role, tt.state, r.Status, r.Summary, tt.want)
		}
	}
	// One beside the runtime that was asked and answered stops no pod of this node's.
	docker := host.Process{PID: 7, Name: "dockerd", Role: host.RoleRuntime, State: 'T'}
	if r := lineOf(node(func(f *facts.Input) { f.Processes = append(f.Processes, docker) }),
		"host.processes"); r.Status != checks.StatusWarning {
		t.Errorf("another runtime: %s (%s), want a warning", r.Status, r.Summary)
	}
}

// TestPulseTellsObjectsFromDaemon holds hangs of many objects on a daemon whose Version is answered meanwhile.
func TestPulseTellsObjectsFromDaemon(t *testing.T) {
	dead := func(_ int, i plegbench.Inspection) bool { return i.State == "exited" }
	latePulse := func(f *facts.Input) {
		f.Measurement.Liveness = append(f.Measurement.Liveness,
			call(facts.RPCVersion, "", 10*time.Second, time.Millisecond))
	}
	for _, tt := range []struct {
		name     string
		tweaks   []tweak
		want     []string
		causedBy string // of the last cause
		summary  string // of the last cause
	}{
		{
			"exited containers, asked last",
			[]tweak{exited(4, 1, 1000), swept, statuses(dead, lost), pulse},
			[]string{causes.InspectHang},
			"", "batch/report-0 (job) and 3 other objects does not come; everything " +
				"else answers",
		},
		{
			"the same without a pulse",
			[]tweak{exited(4, 1, 1000), swept, statuses(dead, lost)},
			[]string{causes.RuntimeHung},
			"", "stopped answering",
		},
		{
			"the same, and it went on",
			[]tweak{exited(4, 1, 1000), swept, statuses(dead, lost), latePulse},
			[]string{causes.RuntimeSlow},
			"", "and then goes on",
		},
		{"containers and images", []tweak{
			hangs(facts.RPCImages, facts.RPCImageFs), statuses(containersOnly, lost),
			pulse,
		}, []string{causes.ImageServiceHung, causes.InspectHang}, causes.ImageServiceHung, "no ContainerStatus call is answered: 6 of 9"},
		{"many containers and images", []tweak{
			pods(20, 2), swept, hangs(facts.RPCImages, facts.RPCImageFs),
			statuses(containersOnly, lost), pulse,
		}, []string{causes.ImageServiceHung, causes.InspectHang}, causes.ImageServiceHung, "40 of 60"},
		{"sandboxes too, and images", []tweak{
			pods(20, 2), swept, hangs(facts.RPCImages, facts.RPCImageFs),
			statuses(every, lost), pulse,
		}, []string{causes.RuntimeHung}, "", "no status call does"},
		{
			"everything in three pods",
			[]tweak{statuses(every, lost), pulse},
			[]string{causes.RuntimeHung},
			"",
			"answer from memory, no status call does",
		},
		{
			"everything in two pods",
			[]tweak{pods(2, 1), swept, statuses(every, lost), pulse},
			[]string{causes.RuntimeHung},
			"", "no status call does",
		},
		{
			"everything in one pod",
			[]tweak{pods(1, 2), swept, statuses(every, lost), pulse},
			[]string{causes.InspectHang},
			"", "no status call is answered: 3 of 3 hang",
		},
		{"half, in two pods", []tweak{statuses(func(_ int,
			i plegbench.Inspection,
		) bool {
			return i.Pod.UID != "uid-0"
		}, lost), pulse}, []string{causes.InspectHang}, "", "6 of 9 status calls do not come"},
		{
			"one, and images",
			[]tweak{hangs(facts.RPCImages), statusHangs("container1-0"), pulse},
			[]string{causes.ImageServiceHung, causes.InspectHang},
			causes.ImageServiceHung, "that of others does",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			if diff := cmp.Diff(tt.want, codes(named)); diff != "" {
				t.Fatal(diff)
			}
			last := named[len(named)-1]
			if last.CausedBy != tt.causedBy || !strings.Contains(last.Summary, tt.summary) {
				t.Errorf("caused by %q, summary %q", last.CausedBy, last.Summary)
			}
		})
	}
}

// TestShortDeadlineIsNotSure compares each hang under a deadline that may be too short with the same under the usual
// one.
func TestShortDeadlineIsNotSure(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		code   string
	}{
		{"runtime", []tweak{hangs(everyRPC()...)}, causes.RuntimeHung},
		{"silent", []tweak{socket(crictl.ConnectSilent, "")}, causes.RuntimeHung},
		{"list", []tweak{hangs(facts.RPCContainers)}, causes.ListHang},
		{"both lists", []tweak{hangs(facts.RPCSandboxes, facts.RPCContainers)}, causes.ListHang},
		{"holder", []tweak{hangs(facts.RPCContainers), statusHangs("container1-0")}, causes.ListHang},
		{"object", []tweak{statusHangs("container1-0")}, causes.InspectHang},
	} {
		t.Run(tt.name, func(t *testing.T) {
			usual := only(t, node(tt.tweaks...), tt.code)
			short := only(t, node(append(tt.tweaks,
				func(f *facts.Input) { f.Limits.RPCTimeout = 500 * time.Millisecond })...), tt.code)
			if short.Severity != checks.Critical || short.Confidence >= usual.Confidence ||
				short.Confidence > checks.Fair {
				t.Errorf("%s %.2f, with time %.2f", short.Severity, short.Confidence, usual.Confidence)
			}
			if !mentions(short.Evidence.Missing, "500ms cannot tell slow from hung") ||
				mentions(usual.Evidence.Missing, "cannot tell") {
				t.Errorf("missing %q, with time %q", short.Evidence.Missing, usual.Evidence.Missing)
			}
			for _, word := range []string{"deadlocked", "lock is held:", "lock on"} {
				if strings.Contains(short.Summary, word) || mentions(short.Evidence.For, word) {
					t.Errorf("%q is said for sure: %q, %q", word, short.Summary, short.Evidence.For)
				}
			}
			if tt.code != causes.RuntimeHung && !mentions(usual.Evidence.Missing,
				"the kubelet's own deadline of 2m: kdiag waited 5s") {
				t.Errorf("missing %q", usual.Evidence.Missing)
			}
		})
	}
	stopped := only(t, node(socket(crictl.ConnectSilent, ""), daemonIn('T', ""),
		func(f *facts.Input) { f.Limits.RPCTimeout = 500 * time.Millisecond }), causes.RuntimeHung)
	if stopped.Confidence <= checks.Fair {
		t.Errorf("a stopped process is seen, whatever the deadline: %.2f", stopped.Confidence)
	}
}

// TestImageCallsAlone holds which of the two image calls makes what.
func TestImageCallsAlone(t *testing.T) {
	for _, tt := range []struct {
		names    []string
		severity checks.Severity
		check    checks.Status
		blind    bool // the disk is not watched
	}{
		{[]string{facts.RPCImages}, checks.Warning, checks.StatusWarning, false},
		{[]string{facts.RPCImageFs}, checks.Critical, checks.StatusCritical, true},
		{[]string{facts.RPCImages, facts.RPCImageFs}, checks.Critical, checks.StatusCritical, true},
	} {
		f := node(hangs(tt.names...))
		c := only(t, f, causes.ImageServiceHung)
		if c.Severity != tt.severity || strings.Contains(c.Summary, "disk is not watched") != tt.blind {
			t.Errorf("%v: %s, %q", tt.names, c.Severity, c.Summary)
		}
		if r := lineOf(f, "image.service"); r.Status != tt.check {
			t.Errorf("%v: %s", tt.names, r.Status)
		}
	}
}
