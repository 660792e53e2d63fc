package gc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// second makes a duration of a scenario.
func second(s float64) fake.Duration { return fake.Duration(s * float64(time.Second)) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		before, plan := look(t, c, Rules{})
		if want := 10*39 + 10; len(plan.Remove) != want {
			t.Fatalf("%d candidates, want %d", len(plan.Remove), want)
		}
		var last Progress
		got, err := Run(t.Context(), c, plan, Options{Progress: func(p Progress) { last = p }})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, before, plan, got, left(t, c))
		if got.Removed != len(plan.Remove) || got.Stopped != "" || got.PerSecond <= 0 {
			t.Errorf("got %+v", got)
		}
		if got.Most < 4 || got.Most > 32 {
			t.Errorf("at most %d at a time: the pace has not grown, or too far", got.Most)
		}
		if last.Removed != got.Removed || last.Total != len(plan.Remove) || last.TimeLeft != 0 {
			t.Errorf("the last progress is %+v", last)
		}
		if _, again := look(t, c, Rules{}); len(again.Remove) != 0 {
			t.Errorf("the plan after the run still has %v", ids(again))
		}
	})
}

// TestRunOrder reads the order of removal from the audit file: containers oldest first, then sandboxes oldest first.
func TestRunOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(4, 5))
		_, plan := look(t, c, Rules{})
		a := audit(t, len(plan.Remove))
		if _, err := Run(t.Context(), c, plan, Options{Concurrency: 1, Audit: a}); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, r := range auditRecords(t, a.file.Name()) {
			if r.Event == auditRemoved {
				got = append(got, r.ID)
			}
		}
		if diff := cmp.Diff(ids(plan), got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		for i, v := range plan.Remove[1:] {
			if before := plan.Remove[i]; before.Kind == v.Kind && v.CreatedAt.Before(before.CreatedAt) ||
				before.Kind == KindSandbox && v.Kind == KindContainer {
				t.Errorf("candidate %d comes too late", i+1)
			}
		}
	})
}

// TestRunNoClaim lets the runtime do the work and answer too late: what was asked for must not be claimed.
func TestRunNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, plan := look(t, serve(t, flood(2, 30)), Rules{})
		c := serve(t, flood(2, 30, fake.Fault{RPC: "RemoveContainer", Delay: second(6), After: 10, First: 5}))
		got, err := Run(t.Context(), c, plan, Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		verify(t, before, plan, got, left(t, c))
		if !slices.ContainsFunc(got.Failed, func(f Failed) bool { return strings.Contains(f.Error, "is not known") }) {
			t.Errorf("%d of %d removed; failed %v", got.Removed, len(plan.Remove), got.Failed)
		}
	})
}

func TestRunLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(2, 10))
		before, plan := look(t, c, Rules{MinAge: time.Minute})
		want := []Skipped{}
		change := func(i int, why string, do func(v *Candidate)) {
			do(&plan.Remove[i])
			want = append(want, Skipped{ID: plan.Remove[i].ID, Why: why})
		}
		var run Candidate
		for _, k := range before.Containers {
			if k.State == crictl.ContainerRunning {
				run = Candidate{Kind: KindContainer, ID: k.ID, PodUID: k.Pod.UID, Container: k.Name, CreatedAt: k.Created()}
			}
		}
		change(0, "it is running now", func(v *Candidate) { *v = run })
		change(1, "it is another container of the same id",
			func(v *Candidate) { v.CreatedAt = v.CreatedAt.Add(time.Second) })
		change(2, "it is another container of the same id", func(v *Candidate) { v.PodUID = "x" })
		change(3, "it is another container of the same id", func(v *Candidate) { v.Container = "x" })
		change(4, "gone already", func(v *Candidate) { v.ID = "nobody" })
		last := len(plan.Remove) - 1
		change(last, "it is ready now", func(v *Candidate) {
			for _, s := range before.Sandboxes {
				if s.State == crictl.SandboxReady {
					v.ID, v.PodUID, v.CreatedAt = s.ID, s.Pod.UID, s.Created()
				}
			}
		})
		got, err := Run(t.Context(), c, plan, Options{Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Skipped); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
		verify(t, before, plan, got, left(t, c))
	})
}

func TestRunInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		before, plan := look(t, c, Rules{})
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		a := audit(t, len(plan.Remove))
		got, err := Run(ctx, c, plan, Options{Audit: a, Progress: func(p Progress) {
			if p.Removed > 50 {
				once.Do(cancel)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, before, plan, got, left(t, c))
		gone := len(before.Containers) + len(before.Sandboxes) - len(left(t, c))
		if got.Stopped != "interrupted" || got.Left == 0 || got.Removed != gone || len(got.Failed) != 0 {
			t.Errorf("stopped %q, %d left, %d removed, %d gone, failed %v", got.Stopped, got.Left, got.Removed, gone, got.Failed)
		}
		if err := a.Close(got.Removed, time.Now()); err != nil {
			t.Fatal(err)
		}
		// A plan made now goes on where the first run ended.
		again, err := OpenAudit(a.file.Name(), here(), len(plan.Remove), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		_, rest := look(t, c, Rules{})
		second, err := Run(t.Context(), c, rest, Options{Audit: again})
		if err != nil {
			t.Fatal(err)
		}
		if len(rest.Remove) != len(plan.Remove)-got.Removed || second.Removed != len(rest.Remove) ||
			len(second.Skipped) != 0 {
			t.Errorf("%d planned, of %d of which %d are gone; the second run: %+v", len(rest.Remove), len(plan.Remove),
				got.Removed, second)
		}
		recorded := map[string]bool{}
		for _, r := range auditRecords(t, a.file.Name()) {
			if r.Event == auditRemoved {
				recorded[r.ID] = true
			}
		}
		if len(recorded) != len(plan.Remove) {
			t.Errorf("%d of %d are in the audit file", len(recorded), len(plan.Remove))
		}
	})
}

// TestRunInterruptedSlow interrupts a run whose removals take seconds, long before its deadline: they are waited for.
func TestRunInterruptedSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, plan := look(t, serve(t, flood(4, 40)), Rules{})
		c := serve(t, flood(4, 40, fake.Fault{RPC: "RemoveContainer", Delay: second(4)}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(6*time.Second, cancel)
		got, err := Run(ctx, c, plan, Options{})
		if err != nil {
			t.Fatal(err)
		}
		gone := len(before.Containers) + len(before.Sandboxes) - len(left(t, c))
		if got.Stopped != "interrupted" || got.Removed != gone || got.Removed < 4 || len(got.Failed) != 0 {
			t.Errorf("%d removed, %d gone, failed %v, stopped %q", got.Removed, gone, got.Failed, got.Stopped)
		}
	})
}

func TestRunBeforeAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plan := look(t, serve(t, flood(2, 5)), Rules{})
		for name, tt := range map[string]struct {
			faults []fake.Fault
			ctx    func() context.Context
			want   string
		}{
			"down": {
				faults: []fake.Fault{{RPC: "ListContainers", Error: "Unavailable: nobody"}},
				want:   "Unavailable: nobody",
			},
			"hung": {faults: []fake.Fault{{RPC: "ListContainers", Hang: true}}, want: "DeadlineExceeded"},
			"cancelled": {
				ctx:  func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx },
				want: "cancel",
			},
		} {
			c := serve(t, flood(2, 5, tt.faults...))
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx()
			}
			got, err := Run(ctx, c, plan, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || got.Left != len(plan.Remove) || got.Removed != 0 {
				t.Errorf("%s: %v, %+v", name, err, got)
			}
		}
	})
	if got, err := Run(t.Context(), nil, Plan{}, Options{}); err != nil || got.Removed != 0 {
		t.Errorf("an empty plan: %v, %+v", err, got)
	}
}

func TestRunAuditFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		before, plan := look(t, c, Rules{})
		a := audit(t, len(plan.Remove))
		var once sync.Once
		got, err := Run(t.Context(), c, plan, Options{Audit: a, Progress: func(p Progress) {
			if p.Removed > 20 {
				once.Do(func() { _ = a.file.Close() })
			}
		}})
		if err == nil || got.Stopped != "the audit file cannot be written" || got.Left == 0 || len(got.Failed) == 0 {
			t.Errorf("%v, stopped %q, %d left, %d failed", err, got.Stopped, got.Left, len(got.Failed))
		}
		for _, f := range got.Failed {
			if !strings.HasPrefix(f.Error, "it was removed, but the audit file does not say so") {
				t.Errorf("%+v", f)
			}
		}
		verify(t, before, plan, got, left(t, c))
	})
}

func TestRunRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		_, plan := look(t, c, Rules{})
		got, err := Run(t.Context(), c, plan, Options{Rate: 20})
		if err != nil {
			t.Fatal(err)
		}
		if got.PerSecond > 20.5 || got.PerSecond < 17 {
			t.Errorf("%v per second with a limit of 20", got.PerSecond)
		}
	})
}
