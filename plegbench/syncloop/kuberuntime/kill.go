package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// leastGrace, in seconds, is the least grace period of every container.
const leastGrace = 2

// KillPod stops all of a pod's running containers at the same time, sidecars after the regular ones, and then its
// sandboxes, even if a container could not be stopped. grace, in seconds, overrides the pod's own. pod is nil if only
// the runtime knows it.
func (m *Manager) KillPod(ctx context.Context, pod *v1.Pod, running *container.Pod, grace *int64) Result {
	order := newStopOrder(pod, running.Containers)
	errs := make([]error, len(running.Containers))
	var wg sync.WaitGroup
	for i, c := range running.Containers {
		wg.Go(func() {
			errs[i] = m.killContainer(ctx, pod, Kill{ID: c.ID, Name: c.Name}, grace, order)
		})
	}
	wg.Wait()
	var r Result
	for i, c := range running.Containers {
		if err := errs[i]; err != nil {
			r.add(ActionKillContainer, c.Name, ErrKillContainer, err.Error())
			m.Log.Error(err, "Kill container failed", "pod", klog.KRef(running.Namespace, running.Name), "podUID", running.UID,
				"containerName", c.Name, "containerID", loggedID(c.ID))
			continue
		}
		r.add(ActionKillContainer, c.Name, nil, "")
	}
	var reason error
	message := ""
	for _, sb := range running.Sandboxes {
		if err := m.CRI.StopPodSandbox(ctx, sb.ID.ID); err != nil && !remote.IsNotFound(err) {
			reason, message = ErrKillPodSandbox, err.Error()
			m.Log.Error(nil, "Failed to stop sandbox", "podSandboxID", loggedID(sb.ID))
		}
	}
	r.add(ActionKillSandbox, string(running.UID), reason, message)
	r.finish(nil)
	return r
}

// killContainer stops one container. Its preStop hook, the wait for its turn among sidecars and its own end share the
// grace period. grace is nil or overrides it.
func (m *Manager) killContainer(ctx context.Context, pod *v1.Pod, k Kill, grace *int64, order *stopOrder) error {
	pod, c, err := m.specOf(ctx, pod, k)
	if err != nil {
		return err
	}
	m.event(pod, c, k.ID.ID, v1.EventTypeNormal, "Killing", cmp.Or(k.Message, "Stopping container "+c.Name))
	left := graceOf(pod, c, k.Reason)
	if grace != nil {
		left = *grace
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && left > 0 {
		left -= m.preStop(ctx, pod, c, k.ID, left)
	}
	if left > 0 {
		left -= order.wait(ctx, k.Name, left)
	}
	left = max(left, leastGrace)
	line := append(about(pod, k.Name, k.ID), "gracePeriod", left)
	m.Log.V(2).Info("Killing container with a grace period", line...)
	err = m.CRI.StopContainer(ctx, k.ID.ID, time.Duration(left)*time.Second)
	if err != nil && !remote.IsNotFound(err) {
		m.Log.Error(err, "Container termination failed with gracePeriod", line...)
		return err
	}
	m.Log.V(3).Info("Container exited normally", about(pod, k.Name, k.ID)...)
	order.ended(k.Name)
	return nil
}

// specOf finds the container's spec, or restores what killing needs of it from what the runtime kept.
func (m *Manager) specOf(ctx context.Context, p *v1.Pod, k Kill) (*v1.Pod, *v1.Container, error) {
	if p == nil {
		s, err := m.CRI.ContainerStatus(ctx, k.ID.ID)
		if err != nil {
			return nil, nil, err
		}
		p, c := restoreSpec(s)
		return p, c, nil
	}
	if c := cmp.Or(pod.Container(p.Spec.Containers, k.Name), pod.Container(p.Spec.InitContainers, k.Name)); c != nil {
		return p, c, nil
	}
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == k.Name {
			c := v1.Container(e.EphemeralContainerCommon)
			return p, &c, nil
		}
	}
	return nil, nil, fmt.Errorf("failed to get containerSpec %q (id=%q) in pod %q when killing container for reason %q",
		k.Name, k.ID, describe(p), k.Message)
}

// restoreSpec builds, from a container's labels and annotations, as much of its pod as killing it takes. What is
// missing or unreadable stays empty.
func restoreSpec(s *runtimeapi.ContainerStatus) (*v1.Pod, *v1.Container) {
	labels := s.GetLabels()
	read := func(key string, into any) bool { return json.Unmarshal([]byte(s.GetAnnotations()[key]), into) == nil }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID:  types.UID(labels[container.PodUIDLabel]),
		Name: labels[container.PodNameLabel], Namespace: labels[container.PodNamespaceLabel],
	}}
	c := &v1.Container{Name: labels[container.ContainerNameLabel]}
	var seconds int64
	if read(container.DeletionGracePeriodAnnotation, &seconds) {
		p.DeletionGracePeriodSeconds = new(seconds)
	}
	if read(container.TerminationGracePeriodAnnotation, &seconds) {
		p.Spec.TerminationGracePeriodSeconds = new(seconds)
	}
	read(container.PortsAnnotation, &c.Ports)
	var hook v1.LifecycleHandler
	if read(container.PreStopHandlerAnnotation, &hook) {
		c.Lifecycle = &v1.Lifecycle{PreStop: &hook}
	}
	return p, c
}

// graceOf is the grace period in seconds: that of the pod's deletion, or of the probe that failed, or of the pod.
func graceOf(pod *v1.Pod, c *v1.Container, reason killReason) int64 {
	if pod.DeletionGracePeriodSeconds != nil {
		return *pod.DeletionGracePeriodSeconds
	}
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		return leastGrace
	}
	probes := map[killReason]*v1.Probe{reasonStartupProbe: c.StartupProbe, reasonLivenessProbe: c.LivenessProbe}
	if p := probes[reason]; p != nil && p.TerminationGracePeriodSeconds != nil {
		return *p.TerminationGracePeriodSeconds
	}
	return *pod.Spec.TerminationGracePeriodSeconds
}

// preStop runs a hook, at most for the grace period, and returns the whole seconds that it took. After that the
// container is stopped in any case.
func (m *Manager) preStop(ctx context.Context, pod *v1.Pod, c *v1.Container, id container.ID, grace int64) int64 {
	keys := about(pod, c.Name, id)
	start := time.Now()
	within, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second)
	defer cancel()
	_, err := m.runHook(within, pod, c, id, c.Lifecycle.PreStop)
	switch {
	case err != nil && within.Err() != nil:
		m.Log.V(2).Info("PreStop hook not completed in grace period", append(keys, "gracePeriod", grace)...)
	case err != nil:
		m.Log.Error(err, "PreStop hook failed", keys...)
		// The error stays out of the event: it may contain secrets.
		m.event(pod, c, id.ID, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return int64(time.Since(start) / time.Second)
}

// A stopOrder orders the end of a pod with sidecars: they end after all regular containers, and each after those that
// were started after it. nil orders nothing.
type stopOrder struct {
	over    map[string]chan struct{}   // closed when a container has ended, or does not run
	waitFor map[string][]chan struct{} // by sidecar
}

func newStopOrder(p *v1.Pod, running []*container.Container) *stopOrder {
	if p == nil {
		return nil
	}
	t := &stopOrder{over: map[string]chan struct{}{}, waitFor: map[string][]chan struct{}{}}
	var before []chan struct{}
	add := func(name string) {
		if slices.ContainsFunc(running, func(c *container.Container) bool { return c.Name == name }) {
			t.over[name] = make(chan struct{})
			before = append(before, t.over[name])
		}
	}
	for _, c := range p.Spec.Containers {
		add(c.Name)
	}
	for i := range slices.Backward(p.Spec.InitContainers) {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			t.waitFor[c.Name] = slices.Clone(before)
			add(c.Name)
		}
	}
	return t
}

// wait waits for a container's turn, at most for the seconds that are left, and returns the whole seconds that it took.
func (t *stopOrder) wait(ctx context.Context, name string, left int64) int64 {
	if t == nil {
		return 0
	}
	start := time.Now()
	over := time.After(time.Duration(left) * time.Second)
	for _, ch := range t.waitFor[name] {
		select {
		case <-ch:
		case <-over:
			return left
		case <-ctx.Done():
			return left
		}
	}
	return int64(time.Since(start) / time.Second)
}

// ended notes that a container has ended, which each container does once.
func (t *stopOrder) ended(name string) {
	if t == nil {
		return
	}
	if ch, ok := t.over[name]; ok {
		close(ch)
	}
}

// A loggedID is an ID that prints as {"Type":...,"ID":...}, which is what the kubelet's log has in some lines.
type loggedID struct{ Type, ID string }

// about are the keys with which most lines about a container begin.
func about(pod *v1.Pod, name string, id container.ID) []any {
	return []any{"pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "containerID", id.String()}
}
