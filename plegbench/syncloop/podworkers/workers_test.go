package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
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

func TestEviction(t *testing.T) {
	bubble(t, func(_ *testing.T, b *harness) {
		b.create(looptest.Pod("p"))
		b.did("sync p create")
		b.syncer.set(func(s *fakeSyncer) { s.err["terminating"] = errSick })
		b.kill(looptest.Pod("p"), &KillPodOptions{
			Evict: true, GraceOverride: new(int64(0)), StatusOverride: func(st *v1.PodStatus) { st.Reason = "Evicted" },
		})
		b.did("terminating p grace=1 reason=Evicted")
		b.answers("p", "content removed", "could run", "requested")
		// A retry keeps the options, though the update that brings it does not have them.
		b.syncer.set(func(s *fakeSyncer) { clear(s.err) })
		b.UpdatePod(UpdatePodOptions{Type: Sync, Pod: looptest.Pod("p")})
		b.did("terminating p grace=1 reason=Evicted", "terminated p")
	})
}

// TestEndedBeforeTheStart has pods that a source knows to have ended. One whose containers run all the same is stopped.
func TestEndedBeforeTheStart(t *testing.T) {
	bubble(t, func(_ *testing.T, b *harness) {
		running := &container.PodStatus{ContainerStatuses: []*container.Status{{Name: "app", State: container.Running}}}
		b.cache.Set("r", running, nil, always)
		for _, uid := range []string{"p", "r"} {
			p := looptest.Pod(uid)
			p.Status.Phase = v1.PodSucceeded
			b.create(p)
			want := map[string][]string{"p": {"terminated p"}, "r": {"terminating r grace=1", "terminated r"}}[uid]
			b.did(want...)
		}
	})
}

func TestNewestUpdateWins(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		b.syncer.takes = 10 * time.Second
		b.create(looptest.Pod("p"))
		synctest.Wait()
		for _, mirror := range []string{"m1", "m2"} {
			b.UpdatePod(UpdatePodOptions{
				Type: Update, Pod: looptest.Pod("p"), MirrorPod: looptest.Pod(mirror), StartTime: time.Now(),
			})
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second)
		b.did("sync p create", "sync p update mirror=m2")
		duration := b.cfg.Metrics.PodWorkerDuration.WithLabelValues("update")
		h := looptest.Metric(t, duration).GetHistogram()
		got := []any{h.GetSampleCount(), h.GetSampleSum()}
		looptest.Equal(t, "measured once, from the oldest update's start", []any{uint64(1), 20.0}, got)
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
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(30))})
		synctest.Wait()
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(40))})
		for _, grace := range []int64{35, 20} {
			synctest.Wait()
			b.UpdatePod(UpdatePodOptions{Type: Update, Pod: deleted("p", grace)})
		}
		synctest.Wait()
		b.kill(deleted("p", 20), &KillPodOptions{GraceOverride: new(int64(0))})
		b.did("sync p create", "terminating p grace=30", "terminating p grace=20", "terminating p grace=1")
		cancelled := b.log.Lines(`"msg"="Sync exited with context cancellation error" "pod"=`)
		if time.Since(start) != 0 || len(cancelled) == 0 {
			t.Error("not cancelled")
		}
		time.Sleep(4 * time.Hour)
		b.did("terminated p")
	})
}

func TestStaticPodsOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		first, second, third := staticPod("1", "web"), staticPod("2", "web"), staticPod("3", "web")
		for _, p := range []*v1.Pod{first, second, third} {
			b.create(p)
			synctest.Wait()
		}
		b.did("sync 1 create")
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Second })
		b.kill(first, nil)
		synctest.Wait()
		terminating := b.IsPodForMirrorPodTerminatingByFullName("web_shop")
		time.Sleep(10 * time.Second)
		b.did("terminating 1 grace=1", "terminated 1")
		after := b.IsPodForMirrorPodTerminatingByFullName("web_shop")
		looptest.Equal(t, "the first is terminating, and after its end", []bool{true, false}, []bool{terminating, after})
		b.kill(second, nil) // ends before it began
		b.UpdatePod(UpdatePodOptions{Type: Sync, Pod: third})
		b.did("sync 3 sync")
		looptest.Equal(t, "the second has ended", true, b.ShouldPodBeFinished("2"))
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
