package podworkers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func bubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t)) })
}

func equal(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

func TestLifeOfAPod(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		p := testPod("p")
		grace := int64(30)
		p.Spec.TerminationGracePeriodSeconds = &grace
		equal(t, "unknown, before the first housekeeping", []string{"could run"}, b.answers("p"))
		b.create(p)
		equal(t, "created", []string{"sync p create"}, b.settled())
		equal(t, "runs", []string{"could run"}, b.answers("p"))

		done := make(chan struct{})
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Second })
		b.kill(p, &KillOptions{Completed: done})
		synctest.Wait()
		equal(t, "terminating", []string{"could run", "requested"}, b.answers("p"))
		select {
		case <-done:
			t.Error("told of the end before it")
		default:
		}
		<-done
		synctest.Wait()
		equal(t, "terminated", []string{"known terminated", "requested", "runtime removed"}, b.answers("p"))
		time.Sleep(2 * time.Second)
		equal(t, "steps", []string{"terminating p grace=30", "terminated p"}, b.settled())
		equal(t, "finished", []string{"known terminated", "finished", "requested", "runtime removed"}, b.answers("p"))
		b.UpdatePod(UpdateOptions{Type: Sync, Pod: p})
		late := make(chan struct{})
		b.kill(p, &KillOptions{Completed: late})
		<-late
		equal(t, "an update of what has ended", nil, b.settled())
		if got := b.SyncKnownPods([]*v1.Pod{p}); len(got) != 1 || !got["p"] {
			t.Errorf("while it is desired its end is remembered: %v", got)
		}
		if got := b.SyncKnownPods(nil); len(got) != 0 || len(b.Snapshot()) != 0 {
			t.Errorf("left: %v %v", got, b.Snapshot())
		}
		equal(t, "forgotten", []string{"finished", "runtime removed", "content removed"}, b.answers("p"))
		b.wg.Wait() // its goroutine has ended though Run goes on
	})
}

func TestEviction(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.create(testPod("p"))
		b.settled()
		b.syncer.set(func(s *fakeSyncer) { s.err["terminating"] = errSick })
		zero := int64(0)
		b.kill(testPod("p"), &KillOptions{Evict: true, GraceOverride: &zero, StatusOverride: func(st *v1.PodStatus) { st.Reason = "Evicted" }})
		equal(t, "killed", []string{"terminating p grace=1 reason=Evicted"}, b.settled())
		if !b.ShouldPodContentBeRemoved("p") || b.IsPodKnownTerminated("p") {
			t.Error("evicted, not ended")
		}
		// A retry knows how the pod shall end, though the update that brings it does not.
		b.syncer.set(func(s *fakeSyncer) { clear(s.err) })
		b.UpdatePod(UpdateOptions{Type: Sync, Pod: testPod("p")})
		equal(t, "again", []string{"terminating p grace=1 reason=Evicted", "terminated p"}, b.settled())
	})
}

func TestNewestUpdateWins(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.syncer.takes = 10 * time.Second
		b.create(testPod("p"))
		synctest.Wait()
		for _, mirror := range []string{"m1", "m2"} {
			b.UpdatePod(UpdateOptions{Type: Update, Pod: testPod("p"), MirrorPod: testPod(mirror), StartTime: time.Now()})
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second)
		equal(t, "steps", []string{"sync p create", "sync p update mirror=m2"}, b.settled())
		var out dto.Metric
		if err := b.metrics.PodWorkerDuration.WithLabelValues("update").(interface{ Write(*dto.Metric) error }).Write(&out); err != nil {
			t.Fatal(err)
		}
		if h := out.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 20 {
			t.Errorf("measured %d times, %v s: want one from the oldest update's start", h.GetSampleCount(), h.GetSampleSum())
		}
	})
}

func TestCancellation(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.syncer.takes = time.Hour
		start := time.Now()
		b.create(testPod("p"))
		synctest.Wait()
		thirty, five, forty := int64(30), int64(5), int64(40)
		b.kill(testPod("p"), &KillOptions{GraceOverride: &thirty}) // cancels the sync
		synctest.Wait()
		b.kill(testPod("p"), &KillOptions{GraceOverride: &forty}) // cannot grow: nothing is cancelled
		synctest.Wait()
		b.kill(testPod("p"), &KillOptions{GraceOverride: &five}) // cancels the termination
		equal(t, "steps", []string{"sync p create", "terminating p grace=30", "terminating p grace=5"}, b.settled())
		if time.Since(start) != 0 || !b.logged(`"msg"="Sync exited with context cancellation error" "pod"=`) {
			t.Error("not cancelled")
		}
		time.Sleep(3 * time.Hour)
		equal(t, "end", []string{"terminated p"}, b.settled())
	})
}

// While PLEG is stuck a worker waits, and not even a kill gets it out.
func TestStuckInTheCache(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.cache.gate = make(chan struct{})
		b.create(testPod("p"))
		time.Sleep(time.Hour)
		since := time.Now().Add(-time.Hour)
		want := []WorkerState{{UID: "p", Name: "ns/p", Step: "sync", WaitingInCache: true, Busy: true, Since: since}}
		if diff := cmp.Diff(want, b.Snapshot()); diff != "" {
			t.Error(diff)
		}
		b.kill(testPod("p"), nil)
		time.Sleep(time.Hour)
		equal(t, "stuck", nil, b.settled())
		close(b.cache.gate)
		equal(t, "free", []string{"sync p create", "terminating p grace=1", "terminated p"}, b.settled())
		b.stop()
		b.wg.Wait()
	})
}

func TestTerminalAtFirstSight(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		p := testPod("ended")
		p.Status.Phase = v1.PodFailed
		b.create(p)
		equal(t, "not synced", []string{"terminating ended grace=1", "terminated ended"}, b.settled())
	})
}

func TestRestartUnderTheSameUID(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.create(testPod("p"))
		b.settled()
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Minute })
		b.kill(testPod("p"), nil)
		b.create(testPod("p"))
		if got := b.SyncKnownPods([]*v1.Pod{testPod("p")}); len(got) != 1 {
			t.Errorf("forgotten before its end: %v", got)
		}
		time.Sleep(3 * time.Minute)
		equal(t, "the first ends", []string{"terminating p grace=1", "terminated p"}, b.settled())
		if got := b.SyncKnownPods([]*v1.Pod{testPod("p")}); len(got) != 0 {
			t.Errorf("not forgotten: %v", got)
		}
		b.syncer.set(func(s *fakeSyncer) { s.takes = 0; clear(s.furthest) })
		b.create(testPod("p"))
		equal(t, "the second begins", []string{"sync p create"}, b.settled())
	})
}

func TestStaticPodsOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		first, second, third := staticPod("1", "web"), staticPod("2", "web"), staticPod("3", "web")
		b.create(first)
		b.settled()
		b.create(second)
		b.create(third)
		equal(t, "one at a time", nil, b.settled())
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Second })
		b.kill(first, nil)
		synctest.Wait()
		if !b.IsPodForMirrorPodTerminatingByFullName("web_ns") {
			t.Error("the first is being ended")
		}
		time.Sleep(10 * time.Second)
		b.syncer.take()
		if b.IsPodForMirrorPodTerminatingByFullName("web_ns") {
			t.Error("the first has ended")
		}
		b.kill(second, nil) // ends before it began
		b.UpdatePod(UpdateOptions{Type: Sync, Pod: third})
		equal(t, "the third", []string{"sync 3 sync"}, b.settled())
		if !b.ShouldPodBeFinished("2") {
			t.Error("the second has not ended")
		}
	})
}

func TestOrphanOfTheRuntime(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.cache.gate = make(chan struct{}) // no status of it is awaited
		orphan := &container.Pod{UID: "o", Name: "o", Namespace: "ns"}
		b.syncer.set(func(s *fakeSyncer) { s.err["terminating"] = errSick })
		b.UpdatePod(UpdateOptions{Type: Kill, RunningPod: orphan})
		equal(t, "killed", []string{"terminating runtime o"}, b.settled())
		if diff := cmp.Diff(map[types.UID]bool{"o": true}, b.SyncKnownPods(nil)); diff != "" {
			t.Error(diff)
		}
		equal(t, "housekeeping tries again", []string{"terminating runtime o"}, b.settled())
		b.syncer.set(func(s *fakeSyncer) { clear(s.err) })
		b.SyncKnownPods(nil)
		equal(t, "and again", []string{"terminating runtime o"}, b.settled())
		if got := b.SyncKnownPods(nil); len(got) != 0 {
			t.Errorf("left %v", got)
		}
	})
}
