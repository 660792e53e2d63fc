package kuberuntime

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestNewPodsOneByOne wants a pod to keep its place from its sandbox to its first container, and to leave it to the
// next then.
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
		both.Go(func() { r.SyncPod(t.Context(), one, oneNow) })
		both.Go(func() { r.SyncPod(t.Context(), two, twoNow) })
		both.Wait()
		calls := slices.DeleteFunc(r.cri.took(), func(c string) bool { return strings.HasPrefix(c, "List") || strings.HasPrefix(c, "PodSandboxStatus") })
		each := []string{"RunPodSandbox 0", "CreateContainer main", "StartContainer main"}
		same(t, "calls", slices.Concat(each, each), calls)
	})
}
