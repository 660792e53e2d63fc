package gc

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// stuckPod is a node with 10 crash-looping pods and one whose containers are the oldest.
func stuckPod(faults ...fake.Fault) fake.Scenario {
	s := flood(10, 20, faults...)
	s.Pods = append(s.Pods, fake.PodGroup{
		Namespace: "batch", Name: "stuck", Age: second(480 * 3600),
		Containers: []fake.ContainerGroup{{Name: "load", Exited: 40, Every: second(5 * 3600)}},
	})
	return s
}

// TestRunStuckPod lets the removals of the oldest pod hang: all the others go meanwhile, in little more than the time
// they take without it, and the pod is named.
func TestRunStuckPod(t *testing.T) {
	for _, rpc := range []string{"RemoveContainer", "ContainerStatus"} {
		t.Run(rpc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, plan := look(t, serve(t, stuckPod()), Rules{})
				c := serve(t, stuckPod(fake.Fault{RPC: rpc, Object: fake.Object{Pod: "stuck"}, Hang: true}))
				var others time.Duration // until all others were gone
				own, start := 0, time.Now()
				for _, v := range plan.Remove {
					if v.Pod == "stuck" {
						own++
					}
				}
				got, err := Run(t.Context(), c, plan, Options{Progress: func(p Progress) {
					if others == 0 && p.Removed == len(plan.Remove)-own {
						others = time.Since(start)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				verify(t, before, plan, got, left(t, c))
				if own < 30 || got.Removed != len(plan.Remove)-own || len(got.Failed) != own {
					t.Errorf("%d removed of %d, %d failed, %d of the pod", got.Removed, len(plan.Remove), len(got.Failed), own)
				}
				if others == 0 || others > 30*time.Second || got.Seconds > 60 {
					t.Errorf("the others took %v, all %v s", others, got.Seconds)
				}
				for _, f := range got.Failed {
					if !strings.HasPrefix(f.Error, "pod batch/stuck does not answer: ") {
						t.Errorf("%+v", f)
					}
				}
			})
		})
	}
}

// TestRunAllStuck ends a run of which no removal is answered, by itself and by its deadline.
func TestRunAllStuck(t *testing.T) {
	for _, end := range []time.Duration{20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			before, plan := look(t, serve(t, stuckPod()), Rules{})
			c := serve(t, stuckPod(fake.Fault{RPC: "RemoveContainer", Hang: true}))
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			start := time.Now()
			got, err := Run(ctx, c, plan, Options{})
			if err != nil {
				t.Fatal(err)
			}
			verify(t, before, plan, got, left(t, c))
			if took := time.Since(start); took > min(end, 10*time.Minute) || got.Removed != 0 {
				t.Errorf("it took %v of %v, %d removed", took, end, got.Removed)
			}
		})
	}
}

// TestReadEndsStuckPod asks for the ends on a node with a pod that does not answer: those of the others are had.
func TestReadEndsStuckPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, stuckPod(fake.Fault{RPC: "ContainerStatus", Object: fake.Object{Pod: "stuck"}, Hang: true}))
		list := c.ListContainers(t.Context(), crictl.Filter{}, "")
		sandboxes := c.ListPodSandbox(t.Context(), crictl.Filter{}, "")
		ask := Candidates(Node{Sandboxes: sandboxes.Sandboxes, Containers: list.Containers}, Rules{}, time.Now())
		ends, missed := ReadEnds(t.Context(), c, ask, nil)
		own := 0
		for _, k := range ask {
			if k.PodUID == ask[0].PodUID {
				own++
			}
		}
		if own < 30 || len(ends) != len(ask)-own || missed.Count != own ||
			!strings.Contains(missed.First, "DeadlineExceeded") {
			t.Errorf("%d ends of %d, %d of the pod, missed %+v", len(ends), len(ask), own, missed)
		}
	})
}

// TestReadEndsNoAnswers stops when the runtime answers for no container.
func TestReadEndsNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plan := look(t, serve(t, stuckPod()), Rules{})
		c := serve(t, stuckPod(fake.Fault{RPC: "ContainerStatus", Hang: true}))
		start := time.Now()
		ends, missed := ReadEnds(t.Context(), c, plan.Remove, nil)
		if took := time.Since(start); len(ends) != 0 || missed.Count != len(plan.Remove) || took > time.Minute {
			t.Errorf("%d ends, missed %d of %d, in %v", len(ends), missed.Count, len(plan.Remove), took)
		}
	})
}

// TestRunAuditHangs lets the disk of the audit file hang: the run ends on time, and claims nothing that is not
// recorded.
func TestRunAuditHangs(t *testing.T) {
	c := serve(t, flood(4, 40))
	before, plan := look(t, c, Rules{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := errors.Join(w.SetWriteDeadline(time.Now().Add(50*ms)), fill(w),
		w.SetWriteDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	defer w.Close() // ends the writes that were left behind
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	start := time.Now()
	got, err := Run(ctx, c, plan, Options{Audit: &Audit{file: w}})
	if took := time.Since(start); err == nil || took > 6*time.Second || got.Removed != 0 || len(got.Failed) == 0 ||
		len(got.Failed) > 32 {
		t.Errorf("%v in %v: %d removed, %d failed", err, took, got.Removed, len(got.Failed))
	}
	for _, f := range got.Failed {
		if !strings.HasPrefix(f.Error, "it was removed, but the audit file does not say so") {
			t.Errorf("%+v", f)
		}
	}
	verify(t, before, plan, got, left(t, c))
}

// fill writes to a pipe until it is full.
func fill(w *os.File) error {
	for {
		if _, err := w.Write(make([]byte, 4096)); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
