//go:build e2e

package syncloop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// A syncLoop that is started again takes over what runs and ends what is not wanted any more; so it does with a
// containerd that is started again. What others run on the same socket is left alone.
func TestEndToEndRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	foreign := n.box.RunPods(t, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	names := []string{"a", "b", "unwanted"}
	for _, name := range names {
		n.apply(newPod(name, shell("c", forever)))
	}
	n.start()
	before := n.allRunning(names)

	n.stop()
	n.remove("unwanted")
	n.start()
	ended := func(*v1.Pod) bool { return len(n.running("unwanted")) == 0 }
	n.awaitPod("the unwanted pod to be ended", "unwanted", ended)
	names = names[:2]
	delete(before, "unwanted")
	n.unchanged("the restart of the syncLoop", names, before)
	n.log.Has(t, "Clean up containers for orphaned pod we had not seen before")

	e2etest.Must(t, n.box.Restart(t.Context()))
	n.unchanged("the restart of containerd", names, before)
	n.apply(newPod("late", shell("c", forever)))
	n.awaitReady("late")

	got, err := n.cri.ContainerStatus(t.Context(), foreign[0].Containers[0].ID)
	if err != nil || got.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container of another is %v, %v", got, err)
	}
	testkit.Equal(t, "pods of others", 1, n.Snapshot().Foreign)
}

// allRunning waits until the pods are ready and returns what runs of them.
func (n *node) allRunning(names []string) map[string]map[string]string {
	n.t.Helper()
	out := map[string]map[string]string{}
	for _, name := range names {
		n.awaitReady(name)
		out[name] = n.running(name)
		if len(out[name]) != 1 {
			n.t.Fatalf("%s has the running containers %v", name, out[name])
		}
	}
	return out
}

// unchanged waits for the syncLoop to have looked around and complains if it started anything anew.
func (n *node) unchanged(after string, names []string, before map[string]map[string]string) {
	n.t.Helper()
	relists, turns := n.Snapshot().PLEG.Relists, n.Snapshot().Loop.Turns
	n.await("the loop to turn after "+after, func() error {
		if s := n.Snapshot(); s.PLEG.Relists < relists+10 || s.Loop.Turns < turns+10 || !s.Loop.SkippingSince.IsZero() {
			return fmt.Errorf("%d relists, %d turns, skipping since %v", s.PLEG.Relists-relists, s.Loop.Turns-turns,
				s.Loop.SkippingSince)
		}
		return nodeIs(n.Snapshot().Conditions, v1.NodeReady, v1.ConditionTrue)
	})
	testkit.Equal(n.t, "running after "+after, before, n.allRunning(names))
	for _, name := range names {
		testkit.Equal(n.t, "restarts of "+name+" after "+after, int32(0), containerOf(n.pod(name)).RestartCount)
	}
}

// nodeIs complains unless a node's condition has a status.
func nodeIs(conditions []v1.NodeCondition, kind v1.NodeConditionType, is v1.ConditionStatus) error {
	if !slices.ContainsFunc(conditions, func(c v1.NodeCondition) bool { return c.Type == kind && c.Status == is }) {
		return fmt.Errorf("the node's conditions are %+v", conditions)
	}
	return nil
}

// The runtime's events alone drive the pods, for the next relist is minutes away: a start, a death, a crash loop, the
// end of a pod, a death while no syncLoop ran. A runtime that has no events, or is started again, makes the evented
// PLEG fall back to relisting.
func TestEndToEndEventedPLEG(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	n.cfg.Kubelet.FeatureGates = map[string]bool{"EventedPLEG": true}
	n.cfg.Periods.EventedRelist = 4 * e2ePatience // it must not be what notices
	n.cfg.Periods.EventedThreshold = 8 * e2ePatience
	n.apply(newPod("a", shell("c", forever)))
	n.apply(newPod("crash", shell("c", "exit 3")))
	n.start()
	n.awaitReady("a")
	n.killOnly("a")
	restarted := func(times int32) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool {
			c := containerOf(p)
			return c.RestartCount == times && c.State.Running != nil
		}
	}
	n.awaitPod("the death to be noticed", "a", restarted(1))
	n.awaitPod("the crash loop", "crash", func(p *v1.Pod) bool { return containerOf(p).RestartCount >= 2 })
	n.remove("crash")
	n.awaitPod("the end of the pod", "crash", func(p *v1.Pod) bool { return p.Name == "" })

	version, err := n.cri.Version(t.Context())
	e2etest.Must(t, err)
	const line = "Fall back to Generic PLEG relisting since Evented PLEG is not working"
	if strings.HasPrefix(version.GetRuntimeVersion(), "1.6.") { // containerd has events since 1.7
		n.log.Has(t, line)
		return
	}
	if relists := n.Snapshot().PLEG.Relists; len(n.log.Lines(line)) > 0 || relists != 1 {
		t.Errorf("%d relists, want the first alone; fallen back: %v", relists, len(n.log.Lines(line)) > 0)
	}
	n.stop()
	n.killOnly("a")
	n.start()
	n.awaitPod("the death before the start to be noticed", "a", restarted(2))

	e2etest.Must(t, n.box.Restart(t.Context()))
	n.awaitPod("the fall-back", "a", func(*v1.Pod) bool { return len(n.log.Lines(line)) > 0 })
	n.killOnly("a")
	n.awaitPod("the death after it to be noticed", "a", restarted(3))
}

// killOnly ends the one container of a pod that runs, behind the syncLoop's back.
func (n *node) killOnly(name string) {
	n.t.Helper()
	ids := slices.Collect(maps.Values(n.running(name)))
	if len(ids) != 1 {
		n.t.Fatalf("%s has the running containers %v", name, ids)
	}
	e2etest.Must(n.t, n.cri.StopContainer(n.t.Context(), ids[0], 0))
}
