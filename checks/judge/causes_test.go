package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// A scenario is a node that shows something, and what the judge finds.
type scenario struct {
	name   string
	want   string // as finds writes it
	tweaks []tweak
}

func row(name, want string, tweaks ...tweak) scenario { return scenario{name, want, tweaks} }

// finds writes the verdict, and each cause with its severity and root:
// unhealthy: FilesystemHung critical; TaskStuck critical < FilesystemHung.
func finds(f *facts.Input) string {
	r := NewReport(checks.Header{}, f)
	var words []string
	for _, c := range r.Causes {
		w := c.Code + " " + string(c.Severity)
		if c.CausedBy != "" {
			w += " < " + c.CausedBy
		}
		words = append(words, w)
	}
	return strings.TrimSuffix(string(r.Status)+": "+strings.Join(words, "; "), ": ")
}

func judgeAll(t *testing.T, rows []scenario) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, finds(node(tt.tweaks...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// everyRPC is all that a runtime is asked once.
func everyRPC() []string {
	return []string{
		facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCImages, facts.RPCImageFs,
	}
}

func lists() []string { return []string{facts.RPCSandboxes, facts.RPCContainers} }

// condition sets the status of one of the two conditions.
func condition(n int, status bool) tweak {
	return func(f *facts.Input) {
		c := &f.Measurement.Status.Conditions[n]
		c.Status, c.Reason, c.Message = status, "SomeReason", "cni plugin not\x1b[31m initialized"
	}
}

// input and series make tweaks of functions.
func input(change func(*facts.Input)) tweak { return change }

func series(change func(*plegbench.Measurement)) tweak {
	return func(f *facts.Input) { change(f.Measurement) }
}

// stuckCNI is a CNI plugin that has been running for so long.
func stuckCNI(age time.Duration) tweak {
	return processesOf(host.Process{PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S', Started: now().Add(-age)})
}

const (
	notInitialised = "server is not initialized yet"
	readingEOF     = "error reading from server: EOF"
	unknownService = "unknown service runtime.v1.RuntimeService"
	tooLarge       = "grpc: trying to send message larger than max (26300000 vs. 16777216)"
)

// TestPatterns holds what the answers of a runtime show together.
func TestPatterns(t *testing.T) {
	judgeAll(t, []scenario{
		row("all well", "healthy"),
		row("no pods", "healthy", pods(0, 0), sweep),
		row("socket missing", "unhealthy: RuntimeDown critical",
			socket(crictl.ConnectMissing, "no such file or directory")),
		row("refused", "unhealthy: RuntimeDown critical", socket(crictl.ConnectRefused, "connection refused")),
		row("backlogged", "unhealthy: RuntimeHung critical", socket(crictl.ConnectBacklogged, "")),
		row("silent", "unhealthy: RuntimeHung critical", socket(crictl.ConnectSilent, "")),
		row("foreign", "unhealthy: RuntimeUnsupported critical", socket(crictl.ConnectForeign, "")),
		row("denied", "unknown", socket(crictl.ConnectDenied, "permission denied")),
		row("not a socket", "unknown", socket(crictl.ConnectNotSocket, "")),
		row("everything hangs", "unhealthy: RuntimeHung critical", hangs(everyRPC()...)),
		row("everything but Version hangs", "unhealthy: RuntimeHung critical", hangs(everyRPC()[1:]...)),
		row("Version late, the rest not in time", "unhealthy: RuntimeSlow critical", hangs(everyRPC()[1:]...),
			takes(2*time.Second, facts.RPCVersion)),
		row("Status hangs", "unhealthy: CNIHung critical", hangs(facts.RPCStatus)),
		row("ListContainers hangs", "unhealthy: ListHang critical", hangs(facts.RPCContainers)),
		row("ListContainers and one status hang", "unhealthy: ListHang critical", hangs(facts.RPCContainers),
			statusHangs("container1-0")),
		row("ListPodSandbox hangs", "unhealthy: ListHang critical", hangs(facts.RPCSandboxes)),
		row("both lists hang, Status answers", "unhealthy: ListHang critical", hangs(lists()...)),
		row("a list and Status hang", "unhealthy: ListHang critical; CNIHung critical",
			hangs(facts.RPCContainers, facts.RPCStatus)),
		row("one container's status hangs", "unhealthy: InspectHang critical", statusHangs("container1-0")),
		row("one sandbox's status hangs", "unhealthy: InspectHang critical", statusHangs("sandbox2")),
		row("one status hangs and so does Status", "unhealthy: InspectHang critical; CNIHung critical",
			hangs(facts.RPCStatus), statusHangs("container1-0")),
		row("image calls hang", "unhealthy: ImageServiceHung critical", hangs(facts.RPCImages, facts.RPCImageFs)),
		row("ListImages hangs alone", "degraded: ImageServiceHung warning", hangs(facts.RPCImages)),
		row("ImageFsInfo hangs alone", "unhealthy: ImageServiceHung critical", hangs(facts.RPCImageFs)),
		row("images and one status hang",
			"unhealthy: ImageServiceHung critical; InspectHang critical < ImageServiceHung", hangs(facts.RPCImages),
			statusHangs("container1-0")),
		row("the list is refused for its size", "unhealthy: ListTooLarge critical",
			fails(crictl.ResourceExhausted, tooLarge, facts.RPCContainers)),
		row("everything is slow", "unhealthy: RuntimeSlow critical", takes(3*time.Second, everyRPC()...)),
		row("slow and one status hangs", "unhealthy: RuntimeSlow critical; InspectHang critical < RuntimeSlow",
			takes(3*time.Second, everyRPC()...), statusHangs("container1-0")),
		row("slow and overloaded", "unhealthy: RuntimeSlow critical; RelistOverloaded critical < RuntimeSlow",
			pods(100, 2), sweep, takes(3*time.Second, everyRPC()...), statusTakes(2500*time.Millisecond)),
		row("Unimplemented", "unhealthy: RuntimeUnsupported critical",
			fails(crictl.Unimplemented, unknownService, everyRPC()...)),
		row("starting", "unhealthy: RuntimeNotReady critical",
			fails(crictl.Unavailable, notInitialised, everyRPC()[1:]...)),
		row("gone between probe and calls", "unhealthy: RuntimeDown critical",
			fails(crictl.Unavailable, "connect: connection refused", everyRPC()...)),
		row("went away in the sweep", "unhealthy: RuntimeDown critical",
			statuses(every, withError(crictl.Unavailable, readingEOF))),
		row("Status fails", "unhealthy: RuntimeNotReady critical",
			fails(crictl.Internal, "boltdb: file is closed", facts.RPCStatus)),
		row("Version fails", "degraded: RuntimeNotReady warning", fails(crictl.Internal, "x", facts.RPCVersion)),
		row("Version is not allowed", "unknown", fails(crictl.PermissionDenied, "x", facts.RPCVersion)),
		row("RuntimeReady=false", "unhealthy: RuntimeNotReady critical", condition(0, false)),
		row("NetworkReady=false", "unhealthy: NetworkNotReady critical", condition(1, false)),
		row("both conditions are false", "unhealthy: RuntimeNotReady critical; NetworkNotReady critical",
			condition(0, false), condition(1, false)),
		row("network not ready and a plugin stuck", "unhealthy: CNIHung critical; NetworkNotReady critical < CNIHung",
			condition(1, false), stuckCNI(7*time.Minute)),
		row("no conditions", "unhealthy: RuntimeNotReady critical",
			series(func(m *plegbench.Measurement) { m.Status.Conditions = nil })),
		row("nothing was asked", "unknown", input(func(f *facts.Input) { f.Measurement = nil })),
		row("no RPC was reached", "unknown", series(func(m *plegbench.Measurement) { m.Probes, m.Samples = nil, nil })),
		row("interrupted", "unknown", interrupted),
		row("down and interrupted", "unhealthy: RuntimeDown critical", socket(crictl.ConnectRefused, ""), interrupted),
		row("a warning, and interrupted", "degraded: TooManyExited warning", exited(1000, 10, 1000), interrupted),
		row("another socket, from the environment", "unknown", askedBy(crictl.SourceEnv)),
		row("another socket, on purpose", "healthy", askedBy(crictl.SourceFlag)),
		row("another socket, down", "unhealthy: RuntimeDown critical", socket(crictl.ConnectRefused, ""),
			askedBy(crictl.SourceEnv)),
		row("simulated", "healthy", askedBy(crictl.SourceSimulated)),
		row("exited and too large", "unhealthy: TooManyExited critical; ListTooLarge critical < TooManyExited",
			exited(17000, 100, 1000)),
		row("large entries and exited", "unhealthy: ListTooLarge critical; TooManyExited critical",
			exited(3000, 10, 6000)),
		row("one status hangs and many are dead", "unhealthy: InspectHang critical; TooManyExited warning",
			exited(2000, 100, 1000), statusHangs("container1-0")),
		row("large lists are slow because of their size", "degraded: TooManyExited warning", exited(6000, 100, 1000),
			takes(700*time.Millisecond, lists()...)),
		row("entries of 2 KiB on average", "unhealthy: TooManyExited critical; ListTooLarge critical < TooManyExited",
			exited(17000, 100, 1000), meanEntry(2048)),
		row("entries of more", "unhealthy: ListTooLarge critical; TooManyExited critical", exited(17000, 100, 1000),
			meanEntry(2049)),
		row("a list that the kubelet streams is over", "degraded: ListTooLarge warning", exited(800, 1, 30000),
			streams),
		row("sandboxes with large annotations", "unhealthy: ListTooLarge critical", func(f *facts.Input) {
			for i := range f.Measurement.Sandboxes.Sandboxes {
				f.Measurement.Sandboxes.Sandboxes[i].Size = 5 << 20
			}
			measureLists(f)
		}),
		row("ttrpc of the kubelet's", "unhealthy: RuntimeUnsupported critical", ttrpc(crictl.SourceKubelet)),
		row("ttrpc that a person named", "unknown", ttrpc(crictl.SourceFlag)),
	})
}

func meanEntry(bytes float64) tweak {
	return figures(func(s *plegbench.Summary) { s.BytesPerContainer = &bytes })
}

// streams makes the kubelet get its lists as streams.
func streams(f *facts.Input) {
	f.Kubelet.CRIListStreaming, f.Measurement.Containers.Mode = true, crictl.ModeStream
}

func interrupted(f *facts.Input) { f.Measurement.Interrupted = "interrupted by a signal" }

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

// first picks the status calls before the n-th.
func first(n int) func(int, plegbench.Inspection) bool {
	return func(i int, _ plegbench.Inspection) bool { return i < n }
}

func containersOnly(_ int, i plegbench.Inspection) bool { return i.Kind == facts.KindContainer }

// withError makes calls come back with an error.
func withError(code crictl.Code, text string) func(crictl.Call) crictl.Call {
	return func(c crictl.Call) crictl.Call {
		c.Code, c.Err = code, text
		return c
	}
}

// statusTakes makes all status calls take so long.
func statusTakes(d time.Duration) tweak {
	return statuses(every, func(c crictl.Call) crictl.Call { c.Elapsed = d; return c })
}

// versionAt is an answer to Version while status calls hang.
func versionAt(at time.Duration) tweak {
	return func(f *facts.Input) {
		f.Measurement.Liveness = append(f.Measurement.Liveness, call(facts.RPCVersion, "", at, time.Millisecond))
	}
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

// frozenBetween makes every call hang that starts between two moments since the start.
func frozenBetween(from, to time.Duration) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		during := func(c crictl.Call) bool { return c.Start.Sub(m.Started) >= from && c.Start.Sub(m.Started) < to }
		for i := range m.Samples {
			s := &m.Samples[i]
			switch {
			case during(s.Sandboxes):
				s.Sandboxes, s.Containers = lost(s.Sandboxes), crictl.Call{}
			case during(s.Containers):
				s.Containers = lost(s.Containers)
			}
		}
		statuses(func(_ int, i plegbench.Inspection) bool { return during(i.Call) }, lost)(f)
	}
}

// stoppedSeries is a daemon that is stopped while a series of relists runs: one list hangs, and so does the Version
// that is asked beside it.
func stoppedSeries(recovers bool) tweak {
	return func(f *facts.Input) {
		m, at := f.Measurement, now()
		hang := func(method string, at time.Time) crictl.Call {
			return crictl.Call{Method: method, Start: at, Elapsed: time.Second, Code: crictl.DeadlineExceeded}
		}
		m.Samples = append(m.Samples, plegbench.Sample{At: at, Sandboxes: hang(facts.RPCSandboxes, at)})
		m.Liveness = []crictl.Call{hang(facts.RPCVersion, at.Add(time.Second/2))}
		m.Sweep = plegbench.Sweep{Total: m.Sweep.Total}
		if recovers {
			ok := call(facts.RPCSandboxes, "", 5*time.Second, time.Millisecond)
			m.Samples = append(m.Samples, plegbench.Sample{At: ok.Start, Sandboxes: ok, Containers: ok})
		}
	}
}

// TestObjectsOrDaemon tells hangs of single objects from those of the daemon.
func TestObjectsOrDaemon(t *testing.T) {
	dead := func(_ int, i plegbench.Inspection) bool { return i.State == "exited" }
	other := func(_ int, i plegbench.Inspection) bool { return i.Pod.UID != "uid-0" }
	images := hangs(facts.RPCImages, facts.RPCImageFs)
	version := versionAt(3 * time.Second)
	late := statuses(func(_ int, i plegbench.Inspection) bool { return strings.HasPrefix(i.ID, "container2") },
		func(c crictl.Call) crictl.Call { c.Start = c.Start.Add(10 * time.Second); return c })
	twenty := statuses(first(20), lost)
	docker := host.Process{PID: 900, Name: "dockerd", Role: host.RoleRuntime, State: 'T'}
	judgeAll(t, []scenario{
		row("exited containers, asked last", "unhealthy: InspectHang critical", exited(4, 1, 1000), sweep,
			statuses(dead, lost), version),
		row("the same, and Version was not asked", "unhealthy: RuntimeHung critical", exited(4, 1, 1000), sweep,
			statuses(dead, lost)),
		row("the same, and it went on", "unhealthy: RuntimeSlow critical", exited(4, 1, 1000), sweep,
			statuses(dead, lost), versionAt(10*time.Second)),
		row("containers and images", "unhealthy: ImageServiceHung critical; InspectHang critical < ImageServiceHung",
			images, statuses(containersOnly, lost), version),
		row("many containers and images",
			"unhealthy: ImageServiceHung critical; InspectHang critical < ImageServiceHung", pods(20, 2), sweep, images,
			statuses(containersOnly, lost), version),
		row("sandboxes too, and images", "unhealthy: RuntimeHung critical", pods(20, 2), sweep, images,
			statuses(every, lost), version),
		row("everything in three pods", "unhealthy: RuntimeHung critical", statuses(every, lost), version),
		row("everything in two pods", "unhealthy: RuntimeHung critical", pods(2, 1), sweep, statuses(every, lost),
			version),
		row("everything in one pod", "unhealthy: InspectHang critical", pods(1, 2), sweep, statuses(every, lost),
			version),
		row("half, in two pods", "unhealthy: InspectHang critical", statuses(other, lost), version),
		row("20 of 30", "unhealthy: InspectHang critical", pods(10, 2), sweep, twenty, version),
		row("21 of 30", "unhealthy: RuntimeHung critical", pods(10, 2), sweep, statuses(first(21), lost), version),
		row("21 of 90", "unhealthy: InspectHang critical", pods(30, 2), sweep, statuses(first(21), lost), version),
		row("frozen in the sweep", "unhealthy: RuntimeHung critical", frozenBetween(time.Second, time.Hour)),
		row("frozen between relists", "unhealthy: RuntimeHung critical",
			frozenBetween(300*time.Millisecond, time.Hour)),
		row("frozen for a while", "unhealthy: RuntimeSlow critical", late, frozenBetween(time.Second, 5*time.Second)),
		row("all of one pod, nobody else left", "unhealthy: InspectHang critical",
			statusHangs("sandbox2", "container2-0", "container2-1")),
		row("stopped in a series of relists", "unhealthy: RuntimeHung critical", stoppedSeries(false)),
		row("stopped in a series, and goes on", "unhealthy: RuntimeSlow critical", stoppedSeries(true)),
		row("another stopped runtime beside", "unhealthy: RuntimeHung critical", hangs(everyRPC()...),
			input(func(f *facts.Input) { f.Processes = append(f.Processes, docker) })),
		row("one status fails", "degraded: InspectHang warning",
			statuses(first(1), withError(crictl.Internal, "bucket\x07 missing"))),
		row("one status is slow", "degraded: InspectHang warning",
			statuses(first(1), func(c crictl.Call) crictl.Call { c.Elapsed = 3 * time.Second; return c })),
		row("one shim is gone", "degraded: InspectHang warning",
			statuses(first(1), withError(crictl.Unavailable, "ttrpc: closed"))),
		row("all statuses are refused", "unhealthy: RuntimeNotReady critical",
			statuses(every, withError(crictl.Unavailable, notInitialised))),
		row("restarted before the sweep ended", "unhealthy: RuntimeNotReady critical",
			statuses(func(n int, _ plegbench.Inspection) bool { return n >= 5 }, withError(crictl.Unavailable, notInitialised))),
		row("restarted in the sweep", "degraded: RuntimeNotReady warning",
			statuses(first(5), withError(crictl.Unavailable, readingEOF))),
		row("one is not found", "healthy", statuses(first(1), withError(crictl.NotFound, ""))),
		row("a handful is not found", "healthy", statuses(first(5), withError(crictl.NotFound, ""))),
		row("nothing is found", "unknown", statuses(every, withError(crictl.NotFound, "not found"))),
		row("much is not found", "unknown", pods(10, 2), sweep, statuses(first(7), withError(crictl.NotFound, ""))),
		row("the same of much more", "healthy", pods(12, 2), sweep, statuses(first(7), withError(crictl.NotFound, ""))),
		row("calls were cut short", "unknown", statuses(every, withError(crictl.Canceled, ""))),
		row("one relist failed", "degraded: RuntimeNotReady warning", sampleFails(crictl.Unavailable, readingEOF, 1)),
		row("two of three relists failed", "degraded: RuntimeNotReady warning",
			sampleFails(crictl.Internal, "boltdb: timeout", 0, 1)),
		row("a relist was not allowed", "unknown", sampleFails(crictl.PermissionDenied, "no", 1)),
		row("no sweep", "unknown", noSweep),
	})
}

func noSweep(f *facts.Input) { f.Measurement.Sweep = plegbench.Sweep{} }

// TestLimits tries each limit for the runtime from both sides: just below, and at it.
func TestLimits(t *testing.T) {
	fill := func(share float64) tweak {
		return figures(func(s *plegbench.Summary) { s.ResponseBytes = new(int(share * float64(s.ResponseLimitBytes))) })
	}
	cold := func(d time.Duration) tweak {
		return figures(func(s *plegbench.Summary) { s.ColdSeconds = new(d.Seconds()) })
	}
	age := func(d time.Duration) tweak {
		return figures(func(s *plegbench.Summary) { s.ProjectedAgeSeconds = new(d.Seconds()) })
	}
	dead := func(n int) tweak { return figures(func(s *plegbench.Summary) { s.Sandboxes.NotReady = n }) }
	list := func(d time.Duration) tweak { return takes(d/2, lists()...) }
	none := input(func(f *facts.Input) { f.Limits = checks.Limits{} })
	evented := input(func(f *facts.Input) { f.Kubelet.EventedPLEG = true })
	judgeAll(t, []scenario{
		row("SlowList below", "healthy", list(998*time.Millisecond)),
		row("SlowList at", "degraded: RuntimeSlow warning", list(time.Second)),
		row("VerySlowList below", "degraded: RuntimeSlow warning", list(9998*time.Millisecond)),
		row("VerySlowList at", "unhealthy: RuntimeSlow critical", list(10*time.Second)),
		row("all slow, below half the deadline", "degraded: RuntimeSlow warning", takes(time.Second, everyRPC()...)),
		row("all slow, at half the deadline", "unhealthy: RuntimeSlow critical",
			takes(1250*time.Millisecond, everyRPC()...)),
		row("SlowStatus below", "healthy", statusTakes(1999*time.Millisecond)),
		row("SlowStatus at", "degraded: RuntimeSlow warning", statusTakes(2*time.Second)),
		row("ExitedWarning below", "healthy", exited(999, 10, 1000)),
		row("ExitedWarning at", "degraded: TooManyExited warning", exited(1000, 10, 1000)),
		row("ExitedCritical below", "degraded: TooManyExited warning", exited(9999, 10, 500)),
		row("ExitedCritical at", "unhealthy: TooManyExited critical", exited(10000, 10, 500)),
		row("DeadSandboxes below", "healthy", dead(999)),
		row("DeadSandboxes at", "degraded: TooManyExited warning", dead(1000)),
		row("SizeWarning below", "healthy", fill(0.499)),
		row("SizeWarning at", "degraded: ListTooLarge warning", fill(0.5)),
		row("SizeCritical below", "degraded: ListTooLarge warning", fill(0.799)),
		row("SizeCritical at", "unhealthy: ListTooLarge critical", fill(0.8001)),
		row("RelistWarning below", "healthy", cold(59900*time.Millisecond)),
		row("RelistWarning at", "degraded: RelistOverloaded warning", cold(time.Minute)),
		row("PLEG threshold at", "healthy", age(3*time.Minute)),
		row("PLEG threshold over", "unhealthy: RelistOverloaded critical", age(3*time.Minute+time.Second)),
		row("evented, its period", "healthy", evented),
		row("evented, cold", "degraded: RelistOverloaded warning", evented, cold(240*time.Second)),
		row("evented, PLEG threshold over", "unhealthy: RelistOverloaded critical", evented, age(700*time.Second)),
		row("CNIPluginTooLong below", "healthy", stuckCNI(59*time.Second)),
		row("CNIPluginTooLong at", "degraded: CNIHung warning", stuckCNI(time.Minute)),
		row("no limits at all", "healthy", none, list(20*time.Second), exited(20000, 10, 500)),
		row("a short deadline on a quick runtime", "healthy", rpcTimeout(50*time.Millisecond),
			list(40*time.Millisecond)),
	})
}

func rpcTimeout(d time.Duration) tweak { return func(f *facts.Input) { f.Limits.RPCTimeout = d } }

// TestOverloadedOnce has a few slow calls among many quick ones.
func TestOverloadedOnce(t *testing.T) {
	slow := func(n int, _ plegbench.Inspection) bool { return n%4 == 0 }
	judgeAll(t, []scenario{
		row("a quarter takes 300 ms", "degraded: RelistOverloaded warning", pods(300, 3), sweep,
			statuses(slow, func(c crictl.Call) crictl.Call { c.Elapsed = 300 * time.Millisecond; return c })),
	})
}

// TestShortDeadlineIsNotSure compares each hang under a deadline that may be too short with the same under the usual
// one.
func TestShortDeadlineIsNotSure(t *testing.T) {
	for _, tt := range []scenario{
		row("runtime", "RuntimeHung", hangs(everyRPC()...)),
		row("silent", "RuntimeHung", socket(crictl.ConnectSilent, "")),
		row("list", "ListHang", hangs(facts.RPCContainers)),
		row("both lists", "ListHang", hangs(lists()...)),
		row("list and status", "ListHang", hangs(facts.RPCContainers), statusHangs("container1-0")),
		row("object", "InspectHang", statusHangs("container1-0")),
	} {
		t.Run(tt.name, func(t *testing.T) {
			usual := only(t, node(tt.tweaks...), tt.want)
			short := only(t, node(append(slices.Clone(tt.tweaks), rpcTimeout(500*time.Millisecond))...), tt.want)
			if short.Severity != checks.Critical || short.Confidence >= usual.Confidence ||
				short.Confidence > checks.Fair {
				t.Errorf("%s %.2f, with time %.2f", short.Severity, short.Confidence, usual.Confidence)
			}
			if len(short.Evidence.Missing) == 0 {
				t.Error("nothing is missing")
			}
		})
	}
	stopped := only(t, node(socket(crictl.ConnectSilent, ""), daemonIn('T', ""), rpcTimeout(500*time.Millisecond)),
		"RuntimeHung")
	if stopped.Confidence <= checks.Fair {
		t.Errorf("a stopped process is seen, whatever the deadline: %.2f", stopped.Confidence)
	}
}

// only returns the one cause that facts must have.
func only(t *testing.T, f *facts.Input, code string) checks.Cause {
	t.Helper()
	named := Judge(f)
	if diff := cmp.Diff([]string{code}, codes(named)); diff != "" {
		t.Fatal(diff)
	}
	return named[0]
}

// mentions reports whether a line holds all words.
func mentions(lines []string, words ...string) bool {
	return slices.ContainsFunc(lines, func(l string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l, w) })
	})
}

// TestSubjects holds who is named as the culprit, and who beside it.
func TestSubjects(t *testing.T) {
	shim := host.Process{PID: 5000, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox1", State: 'S'}
	runc := host.Process{
		PID:      5001,
		Name:     "runc",
		Role:     host.RoleOCI,
		ObjectID: "container1-0",
		State:    'S',
		Started:  now().Add(-4 * time.Minute),
	}
	var thirty []string
	for i := range 30 {
		thirty = append(thirty, fmt.Sprintf("container%d-0", i))
	}
	silent := func(peer int) tweak {
		return func(f *facts.Input) {
			socket(crictl.ConnectSilent, "")(f)
			f.Measurement.Connect.PeerPID = peer
		}
	}
	for _, tt := range []struct {
		scenario
		related int
	}{
		{row("the daemon, by its socket", "Process 4711 [4711]", silent(4711), daemonIn('T', "do_signal_stop")), 0},
		{
			row("the daemon, by its state", "Process 4711 [4711]", socket(crictl.ConnectBacklogged, ""),
				daemonIn('t', "")),
			0,
		},
		{row("the daemon behind socket activation", "Process 4711 [4711]", silent(1), daemonIn('T', "")), 0},
		{
			row("a container, with its processes", "Container container1-0 [5001 5000]", statusHangs("container1-0"),
				processesOf(shim, runc)),
			0,
		},
		{
			row("a sandbox, for its containers", "PodSandbox sandbox1 []",
				statusHangs("container1-0", "sandbox1", "container1-1")),
			2,
		},
		{
			row("at most so many related", "Container container0-0 []", pods(100, 2), sweep, statusHangs(thirty...)),
			facts.MaxRelated,
		},
		{
			row("the container whose lock a list waits for", "Container container1-0 [5001]",
				hangs(facts.RPCContainers), statusHangs("container1-0"), processesOf(runc)),
			0,
		},
		{
			row("the oldest runc, where no status hangs", "Process 5001 [5001]", hangs(facts.RPCContainers),
				processesOf(runc)),
			0,
		},
		{row("the largest entries", "RPC  []", exited(800, 1, 30000)), facts.MostNamed},
		{row("what holds the socket", "Process 29 [29]", socket(crictl.ConnectSilent, ""), heldBy("python3")), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			if len(named) != 1 {
				t.Fatal(codes(named))
			}
			pids := []int{}
			for _, p := range named[0].Subject.Processes {
				pids = append(pids, p.PID)
			}
			if got := fmt.Sprintf("%s %s %v", named[0].Subject.Kind, named[0].Subject.ID, pids); got != tt.want ||
				len(named[0].Related) != tt.related {
				t.Errorf("%s with %d related, want %s with %d", got, len(named[0].Related), tt.want, tt.related)
			}
		})
	}
}

// heldBy has a process behind the socket that is not among the runtime's.
func heldBy(name string) tweak {
	return func(f *facts.Input) {
		f.Measurement.Connect.PeerPID, f.Processes = 29, nil
		f.Peer = &host.Process{PID: 29, Name: name, State: 'S'}
		if name == "containerd" {
			f.Peer.Role = host.RoleRuntime
		}
	}
}

// at gives the runtime another endpoint, which the kubelet uses too.
func at(endpoint string) tweak {
	return func(f *facts.Input) {
		k := *f.Kubelet
		k.Endpoint = endpoint
		f.Runtime.Endpoint, f.Kubelet, f.Processes = endpoint, &k, nil
	}
}

// ttrpc has containerd's socket for its shims in place of that for CRI.
func ttrpc(source crictl.Source) tweak {
	return func(f *facts.Input) {
		at(f.Runtime.Endpoint + ".ttrpc")(f)
		f.Runtime.EndpointSource = string(source)
		socket(crictl.ConnectForeign, "speaks ttrpc, not gRPC")(f)
		f.Measurement.Connect.TTRPC = true
	}
}

// elsewhere asks another runtime than the kubelet's.
func elsewhere(f *facts.Input) {
	f.Runtime.Endpoint, f.Runtime.EndpointSource = "unix:///tmp/containerd/c.sock", string(crictl.SourceFlag)
}
