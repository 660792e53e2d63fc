package gc

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
)

// A faultTest is a run on a runtime that misbehaves.
type faultTest struct {
	name   string
	faults []fake.Fault
	end    time.Duration // of the context; 0 for none
	check  func(t *testing.T, plan Plan, r Result)
}

// downtimes are runtimes that stop answering as a whole.
func downtimes() []faultTest {
	return []faultTest{
		{
			name:   "frozen for 20 seconds",
			faults: []fake.Fault{{RPC: "*", Hang: true, Thaw: true, From: second(0.6), Until: second(20.6)}},
			end:    5 * time.Minute,
			check: func(t *testing.T, plan Plan, r Result) {
				if r.Removed+len(r.Skipped) != len(plan.Remove) || r.Pauses != 1 {
					t.Errorf("%d removed, %d skipped, %d failed, %d pauses", r.Removed, len(r.Skipped), len(r.Failed), r.Pauses)
				}
			},
		},
		{
			name:   "frozen for good",
			faults: []fake.Fault{{RPC: "*", Hang: true, From: second(0.6)}},
			end:    time.Minute,
			check: func(t *testing.T, plan Plan, r Result) {
				if r.Stopped != "the deadline was reached" || r.Pauses != 1 || r.Left == 0 || len(r.Failed) == 0 {
					t.Errorf("stopped %q, %d pauses, %d left, %d failed", r.Stopped, r.Pauses, r.Left, len(r.Failed))
				}
				for _, f := range r.Failed {
					if !strings.Contains(f.Error, "not known") && !strings.Contains(f.Error, "ContainerStatus") {
						t.Errorf("%s: %s", f.ID, f.Error)
					}
				}
				if r.Seconds > 60 {
					t.Errorf("it took %v s of a minute", r.Seconds)
				}
			},
		},
		{
			name:   "restarted",
			faults: []fake.Fault{{RPC: "*", Error: "Unavailable: connection refused", From: second(0.6), Until: second(9)}},
			check: func(t *testing.T, plan Plan, r Result) {
				if r.Removed+len(r.Skipped) != len(plan.Remove) || r.Pauses == 0 {
					t.Errorf("%d removed, %d skipped, %d failed %v, %d pauses", r.Removed, len(r.Skipped), len(r.Failed), r.Failed,
						r.Pauses)
				}
			},
		},
	}
}

// failures are runtimes that fail with single objects.
func failures() []faultTest {
	id := fake.Object{Pod: "loop-0", Container: "app"}
	return []faultTest{
		{
			name:   "one pod's containers cannot be removed",
			faults: []fake.Fault{{RPC: "RemoveContainer", Object: id, Error: "Unknown: device or resource busy"}},
			check: func(t *testing.T, plan Plan, r Result) {
				want := []string{}
				for _, v := range plan.Remove {
					if v.Pod == "loop-0" && v.Kind == KindContainer {
						want = append(want, v.ID)
					}
				}
				if len(r.Failed) != len(want) || r.Removed != len(plan.Remove)-len(want) {
					t.Errorf("%d removed, %d failed, want %d", r.Removed, len(r.Failed), len(want))
				}
				for _, f := range r.Failed {
					if f.Error != "RemoveContainer: Unknown: device or resource busy" {
						t.Errorf("%s", f.Error)
					}
				}
			},
		},
		{
			name:   "errors that pass",
			faults: []fake.Fault{{RPC: "RemoveContainer", Object: id, Error: "Unknown: device or resource busy", First: 3}},
			check: func(t *testing.T, plan Plan, r Result) {
				if r.Removed != len(plan.Remove) {
					t.Errorf("%d of %d removed: %v", r.Removed, len(plan.Remove), r.Failed)
				}
			},
		},
		{
			name:   "not found when asked to remove",
			faults: []fake.Fault{{RPC: "RemoveContainer", Error: "NotFound: no such container"}},
			check: func(t *testing.T, plan Plan, r Result) {
				if len(r.Failed) != 0 {
					t.Errorf("%d failed: %v", len(r.Failed), r.Failed[0])
				}
			},
		},
		{
			name:   "forgotten before",
			faults: []fake.Fault{{RPC: "ContainerStatus", Object: id, Error: "NotFound: no such container"}},
			check: func(t *testing.T, plan Plan, r Result) {
				for _, s := range r.Skipped {
					if s.Why != "gone already" && s.Why != "it holds containers" {
						t.Errorf("%+v", s)
					}
				}
				if len(r.Skipped) != 40-1 || len(r.Failed) != 0 {
					t.Errorf("%d skipped, %d failed", len(r.Skipped), len(r.Failed))
				}
			},
		},
		{
			name: "one container hangs",
			faults: []fake.Fault{{
				RPC: "RemoveContainer", Object: fake.Object{Pod: "loop-1", Container: "app"}, Hang: true,
				First: 1,
			}},
			check: func(t *testing.T, plan Plan, r Result) {
				if len(r.Failed) == 0 || r.Removed < len(plan.Remove)-40 {
					t.Errorf("%d of %d removed: %v", r.Removed, len(plan.Remove), r.Failed)
				}
			},
		},
		{
			name:   "sandboxes that cannot be stopped are not removed",
			faults: []fake.Fault{{RPC: "StopPodSandbox", Error: "Unknown: cni plugin failed"}},
			check: func(t *testing.T, plan Plan, r Result) {
				if len(r.Failed) != 10 || r.Removed != len(plan.Remove)-10 {
					t.Errorf("%d removed, failed %v", r.Removed, r.Failed)
				}
			},
		},
	}
}

func TestRunFaults(t *testing.T) {
	for _, tt := range append(downtimes(), failures()...) {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The plan is made from a twin without faults, so that these strike the run alone.
				before, plan := look(t, serve(t, flood(10, 40)), Rules{})
				c := serve(t, flood(10, 40, tt.faults...))
				ctx := t.Context()
				if tt.end > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.end)
					defer cancel()
				}
				got, err := Run(ctx, c, plan, Options{})
				if err != nil {
					t.Fatal(err)
				}
				tt.check(t, plan, got)
				if !strings.HasPrefix(tt.name, "frozen for good") && !strings.HasPrefix(tt.name, "not found") {
					verify(t, before, plan, got, left(t, c))
				}
			})
		})
	}
}
