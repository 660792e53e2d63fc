package gc

import (
	gocmp "cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
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
			ok:    func(r *trial) bool { return r.finished() && r.Pauses == 1 },
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
			name:  "restarted",
			fault: fake.Fault{RPC: "*", Error: "Unavailable: refused", From: second(.6), Until: second(9)},
			ok:    func(r *trial) bool { return r.finished() && r.Pauses > 0 },
		},
		{
			name:  "errors that pass",
			fault: fake.Fault{RPC: "RemoveContainer", Object: fake.Object{Pod: "loop-0"}, Error: "Unknown: busy", First: 3},
			ok:    func(r *trial) bool { return r.Removed == len(r.plan.Remove) },
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
			name:  "calls in flight at the deadline",
			fault: fake.Fault{RPC: "RemoveContainer", Delay: second(.1)},
			end:   1300 * ms,
			ok: func(r *trial) bool {
				return r.Stopped == "the deadline was reached" && len(r.Failed) == 0 && r.Left > 0
			},
		},
		{
			name:  "calls in flight are waited for when it is interrupted",
			fault: fake.Fault{RPC: "RemoveContainer", Delay: second(4)},
			stop:  6 * time.Second,
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
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		want := []Skipped{}
		change := func(v *Candidate, why string, do func()) {
			do()
			want = append(want, Skipped{ID: v.ID, Why: why})
		}
		all, other := plan.Remove, "now another container with this id"
		for _, k := range before.Containers {
			if k.State == crictl.ContainerRunning {
				all[0] = Candidate{
					Kind: KindContainer, ID: k.ID, PodUID: k.Pod.UID, Container: k.Name, Attempt: k.Attempt,
				}
			}
		}
		change(&all[0], "now running", func() {})
		change(&all[1], other, func() { all[1].Attempt++ })
		change(&all[2], other, func() { all[2].PodUID = "x" })
		change(&all[3], other, func() { all[3].Container = "x" })
		change(&all[4], "already gone", func() { all[4].ID = "nobody" })
		last := &all[len(all)-1]
		change(last, "now ready", func() {
			for _, s := range before.Sandboxes {
				if s.State == crictl.SandboxReady {
					last.ID, last.PodUID, last.Attempt = s.ID, s.Pod.UID, s.Attempt
				}
			}
		})
		for i := range all { // CRI-O has another time in the status
			all[i].CreatedAt = all[i].CreatedAt.Add(5 * time.Second)
		}
		r := tryPlan(t, t.Context(), c, before, plan, Options{Concurrency: 1})
		if diff := cmp.Diff(want, r.Skipped); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
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
	if got, err := Run(t.Context(), nil, Plan{}, Options{}); err != nil || got.Removed != 0 {
		t.Errorf("an empty plan: %v, %+v", err, got)
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
