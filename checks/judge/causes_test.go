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

// finds writes the causes, critical ones with !, and each with its root: FilesystemHung!; TaskStuck < FilesystemHung.
// Without any it writes the verdict.
func finds(f *facts.Input) string {
	r := NewReport(checks.Header{}, f)
	if len(r.Causes) == 0 {
		return string(r.Status)
	}
	var words []string
	for _, c := range r.Causes {
		w := c.Code
		if c.Severity == checks.Critical {
			w += "!"
		}
		if c.CausedBy != "" {
			w += " < " + c.CausedBy
		}
		words = append(words, w)
	}
	return strings.Join(words, "; ")
}

// judgeAll compares what is found with what each row has, and checks the causes themselves.
func judgeAll(t *testing.T, rows []scenario) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweaks...)
			if diff := cmp.Diff(tt.want, finds(f)); diff != "" {
				t.Error(diff)
			}
			for _, c := range Judge(f) {
				checkCause(t, tt.name, c)
			}
		})
	}
}

// levels judges nodes that differ in one figure, which set gives them, and compares what is found.
func levels[T int | uint64 | float64 | time.Duration](t *testing.T, name string, set func(T) tweak, want map[T]string) {
	t.Helper()
	var rows []scenario
	for level, found := range want {
		rows = append(rows, row(fmt.Sprint(name, " ", level), found, set(level)))
	}
	judgeAll(t, rows)
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
		row("no pods", "healthy", pods(0, 0), sweep),
		row("refused", "RuntimeDown!", socket(crictl.ConnectRefused, "connection refused")),
		row("backlogged", "RuntimeHung!", socket(crictl.ConnectBacklogged, "")),
		row("foreign", "RuntimeUnsupported!", socket(crictl.ConnectForeign, "HTTP/1.1 400 Bad Request")),
		row("everything hangs", "RuntimeHung!", hangs(everyRPC()...)),
		row("everything but Version hangs", "RuntimeHung!", hangs(everyRPC()[1:]...)),
		row("Version late, the rest not in time", "RuntimeSlow!", hangs(everyRPC()[1:]...),
			takes(2*time.Second, facts.RPCVersion)),
		row("ListContainers and one status hang", "ListHang!", hangs(facts.RPCContainers), statusHangs("container1-0")),
		row("ListPodSandbox hangs", "ListHang!", hangs(facts.RPCSandboxes)),
		row("both lists hang, Status answers", "ListHang!", hangs(lists()...)),
		row("a list and Status hang", "ListHang!; CNIHung!", hangs(facts.RPCContainers, facts.RPCStatus)),
		row("one sandbox's status hangs", "InspectHang!", statusHangs("sandbox2")),
		row("one status hangs and so does Status", "InspectHang!; CNIHung!", hangs(facts.RPCStatus),
			statusHangs("container1-0")),
		row("ListImages hangs alone", "ImageServiceHung", hangs(facts.RPCImages)),
		row("ImageFsInfo hangs alone", "ImageServiceHung!", hangs(facts.RPCImageFs)),
		row("images and one status hang", "ImageServiceHung!; InspectHang! < ImageServiceHung", hangs(facts.RPCImages),
			statusHangs("container1-0")),
		row("slow and one status hangs", "RuntimeSlow!; InspectHang! < RuntimeSlow",
			takes(3*time.Second, everyRPC()...), statusHangs("container1-0")),
		row("slow and overloaded", "RuntimeSlow!; RelistOverloaded < RuntimeSlow", pods(100, 2), sweep,
			takes(3*time.Second, everyRPC()...), statusTakes(2500*time.Millisecond)),
		row("starting", "RuntimeNotReady!", fails(crictl.Unavailable, notInitialised, everyRPC()[1:]...)),
		row("gone between probe and calls", "RuntimeDown!",
			fails(crictl.Unavailable, "connect: connection refused", everyRPC()...)),
		row("went away in the sweep", "RuntimeDown!", statuses(every, withError(crictl.Unavailable, readingEOF))),
		row("Status fails", "RuntimeNotReady!", fails(crictl.Internal, "boltdb: file is closed", facts.RPCStatus)),
		row("Version fails", "RuntimeNotReady", fails(crictl.Internal, "x", facts.RPCVersion)),
		row("both conditions are false", "RuntimeNotReady!; NetworkNotReady!", condition(0, false),
			condition(1, false)),
		row("network not ready and a plugin stuck", "CNIHung!; NetworkNotReady! < CNIHung", condition(1, false),
			stuckCNI(7*time.Minute)),
		row("no conditions", "RuntimeNotReady!", series(func(m *plegbench.Measurement) { m.Status.Conditions = nil })),
		row("down and interrupted", "RuntimeDown!", socket(crictl.ConnectRefused, ""), interrupted),
		row("a warning, and interrupted", "TooManyExited", exited(1000, 10, 1000), interrupted),
		row("another socket, down", "RuntimeDown!", socket(crictl.ConnectRefused, ""), askedBy(crictl.SourceEnv)),
		row("simulated", "healthy", askedBy(crictl.SourceSimulated)),
		row("exited and too large", "TooManyExited!; ListTooLarge! < TooManyExited", exited(17000, 100, 1000)),
		row("large entries and exited", "ListTooLarge!; TooManyExited!", exited(3000, 10, 6000)),
		row("one status hangs and many are dead", "InspectHang!; TooManyExited", exited(2000, 100, 1000),
			statusHangs("container1-0")),
		row("large lists are slow because of their size", "TooManyExited", exited(6000, 100, 1000),
			takes(700*time.Millisecond, lists()...)),
		row("a list that the kubelet streams is over", "ListTooLarge", exited(800, 1, 30000), streams),
		row("sandboxes with large annotations", "ListTooLarge!", func(f *facts.Input) {
			for i := range f.Measurement.Sandboxes.Sandboxes {
				f.Measurement.Sandboxes.Sandboxes[i].Size = 5 << 20
			}
			measureLists(f)
		}),
		row("ttrpc of the kubelet's", "RuntimeUnsupported!", ttrpc(crictl.SourceKubelet)),
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

// frozenBetween makes every call hang that starts between two moments since the start, and the Version beside them.
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
		m.Liveness = []crictl.Call{lost(call(facts.RPCVersion, "", from+time.Second, 0))}
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

// TestObjectsOrDaemon distinguishes hangs of single objects from those of the daemon.
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
		row("exited containers, asked last", "InspectHang!", exited(4, 1, 1000), sweep, statuses(dead, lost), version),
		row("containers and images", "ImageServiceHung!; InspectHang! < ImageServiceHung", images,
			statuses(containersOnly, lost), version),
		row("many containers and images", "ImageServiceHung!; InspectHang! < ImageServiceHung", pods(20, 2), sweep,
			images, statuses(containersOnly, lost), version),
		row("sandboxes too, and images", "RuntimeHung!", pods(20, 2), sweep, images, statuses(every, lost), version),
		row("everything in three pods", "RuntimeHung!", statuses(every, lost), version),
		row("everything in two pods", "RuntimeHung!", pods(2, 1), sweep, statuses(every, lost), version),
		row("everything in one pod", "InspectHang!", pods(1, 2), sweep, statuses(every, lost), version),
		row("half, in two pods", "InspectHang!", statuses(other, lost), version),
		row("20 of 30", "InspectHang!", pods(10, 2), sweep, twenty, version),
		row("21 of 30", "RuntimeHung!", pods(10, 2), sweep, statuses(first(21), lost), version),
		row("21 of 90", "InspectHang!", pods(30, 2), sweep, statuses(first(21), lost), version),
		row("frozen in the sweep", "RuntimeHung!", frozenBetween(time.Second, time.Hour)),
		row("frozen between relists", "RuntimeHung!", frozenBetween(300*time.Millisecond, time.Hour)),
		row("frozen for a while", "RuntimeSlow!", late, frozenBetween(time.Second, 5*time.Second)),
		row("all of one pod, nobody else left", "InspectHang!",
			statusHangs("sandbox2", "container2-0", "container2-1")),
		row("stopped in a series of relists", "RuntimeHung!", stoppedSeries(false)),
		row("stopped in a series, and goes on", "RuntimeSlow!", stoppedSeries(true)),
		row("another stopped runtime beside", "RuntimeHung!", hangs(everyRPC()...),
			input(func(f *facts.Input) { f.Processes = append(f.Processes, docker) })),
		row("one status fails", "InspectHang", statuses(first(1), withError(crictl.Internal, "bucket\x07 missing"))),
		row("one status is slow", "InspectHang",
			statuses(first(1), func(c crictl.Call) crictl.Call { c.Elapsed = 3 * time.Second; return c })),
		row("one shim is gone", "InspectHang", statuses(first(1), withError(crictl.Unavailable, "ttrpc: closed"))),
		row("all statuses are refused", "RuntimeNotReady!",
			statuses(every, withError(crictl.Unavailable, notInitialised))),
		row("restarted before the sweep ended", "RuntimeNotReady!",
			statuses(func(n int, _ plegbench.Inspection) bool { return n >= 5 },
				withError(crictl.Unavailable, notInitialised))),
		row("restarted in the sweep", "RuntimeNotReady", statuses(first(5), withError(crictl.Unavailable, readingEOF))),
		row("one is not found", "healthy", statuses(first(1), withError(crictl.NotFound, ""))),
		row("a handful is not found", "healthy", statuses(first(5), withError(crictl.NotFound, ""))),
		row("much is not found", "unknown", pods(10, 2), sweep, statuses(first(7), withError(crictl.NotFound, ""))),
		row("the same of much more", "healthy", pods(12, 2), sweep, statuses(first(7), withError(crictl.NotFound, ""))),
		row("one relist failed", "RuntimeNotReady", sampleFails(crictl.Unavailable, readingEOF, 1)),
		row("two of three relists failed", "RuntimeNotReady", sampleFails(crictl.Internal, "boltdb: timeout", 0, 1)),
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
	dead := func(n int) tweak {
		return func(f *facts.Input) {
			l := f.Measurement.Sandboxes
			for i := range n {
				l.Sandboxes = append(l.Sandboxes, crictl.PodSandbox{
					ID: fmt.Sprint("dead", i), State: crictl.SandboxNotReady,
					Pod: &crictl.Pod{Namespace: "batch", Name: "report", UID: "job"},
				})
			}
		}
	}
	list := func(d time.Duration) tweak { return takes(d/2, lists()...) }
	evented := input(func(f *facts.Input) { f.Kubelet.EventedPLEG = true })
	slow := func(d time.Duration) tweak { return takes(d, everyRPC()...) }
	entries := func(bytes float64) tweak {
		return func(f *facts.Input) { exited(17000, 100, 1000)(f); meanEntry(bytes)(f) }
	}
	const ms = time.Millisecond
	levels(t, "lists", list, map[time.Duration]string{
		998 * ms: "healthy", time.Second: "RuntimeSlow", 9998 * ms: "RuntimeSlow", 10 * time.Second: "RuntimeSlow!",
	})
	levels(t, "all slow, against half the deadline", slow,
		map[time.Duration]string{time.Second: "RuntimeSlow", 1250 * ms: "RuntimeSlow!"})
	levels(t, "status calls", statusTakes,
		map[time.Duration]string{1999 * ms: "healthy", 2 * time.Second: "RuntimeSlow"})
	levels(t, "exited containers", func(n int) tweak { return exited(n, 10, 500) }, map[int]string{
		999: "healthy", 1000: "TooManyExited", 9999: "TooManyExited", 10000: "TooManyExited!",
	})
	levels(t, "dead sandboxes", dead, map[int]string{999: "healthy", 1000: "TooManyExited"})
	levels(t, "share of the message limit", fill, map[float64]string{
		0.499: "healthy", 0.5: "ListTooLarge", 0.799: "ListTooLarge", 0.8001: "ListTooLarge!",
	})
	levels(t, "bytes of an entry", entries, map[float64]string{
		2048: "TooManyExited!; ListTooLarge! < TooManyExited", 2049: "ListTooLarge!; TooManyExited!",
	})
	levels(t, "a cold relist", cold, map[time.Duration]string{59900 * ms: "healthy", time.Minute: "RelistOverloaded"})
	levels(t, "age of PLEG", age,
		map[time.Duration]string{3 * time.Minute: "healthy", 3*time.Minute + time.Second: "RelistOverloaded!"})
	levels(t, "a CNI plugin", stuckCNI, map[time.Duration]string{29 * time.Second: "healthy", 30 * time.Second: "CNIHung"})
	judgeAll(t, []scenario{
		row("evented, its period", "healthy", evented),
		row("evented, cold", "RelistOverloaded", evented, cold(240*time.Second)),
		row("evented, PLEG threshold over", "RelistOverloaded!", evented, age(700*time.Second)),
		row("a short deadline on a quick runtime", "healthy", rpcTimeout(50*time.Millisecond),
			list(40*time.Millisecond)),
		row("a quarter of the statuses takes 300 ms", "RelistOverloaded", pods(300, 3), sweep,
			statuses(func(n int, _ plegbench.Inspection) bool { return n%4 == 0 },
				func(c crictl.Call) crictl.Call { c.Elapsed = 300 * ms; return c })),
	})
}

func rpcTimeout(d time.Duration) tweak { return func(f *facts.Input) { f.Limits.RPCTimeout = d } }

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
		PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0", State: 'S',
		Started: now().Add(-4 * time.Minute),
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
	list := hangs(facts.RPCContainers)
	for _, tt := range []scenario{ // the subject, its processes, and the number of related ones
		row("the daemon, by its socket", "Process 4711 [4711] 0", silent(4711), daemonIn('T', "do_signal_stop")),
		row("the daemon, by its state", "Process 4711 [4711] 0", socket(crictl.ConnectBacklogged, ""),
			daemonIn('t', "")),
		row("the daemon behind socket activation", "Process 4711 [4711] 0", silent(1), daemonIn('T', "")),
		row("a container", "Container container1-0 [5001 5000] 0", statusHangs("container1-0"),
			processesOf(shim, runc)),
		row("a sandbox, for its containers", "PodSandbox sandbox1 [] 2",
			statusHangs("container1-0", "sandbox1", "container1-1")),
		row("at most so many related", "Container container0-0 [] 20", pods(100, 2), sweep, statusHangs(thirty...)),
		row("the container that a list waits for", "Container container1-0 [5001] 0", list, statusHangs("container1-0"),
			processesOf(runc)),
		row("the oldest runc, where no status hangs", "Process 5001 [5001] 0", list, processesOf(runc)),
		row("the largest entries", "RPC  [] 3", exited(800, 1, 30000)),
		row("what holds the socket", "Process 29 [29] 0", socket(crictl.ConnectSilent, ""), heldBy("python3")),
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
			s := named[0].Subject
			if got := fmt.Sprint(s.Kind, " ", s.ID, " ", pids, " ", len(named[0].Related)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
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

// TestRestartsWaitForTheRoot checks that every restart that a consequence advises is to wait until its root is over.
func TestRestartsWaitForTheRoot(t *testing.T) {
	slow := takes(3*time.Second, everyRPC()...)
	disk := func(n *facts.Node) { n.Writes.Value[0].Times = times10(time.Second) }
	waits := func(c checks.Cause) bool {
		return !slices.ContainsFunc(c.NextSteps, func(s checks.NextStep) bool {
			restarts := slices.Contains(
				[]string{checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode}, s.Touches)
			return restarts != mentions([]string{s.Why}, "Only if it persists after "+c.CausedBy+" is fixed.")
		})
	}
	if all := Judge(node(slow, surfaces(disk))); !waits(all[1]) || waits(Judge(node(slow))[0]) {
		t.Errorf("%+v", all[1].NextSteps)
	}
}
