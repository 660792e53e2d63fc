package syncloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
)

// SyncPod brings a pod closer to its spec. The pod's worker calls it again and again. It takes the kubelet's steps, in
// the kubelet's order (pkg/kubelet/kubelet.go).
func (s *SyncLoop) SyncPod(
	ctx context.Context, update podworkers.UpdateType, p, mirror *v1.Pod, running *container.PodStatus,
) (isTerminal bool, err error) {
	firstSeen, _ := time.Parse(time.RFC3339Nano, p.Annotations[pod.ConfigFirstSeenAnnotation]) // zero without one
	if update == podworkers.Create && !firstSeen.IsZero() {
		s.metrics.PodWorkerStartDuration.Observe(time.Since(firstSeen).Seconds())
	}
	before, known := s.status.PodStatus(p.UID)
	api := s.apiStatus(p, running, false)
	s.status.SetPodStatus(p, api)
	if pod.IsTerminal(api.Phase) {
		return true, nil
	}
	if !firstSeen.IsZero() && (!known || before.Phase == v1.PodPending && api.Phase == v1.PodRunning) {
		s.metrics.PodStartDuration.Observe(time.Since(firstSeen).Seconds())
	}
	if err := s.state.NetworkErrors(); err != nil && !p.Spec.HostNetwork {
		s.recorder.Eventf(p, v1.EventTypeWarning, "NetworkNotReady", "network is not ready: %v", err)
		return false, fmt.Errorf("%w: %w", podworkers.ErrNetworkNotReady, err)
	}
	if s.mirrors != nil && pod.IsStatic(p) {
		s.mirrors.Reconcile(ctx, p, mirror)
	}
	if err := s.makePodDataDirs(p); err != nil {
		return false, err
	}
	if err := s.volumes.WaitForAttachAndMount(ctx, p); err != nil {
		if !wait.Interrupted(err) { // each volume that is not there yet has its own event
			s.recorder.Eventf(p, v1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: %v", err)
			s.log.Error(err, "Unable to attach or mount volumes for pod; skipping pod", "pod", klog.KObj(p))
		}
		return false, err
	}
	s.prober.AddPod(p)
	// Not cancelled with ctx: a call that is cancelled halfway would leave unknown objects behind.
	result := s.runtime.SyncPod(context.WithoutCancel(ctx), p, running)
	s.setNotStarted(p.UID, result)
	if result.Err == nil && result.Changed() {
		s.pleg.RequestRelist(p.UID)
	}
	if !result.Until.IsZero() {
		return false, &podworkers.BackOffError{Err: result.Err, Until: result.Until}
	}
	return false, result.Err
}

// makePodDataDirs makes the folders of a pod below the root directory.
func (s *SyncLoop) makePodDataDirs(p *v1.Pod) error {
	if err := s.volumes.MakePodDataDirs(p.UID); err != nil {
		s.recorder.Eventf(p, v1.EventTypeWarning, "FailedToMakePodDataDirectories",
			"error making pod data directories: %v", err)
		s.log.Error(err, "Unable to make pod data directories for pod", "pod", klog.KObj(p))
		return err
	}
	s.log.V(5).Info("Pod data directories are made", "pod", klog.KObj(p))
	return nil
}

// setNotStarted records which containers could not be started. A container that was not tried keeps its reason.
func (s *SyncLoop) setNotStarted(uid types.UID, result kuberuntime.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notStarted[uid] == nil {
		s.notStarted[uid] = map[string]*v1.ContainerStateWaiting{}
	}
	for _, a := range result.Actions {
		if a.Action != kuberuntime.ActionStartContainer {
			continue
		}
		delete(s.notStarted[uid], a.Target)
		if a.Err != nil {
			s.notStarted[uid][a.Target] = &v1.ContainerStateWaiting{Reason: a.Err.Error(), Message: a.Message}
		}
	}
}

// SyncTerminatingPod stops a pod and makes sure, by asking the runtime directly, that nothing of it runs any more.
func (s *SyncLoop) SyncTerminatingPod(
	ctx context.Context, p *v1.Pod, running *container.PodStatus, grace *int64, override func(*v1.PodStatus),
) error {
	report := func(st *container.PodStatus, terminal bool) {
		api := s.apiStatus(p, st, terminal)
		if override != nil {
			override(&api)
		}
		s.status.SetPodStatus(p, api)
	}
	report(running, false)
	s.prober.StopLivenessAndStartup(p)
	result := s.runtime.KillPod(ctx, p, running.RunningPod(s.name), grace)
	if result.Err != nil {
		s.recorder.Eventf(p, v1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", result.Err)
		return result.Err
	}
	s.prober.RemovePod(p)
	now, err := s.statusNow(ctx, p)
	if err != nil {
		return err
	}
	var names []string
	for _, c := range now.Running() {
		names = append(names, c.Name)
	}
	if slices.Sort(names); len(names) > 0 {
		return fmt.Errorf("detected running containers after a successful KillPod, CRI violation: %v", names)
	}
	report(now, true)
	return nil
}

// statusNow asks the runtime, not the cache.
func (s *SyncLoop) statusNow(ctx context.Context, p *v1.Pod) (*container.PodStatus, error) {
	listed, err := s.runtime.GetPod(ctx, p.UID)
	if errors.Is(err, kuberuntime.ErrPodNotFound) {
		return &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace}, nil
	}
	var now *container.PodStatus
	if err == nil {
		now, err = s.runtime.GetPodStatus(ctx, listed)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to read pod status prior to final pod termination: %w", err)
	}
	return now, nil
}

// orphanGrace is the grace period, in seconds, of running pods that are not desired.
const orphanGrace = 1

// SyncTerminatingRuntimePod stops a pod of which only the runtime knows.
func (s *SyncLoop) SyncTerminatingRuntimePod(ctx context.Context, running *container.Pod) error {
	s.log.V(2).Info("Killing orphaned pod that runs in the runtime", "podUID", running.UID)
	return s.runtime.KillPod(ctx, nil, running, new(int64(orphanGrace))).Err
}

// SyncTerminatedPod cleans up after a pod that no longer runs. Package gc removes its containers and sandboxes.
func (s *SyncLoop) SyncTerminatedPod(ctx context.Context, p *v1.Pod, running *container.PodStatus) error {
	s.status.SetPodStatus(p, s.apiStatus(p, running, true))
	if err := s.volumes.WaitForUnmount(ctx, p); err != nil {
		return err
	}
	s.removeCgroups(ctx, p)
	s.mu.Lock()
	delete(s.notStarted, p.UID)
	s.mu.Unlock()
	s.status.TerminatePod(p)
	return nil
}

// apiStatus computes the status of a pod for the API. isTerminal reports that its containers are known to have ended.
func (s *SyncLoop) apiStatus(p *v1.Pod, running *container.PodStatus, isTerminal bool) v1.PodStatus {
	old, ok := s.status.PodStatus(p.UID)
	if !ok {
		old = p.Status
	}
	now := time.Now()
	if status.PastDeadline(p, &old, now) {
		s.recorder.Event(p, v1.EventTypeNormal, status.DeadlineReason, status.DeadlineMessage)
	}
	s.mu.Lock()
	notStarted := maps.Clone(s.notStarted[p.UID])
	s.mu.Unlock()
	return status.Generate(status.GenerateInput{
		Pod: p, PodStatus: running, Old: old, Terminal: isTerminal || s.workers.IsPodKnownTerminated(p.UID),
		NotStarted:   notStarted,
		ShouldStart:  kuberuntime.ShouldStart,
		UpdateProbes: s.prober.UpdatePodStatus,
		HostIPs:      s.hostIPs,
		Now:          now,
	})
}

// evictionWait is the least time for which the end of an evicted pod is awaited (pod_workers.go upstream).
const evictionWait = 10 * time.Second

// killPodNow ends a pod for an eviction within grace seconds and waits for it. override completes its status.
func (s *SyncLoop) killPodNow(ctx context.Context, p *v1.Pod, grace int64, override func(*v1.PodStatus)) error {
	done := make(chan struct{})
	s.workers.UpdatePod(podworkers.UpdatePodOptions{Type: podworkers.Kill, Pod: p, Kill: &podworkers.KillPodOptions{
		Completed: done, Evict: true, StatusOverride: override, GraceOverride: &grace,
	}})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(evictionWait, time.Duration(grace)*time.Second*3/2)):
		s.recorder.Event(p, v1.EventTypeWarning, "ExceededGracePeriod",
			"Container runtime did not kill the pod within specified grace period.")
		return errors.New("timeout waiting to kill pod")
	}
}
