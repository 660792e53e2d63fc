package kuberuntime

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestGate wants a place to be waited for, to be free again after a leave or startCounts, and a leave to count once.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate, 1)
		began := time.Now()
		entered := func() time.Duration { return time.Since(began) }

		leave := g.enter(t.Context())
		go func() {
			time.Sleep(100 * time.Millisecond)
			leave()
		}()
		stuck := g.enter(t.Context())
		if at := entered(); at != 100*time.Millisecond {
			t.Errorf("second entered after %v, want when the first left", at)
		}
		g.enter(t.Context())
		if at := entered(); at != 100*time.Millisecond+startCounts {
			t.Errorf("third entered after %v, want startCounts after the second", at)
		}
		stuck() // late: its place is the third's by now
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		g.enter(ctx)()
		if at := entered(); at != 110*time.Millisecond+startCounts {
			t.Errorf("fourth went on after %v, want at the end of its context", at)
		}
		time.Sleep(startCounts)
	})
}

// TestNewPodsOneByOne wants a pod to keep its place from its sandbox to its first container, and to leave it to the next then.
func TestNewPodsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.starting = make(gate, 1)
		r.SandboxReady = func(*v1.Pod) { time.Sleep(100 * time.Millisecond) } // in which others could begin
		one := testPod("main")
		two := one.DeepCopy()
		two.Name, two.UID = "two", "uid-2"
		oneNow, twoNow := r.now(t, one), r.now(t, two) // before either begins: this takes what was called so far
		var both sync.WaitGroup
		both.Go(func() { r.SyncPod(t.Context(), one, oneNow, nil) })
		both.Go(func() { r.SyncPod(t.Context(), two, twoNow, nil) })
		both.Wait()
		calls := slices.DeleteFunc(r.cri.took(), func(c string) bool { return strings.HasPrefix(c, "List") || strings.HasPrefix(c, "PodSandboxStatus") })
		each := []string{"RunPodSandbox 0", "CreateContainer main", "StartContainer main"}
		same(t, "calls", slices.Concat(each, each), calls)
	})
}
