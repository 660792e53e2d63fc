package gc

import (
	gocmp "cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestRun runs plans, also on runtimes that misbehave.
func TestRun(t *testing.T) {
	record := "" // an audit file
	for _, tt := range []struct {
		name      string
		opts      func(t *testing.T) Options // nil for none
		fault     fake.Fault
		end, stop time.Duration // when the deadline of the run passes, and when it is interrupted; 0 for much later
		fails     bool          // with an error
		ok        func(r *trial) bool
	}{
		{name: "without a fault", ok: func(r *trial) bool {
			return r.Removed == 10*19+39+10 && r.Removed == len(r.plan.Remove) && r.Stopped == "" && r.Most >= 4 && r.Most <= 32
		}},
		{
			name: "one at a time, in the order of the plan",
			opts: func(t *testing.T) Options {
				a, path := audit(t)
				record = path
				return Options{Concurrency: 1, Rate: 20, Audit: a}
			},
			ok: func(r *trial) bool {
				text, _ := os.ReadFile(record)
				var removed []string
				for _, m := range regexp.MustCompile(`"removed",.*"id":"(\w+)"`).FindAllSubmatch(text, -1) {
					removed = append(removed, string(m[1]))
				}
				return slices.Equal(ids(r.plan), removed) && r.Most == 1 && r.PerSecond < 20.5 && r.PerSecond > 17
			},
		},
		{
			// More than one removal at a time would wait for the audit's lock, and fake time with it.
			name: "the disk of the audit file hangs", end: 5 * time.Second, fails: true,
			opts: func(t *testing.T) Options {
				file := make(hungFile)
				t.Cleanup(func() { close(file) })
				return Options{Audit: &Audit{file: file}, Concurrency: 1}
			},
			ok: func(r *trial) bool {
				return r.took <= 5*time.Second && r.Removed == 0 && len(r.Failed) == 1 && r.failures("removed, but not recorded")
			},
		},
		{
			name:  "frozen for 20 seconds",
			fault: fake.Fault{RPC: "*", Hang: true, Thaw: true, From: second(.6), Until: second(20.6)},
			ok:    func(r *trial) bool { return r.Removed+len(r.Skipped) == len(r.plan.Remove) && r.Pauses == 1 },
		},
		{
			name:  "frozen for good",
			fault: fake.Fault{RPC: "*", Hang: true, From: second(.6)},
			end:   time.Minute,
			ok: func(r *trial) bool {
				return r.Stopped == "the deadline was reached" && r.Pauses == 1 && r.Left > 0 &&
					r.took <= time.Minute && r.failures("is not known", "ContainerStatus")
			},
		},
		{
			name:  "sandboxes that cannot be stopped are not removed",
			fault: fake.Fault{RPC: "StopPodSandbox", Error: "Unknown: CNI"},
			ok:    func(r *trial) bool { return len(r.Failed) == 10 && r.Removed == len(r.plan.Remove)-10 },
		},
		{
			name:  "work is done and not answered",
			fault: fake.Fault{RPC: "RemoveContainer", Drop: true, After: 10, First: 5},
			ok:    func(r *trial) bool { return r.Removed == len(r.plan.Remove) },
		},
		{
			name:  "statuses of a pod hang: the others take little longer, and the pod is named",
			fault: fake.Fault{RPC: "ContainerStatus", Object: fake.Object{Pod: "old"}, Hang: true},
			ok: func(r *trial) bool {
				return len(r.Failed) == 39 && r.Removed == len(r.plan.Remove)-39 &&
					r.failures("pod batch/old does not answer: ") && r.took < time.Minute
			},
		},
		{
			name: "calls in flight are waited for when it is interrupted", stop: 6 * time.Second,
			fault: fake.Fault{RPC: "RemoveContainer", Delay: second(4)},
			ok: func(r *trial) bool {
				return r.Stopped == "interrupted" && r.Removed == r.gone && r.Removed >= 4 && len(r.Failed) == 0
			},
		},
		{
			name:  "all removals hang",
			fault: fake.Fault{RPC: "RemoveContainer", Hang: true},
			ok:    func(r *trial) bool { return r.Removed == 0 && r.took < 10*time.Minute },
		},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), gocmp.Or(tt.end, time.Hour))
			defer cancel()
			time.AfterFunc(gocmp.Or(tt.stop, time.Hour), cancel)
			var opts Options
			if tt.opts != nil {
				opts = tt.opts(t)
			}
			if r := try(t, ctx, opts, tt.fault); !tt.ok(r) || (r.err != nil) != tt.fails {
				t.Error(r)
			}
		})
	}
}

// TestRunSandboxLast removes a sandbox after the containers in it, although many are removed at a time.
func TestRunSandboxLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flood()
		s.Pods = []fake.PodGroup{
			{Name: "done", NotReady: true, Containers: []fake.ContainerGroup{{Name: "job", Exited: 60}}},
		}
		c := serve(t, s)
		n := list(t, c)
		var plan Plan
		for _, k := range n.Containers {
			plan.Remove = append(plan.Remove, Candidate{
				Kind: KindContainer, ID: k.ID, PodUID: k.Pod.UID, Container: k.Name, Attempt: k.Attempt,
			})
		}
		last := &n.Sandboxes[0]
		plan.Remove = append(plan.Remove, Candidate{
			Kind: KindSandbox, ID: last.ID, PodUID: last.Pod.UID, Attempt: last.Attempt,
		})
		if r := tryPlan(t, t.Context(), c, n, plan, Options{}); r.Removed != len(plan.Remove) || r.Most < 4 {
			t.Error(r)
		}
	})
}

// TestRunLooksAgain changes candidates between the plan and the run.
func TestRunLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood())
		before, plan := look(t, c, Rules{MinAge: time.Minute})
		all := plan.Remove
		last := &all[len(all)-1]
		for _, k := range before.Containers {
			if k.State == crictl.ContainerRunning {
				all[0] = Candidate{
					Kind: KindContainer, ID: k.ID, PodUID: k.Pod.UID, Container: k.Name, Attempt: k.Attempt,
				}
			}
		}
		for _, s := range before.Sandboxes {
			if s.State == crictl.SandboxReady {
				last.ID, last.PodUID, last.Attempt = s.ID, s.Pod.UID, s.Attempt
			}
		}
		all[1].Attempt++
		all[2].PodUID, all[3].Container, all[4].ID = "x", "x", "nobody"
		const other = "now another container with this id"
		want := []Skipped{
			{all[0].ID, "now running"},
			{all[1].ID, other},
			{all[2].ID, other},
			{all[3].ID, other},
			{"nobody", "already gone"},
			{last.ID, "now ready"},
		}
		for i := range all { // CRI-O has another time in the status
			all[i].CreatedAt = all[i].CreatedAt.Add(5 * time.Second)
		}
		r := tryPlan(t, t.Context(), c, before, plan, Options{Concurrency: 1})
		testkit.Equal(t, "skipped", want, r.Skipped)
	})
}

// TestRunRefuses wants an error and nothing removed where the runtime does not answer at first.
func TestRunRefuses(t *testing.T) {
	for want, fault := range map[string]fake.Fault{
		"Unavailable: nobody": {RPC: "ListContainers", Error: "Unavailable: nobody", After: 1, First: 1},
		"DeadlineExceeded":    {RPC: "ListContainers", Hang: true, After: 1, First: 1},
		"Canceled":            {RPC: "Version", Hang: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, flood(fault))
			before, plan := look(t, c, Rules{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if want == "Canceled" {
				cancel()
			}
			r := tryPlan(t, ctx, c, before, plan, Options{})
			if r.err == nil || !strings.Contains(r.err.Error(), want) || r.Left != len(r.plan.Remove) {
				t.Errorf("want %q: %s", want, r)
			}
		})
	}
}

// A hungFile is on a disk that hangs until the channel is closed.
type hungFile chan struct{}

func (f hungFile) Write([]byte) (int, error) {
	<-f
	return 0, os.ErrClosed
}

func (hungFile) Sync() error { return nil }

func (hungFile) Close() error { return nil }

// serve serves a scenario in memory and returns a client of it.
func serve(t *testing.T, s fake.Scenario) *crictl.Client {
	t.Helper()
	c, err := crictl.Dial("/run/fake.sock", crictl.Options{Dialer: faketest.Serve(t, s)})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// second makes a duration of a scenario.
func second(s float64) fake.Duration { return fake.Duration(s * float64(time.Second)) }

// flood is a scenario of crash loops: 10 pods with 20 exited instances of app each, whose last one runs in half of
// them, each with a dead sandbox from before, and a pod "old" with the oldest containers. Its calls take as long as a
// quick runtime's.
func flood(faults ...fake.Fault) fake.Scenario {
	return fake.Scenario{
		Name: "gc",
		Latency: []fake.Latency{
			{RPC: "Remove*", Base: second(.02)}, {RPC: "List*", Base: second(.002)}, {RPC: "*", Base: second(.001)},
		},
		Faults: faults,
		Pods: []fake.PodGroup{
			{Name: "loop", Count: 5, DeadBefore: 1, Containers: []fake.ContainerGroup{{Name: "app", Exited: 20}}},
			{
				Name: "down", Count: 5, DeadBefore: 1,
				Containers: []fake.ContainerGroup{{Name: "app", State: "exited", Exited: 19}},
			},
			{
				Namespace: "batch", Name: "old", Age: second(480 * 3600),
				Containers: []fake.ContainerGroup{{Name: "load", Exited: 40, Every: second(5 * 3600)}},
			},
		},
	}
}

// list lists a node.
func list(t *testing.T, c *crictl.Client) Node {
	t.Helper()
	sandboxes := c.ListPodSandbox(t.Context(), crictl.Filter{}, "")
	containers := c.ListContainers(t.Context(), crictl.Filter{}, "")
	if !sandboxes.Complete || !containers.Complete {
		t.Fatalf("listing: %+v %+v", sandboxes.Calls, containers.Calls)
	}
	return Node{Sandboxes: sandboxes.Sandboxes, Containers: containers.Containers}
}

// look lists a node, asks for the ends of the candidates and makes a plan.
func look(t *testing.T, c *crictl.Client, rules Rules) (Node, Plan) {
	t.Helper()
	n := list(t, c)
	return n, Make(n, rules, time.Now(), func(of []Candidate) map[string]End {
		asked := 0
		ends, missed := ReadEnds(t.Context(), c, of, func(n int) { asked = n })
		if asked != len(of) || missed.Count > 0 {
			t.Fatalf("asked for %d ends of %d, missed %+v", asked, len(of), missed)
		}
		return ends
	})
}

// A trial is one run, and the state before and after it.
type trial struct {
	Result
	plan Plan
	gone int // objects that the runtime no longer holds
	err  error
	took time.Duration
}

// try plans with a runtime without faults and runs the plan on it, or on its twin in which they are in force. Twins
// hold the same objects only when they start within one second, as in fake time.
func try(t *testing.T, ctx context.Context, opts Options, fault fake.Fault) *trial {
	t.Helper()
	c := serve(t, flood())
	before, plan := look(t, c, Rules{})
	if fault.RPC != "" {
		c = serve(t, flood(fault))
	}
	return tryPlan(t, ctx, c, before, plan, opts)
}

// tryPlan runs a plan and checks the result against the objects that the runtime then holds: nothing counts as removed
// that is there, every candidate is accounted for once, nothing but candidates has gone, and the last progress says so.
func tryPlan(t *testing.T, ctx context.Context, c *crictl.Client, before Node, plan Plan, opts Options) *trial {
	t.Helper()
	start := time.Now()
	r, last := &trial{plan: plan}, Progress{}
	opts.Progress = func(p Progress) { last = p }
	r.Result, r.err = Run(ctx, c, plan, opts)
	r.took = time.Since(start)
	if last.Total != len(plan.Remove) || last.Removed != r.Removed || last.Skipped != len(r.Skipped) ||
		last.Failed != len(r.Failed) || (last.TimeLeft > 0) != (r.Left > 0 && r.Removed > 0) {
		t.Errorf("the last progress is %+v: %s", last, r)
	}
	// until calls that were given up have ended
	time.Sleep(10 * ms)
	reachable := c.ListContainers(t.Context(), crictl.Filter{}, "").Complete // not when it hangs for good
	if reachable {
		gone := idsOf(before)
		for id := range idsOf(list(t, c)) {
			delete(gone, id)
		}
		r.gone = len(gone)
		for _, v := range plan.Remove {
			delete(gone, v.ID)
		}
		if len(gone) > 0 {
			t.Errorf("%v have gone, and were no candidates", gone)
		}
	}
	if r.Removed+len(r.Skipped)+len(r.Failed)+r.Left != len(plan.Remove) {
		t.Errorf("not all of %d candidates are accounted for once: %s", len(plan.Remove), r)
	}
	if reachable && r.Removed > r.gone {
		t.Errorf("fewer have gone than were removed: %s", r)
	}
	return r
}

// idsOf returns the ids of a node's containers and sandboxes.
func idsOf(n Node) map[string]bool {
	all := map[string]bool{}
	for i := range n.Sandboxes {
		all[n.Sandboxes[i].ID] = true
	}
	for i := range n.Containers {
		all[n.Containers[i].ID] = true
	}
	return all
}

// failures reports whether something failed, and each for one of these reasons.
func (r *trial) failures(reasons ...string) bool {
	return len(r.Failed) > 0 && !slices.ContainsFunc(r.Failed, func(f Failed) bool {
		return !slices.ContainsFunc(reasons, func(why string) bool { return strings.Contains(f.Error, why) })
	})
}

func (r *trial) String() string {
	return fmt.Sprintf("%d candidates, %d gone, in %v, error %v, %.2000s", len(r.plan.Remove), r.gone, r.took, r.err,
		fmt.Sprintf("%+v", r.Result))
}

// audit opens a new audit file.
func audit(t *testing.T) (a *Audit, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path)
	testkit.Must(t, err)
	return a, path
}

const ms = time.Millisecond

// TestPace feeds probes to a pace of at most 16 whose quiet probes took 10 ms: up to 17 ms are quick.
func TestPace(t *testing.T) {
	times := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	for _, tt := range []struct {
		name   string
		probes []time.Duration // below 0: no answer
		want   int
		pauses int
	}{
		{"then grows by half", slices.Concat(times(6, 10*ms), times(3, 18*ms), times(15, 10*ms)), 8, 0},
		{"pauses without an answer", []time.Duration{10 * ms, 10 * ms, 10 * ms, -1}, 2, 1},
		{"goes on with one after an answer", slices.Concat(times(6, 10*ms), []time.Duration{-1, 90 * ms}), 1, 1},
	} {
		p := newPace(16, times(quietProbes, 10*ms), 0)
		for _, d := range tt.probes {
			p.probed(d, d >= 0)
		}
		paused := tt.probes[len(tt.probes)-1] < 0
		if p.width != tt.want || p.pauses != tt.pauses || p.paused != paused {
			t.Errorf("%s: width %d, %d pauses, paused %t; want %d, %d", tt.name, p.width, p.pauses, p.paused, tt.want,
				tt.pauses)
		}
	}
}
