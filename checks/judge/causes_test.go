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
			checkRedacted(t, f, NewReport(checks.Header{}, f))
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

// stuckCNI is a CNI plugin that has been running for so long.
func stuckCNI(age time.Duration) tweak {
	return processesOf(host.Process{PID: 990, Name: "calico", Role: host.RoleCNI, State: 'S', Started: now().Add(-age)})
}

const notInitialised = "server is not initialized yet"

func meanEntry(bytes float64) tweak {
	return figures(func(s *plegbench.Summary) { s.BytesPerContainer = &bytes })
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

// TestPauses distinguishes a daemon that stopped while it was measured from one that went on after a pause.
func TestPauses(t *testing.T) {
	late := statuses(func(_ int, i plegbench.Inspection) bool { return strings.HasPrefix(i.ID, "container2") },
		func(c crictl.Call) crictl.Call { c.Start = c.Start.Add(10 * time.Second); return c })
	judgeAll(t, []scenario{
		row("frozen in the sweep", "RuntimeHung!", frozenBetween(time.Second, time.Hour)),
		row("frozen between relists", "RuntimeHung!", frozenBetween(300*time.Millisecond, time.Hour)),
		row("frozen for a while", "RuntimeSlow!", late, frozenBetween(time.Second, 5*time.Second)),
		row("stopped in a series of relists", "RuntimeHung!", stoppedSeries(false)),
		row("stopped in a series, and goes on", "RuntimeSlow!", stoppedSeries(true)),
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
	evented := func(f *facts.Input) { f.Kubelet.EventedPLEG = true }
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
