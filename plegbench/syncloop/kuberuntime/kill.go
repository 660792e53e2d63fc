package kuberuntime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// leastGrace, in seconds, is what every container gets to end by itself, whatever was asked for.
const leastGrace = 2

// KillPod stops all of a pod's running containers at the same time, sidecars after the regular ones, and then its sandboxes,
// even if a container could not be stopped. grace, in seconds, goes before the pod's own. pod is nil if it is known no more.
func (m *Manager) KillPod(ctx context.Context, pod *v1.Pod, running *container.Pod, grace *int64) Result {
	r := m.killPod(ctx, pod, running, grace)
	r.finish(nil)
	return r
}

func (m *Manager) killPod(ctx context.Context, pod *v1.Pod, running *container.Pod, grace *int64) Result {
	turns := newTurns(pod, running.Containers)
	errs := make([]error, len(running.Containers))
	var wg sync.WaitGroup
	for i, c := range running.Containers {
		wg.Go(func() {
			errs[i] = m.killContainer(ctx, pod, Kill{ID: c.ID, Name: c.Name, Reason: reasonUnknown}, grace, turns)
		})
	}
	wg.Wait()
	var r Result
	for i, c := range running.Containers {
		var reason error
		message := ""
		if err := errs[i]; err != nil {
			reason, message = ErrKillContainer, err.Error()
			m.Log.Error(err, "Kill container failed", "pod", klog.KRef(running.Namespace, running.Name), "podUID", running.UID,
				"containerName", c.Name, "containerID", loggedID(c.ID))
		}
		r.add(ActionKillContainer, c.Name, reason, message)
	}
	var reason error
	message := ""
	for _, sb := range running.Sandboxes {
		if err := m.CRI.StopPodSandbox(ctx, sb.ID.ID); err != nil && !isNotFound(err) {
			reason, message = ErrKillPodSandbox, err.Error()
			m.Log.Error(nil, "Failed to stop sandbox", "podSandboxID", loggedID(sb.ID))
		}
	}
	r.add(ActionKillSandbox, string(running.UID), reason, message)
	return r
}

// killContainer stops one container: its preStop hook, its turn among sidecars and its own end share the grace period. grace
// is nil or overrides it.
func (m *Manager) killContainer(ctx context.Context, pod *v1.Pod, k Kill, grace *int64, turns *turns) error {
	pod, c, err := m.specOf(ctx, pod, k)
	if err != nil {
		return err
	}
	message := k.Message
	if message == "" {
		message = "Stopping container " + c.Name
	}
	m.event(pod, c, k.ID.ID, v1.EventTypeNormal, "Killing", message)
	left := graceOf(pod, c, k.Reason)
	if grace != nil {
		left = *grace
		m.Log.V(3).Info("Killing container with a grace period override", append(about(pod, k.Name, k.ID), "gracePeriod", left)...)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && left > 0 {
		left -= m.preStop(ctx, pod, c, k.ID, left)
	}
	if left > 0 {
		left -= turns.wait(ctx, k.Name, left)
	}
	left = max(left, leastGrace)
	line := append(about(pod, k.Name, k.ID), "gracePeriod", left)
	m.Log.V(2).Info("Killing container with a grace period", line...)
	err = m.CRI.StopContainer(ctx, k.ID.ID, time.Duration(left)*time.Second)
	if err != nil && !isNotFound(err) {
		m.Log.Error(err, "Container termination failed with gracePeriod", line...)
		return err
	}
	m.Log.V(3).Info("Container exited normally", about(pod, k.Name, k.ID)...)
	turns.ended(k.Name)
	return nil
}

// specOf finds the container's spec, or restores what killing needs of it from what the runtime kept.
func (m *Manager) specOf(ctx context.Context, p *v1.Pod, k Kill) (*v1.Pod, *v1.Container, error) {
	if p == nil {
		s, err := m.CRI.ContainerStatus(ctx, k.ID.ID)
		if err != nil {
			return nil, nil, err
		}
		p, c := restoreSpec(m.Log, s.GetLabels(), s.GetAnnotations())
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

// preStop runs a hook, at most for the grace period, and returns the whole seconds that it took. A hook that takes longer is
// given up, and the container stopped.
func (m *Manager) preStop(ctx context.Context, pod *v1.Pod, c *v1.Container, id container.ID, grace int64) int64 {
	keys := about(pod, c.Name, id)
	m.Log.V(3).Info("Running preStop hook", keys...)
	start := time.Now()
	within, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second)
	defer cancel()
	_, err := m.runHook(within, pod, c, id, c.Lifecycle.PreStop)
	switch {
	case err != nil && within.Err() != nil:
		m.Log.V(2).Info("PreStop hook not completed in grace period", append(keys, "gracePeriod", grace)...)
	case err != nil:
		m.Log.Error(err, "PreStop hook failed", keys...)
		// The error stays out of the event: it may hold secrets.
		m.event(pod, c, id.ID, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		m.Log.V(3).Info("PreStop hook completed", keys...)
	default:
		m.Log.V(3).Info("PreStop hook completed", keys...)
	}
	return int64(time.Since(start) / time.Second)
}

// turns order the end of a pod with sidecars: they end after all regular containers, and each after those that were started
// after it. nil orders nothing.
type turns struct {
	over    map[string]chan struct{}   // closed when a container has ended, or does not run
	waitFor map[string][]chan struct{} // by sidecar
}

func newTurns(p *v1.Pod, running []*container.Container) *turns {
	if p == nil || !slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool { return pod.IsSidecar(&c) }) {
		return nil
	}
	t := &turns{over: map[string]chan struct{}{}, waitFor: map[string][]chan struct{}{}}
	add := func(name string) chan struct{} {
		ch := make(chan struct{})
		if slices.ContainsFunc(running, func(c *container.Container) bool { return c.Name == name }) {
			t.over[name] = ch
		} else {
			close(ch)
		}
		return ch
	}
	var before []chan struct{}
	for _, c := range p.Spec.Containers {
		before = append(before, add(c.Name))
	}
	for i := len(p.Spec.InitContainers) - 1; i >= 0; i-- {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			t.waitFor[c.Name] = slices.Clone(before)
			before = append(before, add(c.Name))
		}
	}
	return t
}

// wait waits for a container's turn, at most for the seconds that are left, and returns the whole seconds that it took.
func (t *turns) wait(ctx context.Context, name string, left int64) int64 {
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

// ended says that a container has ended. Each container ends once; over is not written meanwhile.
func (t *turns) ended(name string) {
	if t == nil {
		return
	}
	if ch, ok := t.over[name]; ok {
		close(ch)
	}
}
