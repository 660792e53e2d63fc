package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func bubble(t *testing.T, f func(t *testing.T, b *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newHarness(t)) })
}

func TestLifeOfAPod(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		p := looptest.Pod("p")
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		b.answers("p", "could run") // before the first housekeeping
		b.create(p)
		b.did("sync p create")
		b.answers("p", "could run")

		done := make(chan struct{})
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Second })
		b.kill(p, &KillPodOptions{Completed: done})
		b.answers("p", "could run", "requested")
		select {
		case <-done:
			t.Error("completed before its end")
		default:
		}
		<-done
		b.answers("p", "known terminated", "requested", "runtime removed")
		time.Sleep(2 * time.Second)
		b.did("terminating p grace=30", "terminated p")
		b.answers("p", "finished", "known terminated", "requested", "runtime removed")
		b.UpdatePod(UpdatePodOptions{Type: Sync, Pod: p})
		late := make(chan struct{})
		b.kill(p, &KillPodOptions{Completed: late})
		<-late
		b.did()
		b.known([]*v1.Pod{p}, "p") // while it is desired its end is remembered
		b.known(nil)
		b.answers("p", "content removed", "finished", "runtime removed")
		b.wg.Wait() // its goroutine has ended though Run goes on
	})
}

// deleted is a pod that its source deletes with a grace period.
func deleted(uid string, grace int64) *v1.Pod {
	p := looptest.Pod(uid, looptest.Deleted(grace))
	p.Spec.TerminationGracePeriodSeconds = new(int64(60))
	return p
}

// Only a shorter grace period counts, whoever asks for it. The first request cancels the sync, a shorter one the
// termination.
func TestCancellation(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		b.syncer.takes = time.Hour
		start := time.Now()
		b.create(looptest.Pod("p"))
		synctest.Wait()
		evicted := func(st *v1.PodStatus) { st.Reason = "Evicted" }
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(30)), StatusOverride: evicted})
		synctest.Wait()
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(40))})
		for _, grace := range []int64{35, 20} {
			synctest.Wait()
			b.UpdatePod(UpdatePodOptions{Type: Update, Pod: deleted("p", grace)})
		}
		synctest.Wait()
		b.kill(deleted("p", 20), &KillPodOptions{GraceOverride: new(int64(0))})
		const why = " reason=Evicted"
		b.did("sync p create", "terminating p grace=30"+why, "terminating p grace=20"+why, "terminating p grace=1"+why)
		cancelled := b.log.Lines(`"msg"="Sync exited with context cancellation error" "pod"=`)
		if time.Since(start) != 0 || len(cancelled) == 0 {
			t.Error("not cancelled")
		}
		time.Sleep(4 * time.Hour)
		b.did("terminated p")
	})
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(s int) error {
			return &BackOffError{errors.New("x"), time.Now().Add(time.Duration(s) * time.Second)}
		}
		cfg := &Config{ResyncInterval: time.Minute, BackOff: 10 * time.Second, TransientBackOff: time.Second}
		for name, tt := range map[string]struct {
			moved bool
			err   error
			want  time.Duration
		}{
			"next step":             {true, nil, 0},
			"success":               {false, nil, time.Minute},
			"network":               {false, fmt.Errorf("%w: cni", ErrNetworkNotReady), time.Second},
			"network, by text":      {false, errors.New("x: network is not ready: cni"), time.Second},
			"error":                 {false, errors.New("x"), 10 * time.Second},
			"back-off":              {false, fmt.Errorf("x: %w", in(25)), 25 * time.Second},
			"back-off that is over": {false, in(-5), 0},
			"long back-off":         {false, in(300), time.Minute},
		} {
			looptest.Equal(t, name, tt.want, cfg.requeueAfter(tt.moved, tt.err))
		}
		for range 1000 {
			if d := jitter(time.Minute); d < time.Minute || d > 90*time.Second {
				t.Fatalf("jittered to %v", d)
			}
		}
	})
}
