package gc

import (
	gocmp "cmp"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last Progress
		r := try(t, t.Context(), Options{Progress: func(p Progress) { last = p }})
		if want := 10*19 + 39 + 10; len(r.plan.Remove) != want || r.Removed != want || r.Stopped != "" || r.err != nil {
			t.Errorf("want %d removed: %s", want, r)
		}
		if r.Most < 4 || r.Most > 32 {
			t.Errorf("the pace has not grown, or too far: %s", r)
		}
		if last.Removed != r.Removed || last.Total != len(r.plan.Remove) || last.TimeLeft != 0 {
			t.Errorf("the last progress is %+v", last)
		}
		if _, again := look(t, r.client, Rules{}); len(again.Remove) != 0 {
			t.Errorf("the plan after the run still has %v", ids(again))
		}
	})
}

// TestRunOneAtATime reads the order of removal from the audit file, which is that of the plan.
func TestRunOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, path := audit(t)
		r := try(t, t.Context(), Options{Concurrency: 1, Rate: 20, Audit: a})
		if diff := cmp.Diff(ids(r.plan), removedIn(t, path)); diff != "" || r.Most != 1 {
			t.Errorf("order (-plan +removed):\n%s", diff)
		}
		if r.PerSecond > 20.5 || r.PerSecond < 17 {
			t.Errorf("%v per second with a limit of 20", r.PerSecond)
		}
	})
}

// TestRunFaults runs plans on runtimes that misbehave.
func TestRunFaults(t *testing.T) {
	loop, old := fake.Object{Pod: "loop-0", Container: "app"}, fake.Object{Pod: "old"}
	stuck := func(r *trial) bool { // the others take little longer, and the pod is named
		return len(r.Failed) == r.containers("old") && r.Removed == len(r.plan.Remove)-len(r.Failed) &&
			r.failures("pod batch/old does not answer: ") && r.took < time.Minute
	}
	for _, tt := range []struct {
		name      string
		fault     fake.Fault
		end, stop time.Duration // when the deadline of the run passes, and when it is interrupted; 0 for much later
		ok        func(r *trial) bool
	}{
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
			fault: fake.Fault{RPC: "RemoveContainer", Object: loop, Error: "Unknown: busy", First: 3},
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
		{name: "removals of a pod hang", fault: fake.Fault{RPC: "RemoveContainer", Object: old, Hang: true}, ok: stuck},
		{name: "statuses of a pod hang", fault: fake.Fault{RPC: "ContainerStatus", Object: old, Hang: true}, ok: stuck},
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
				if r := try(t, ctx, Options{}, tt.fault); !tt.ok(r) || r.err != nil {
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

const unrecordedWhy = "removed, but not recorded"

// A hungFile is on a disk that hangs until the channel is closed.
type hungFile chan struct{}

func (f hungFile) Write([]byte) (int, error) {
	<-f
	return 0, os.ErrClosed
}

func (hungFile) Sync() error { return nil }

func (hungFile) Close() error { return nil }

// TestRunAuditHangs lets the disk of the audit file hang: the run ends on time, and counts nothing that is not
// recorded. More than one removal at a time would wait for the audit's lock, and fake time with it.
func TestRunAuditHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := make(hungFile)
		defer close(file)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r := try(t, ctx, Options{Audit: &Audit{file: file}, Concurrency: 1})
		if r.err == nil || r.took > 5*time.Second || r.Removed != 0 || len(r.Failed) != 1 ||
			!r.failures(unrecordedWhy) {
			t.Error(r)
		}
	})
}

// removedIn returns the ids of the removals in an audit file.
func removedIn(t *testing.T, path string) (removed []string) {
	t.Helper()
	for line := range strings.Lines(get(t, path)) {
		var r AuditRecord
		must(t, json.Unmarshal([]byte(line), &r))
		if r.Event == auditRemoved {
			removed = append(removed, r.ID)
		}
	}
	return removed
}
