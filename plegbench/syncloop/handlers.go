package syncloop

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
)

// update hands a pod with its mirror to its worker.
func (s *SyncLoop) update(t podworkers.UpdateType, p *v1.Pod, start time.Time) {
	mirror, _ := s.pods.MirrorOf(p)
	s.workers.UpdatePod(podworkers.UpdatePodOptions{Type: t, Pod: p, MirrorPod: mirror, StartTime: start})
}

// HandlePodAdditions admits the new pods of a source and starts their workers, the oldest first, so that a node that
// comes back admits earlier pods first.
func (s *SyncLoop) HandlePodAdditions(pods []*v1.Pod) {
	start := time.Now()
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.updateStatic(p, start)
		} else if s.canAdmitPod(p) {
			s.update(podworkers.Create, p, start)
		}
	}
}

// HandlePodUpdates passes changed pods, also those whose deletion was requested, to their workers.
func (s *SyncLoop) HandlePodUpdates(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.updateStatic(p, start)
		} else {
			s.update(podworkers.Update, p, start)
		}
	}
}

// HandlePodRemoves ends pods that their source does not have any more. Until all sources were seen, another one may
// still have the pod; housekeeping decides later.
func (s *SyncLoop) HandlePodRemoves(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.RemovePod(p)
		switch {
		case pod.IsMirror(p):
			s.updateStatic(p, start)
		case s.allSourcesReady():
			s.workers.UpdatePod(podworkers.UpdatePodOptions{Type: podworkers.Kill, Pod: p})
		default:
			s.log.V(2).Info("Failed to delete pod", "pod", klog.KObj(p),
				"err", "skipping delete because sources aren't ready yet")
		}
	}
}

// HandlePodReconcile stores pods of which only the status has changed. The status manager restores their status. A pod
// is synced if the condition of a readiness gate has changed.
func (s *SyncLoop) HandlePodReconcile(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if !pod.IsMirror(p) && status.NeedToReconcilePodReadiness(p) {
			s.update(podworkers.Sync, p, start)
		}
	}
}

// HandlePodSyncs syncs pods that are due or that something has happened to.
func (s *SyncLoop) HandlePodSyncs(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.update(podworkers.Sync, p, start)
	}
}

// updateStatic syncs the static pod of a mirror that has changed.
func (s *SyncLoop) updateStatic(mirror *v1.Pod, start time.Time) {
	if static, ok := s.pods.PodOf(mirror); ok {
		s.update(podworkers.Update, static, start)
	} else {
		s.log.V(4).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(mirror))
	}
}

// allSourcesReady reports whether the loop has handled an update of each source.
func (s *SyncLoop) allSourcesReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podConfig.SeenAllSources(s.seen)
}

func (s *SyncLoop) addSource(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[source] = true
}

// getPodsToSync returns the pods whose resync or back-off is over, and those beyond their active deadline.
func (s *SyncLoop) getPodsToSync() []*v1.Pod {
	ready := s.workers.GetWork()
	return slices.DeleteFunc(s.pods.Pods(), func(p *v1.Pod) bool {
		api, known := s.status.PodStatus(p.UID)
		late := known && !pod.IsTerminal(api.Phase) && status.PastDeadline(p, &api, time.Now())
		return !ready[p.UID] && !late
	})
}

// activePods returns the desired pods that may have something running.
func (s *SyncLoop) activePods() []*v1.Pod {
	return slices.DeleteFunc(s.pods.Pods(), func(p *v1.Pod) bool {
		api, _ := s.status.PodStatus(p.UID)
		ended := pod.IsTerminal(p.Status.Phase) || pod.IsTerminal(api.Phase)
		return s.workers.IsPodKnownTerminated(p.UID) || ended && !s.workers.IsPodTerminationRequested(p.UID)
	})
}

// PodsWithStatus returns the desired pods with the statuses that were last computed for them.
func (s *SyncLoop) PodsWithStatus() []*v1.Pod {
	var out []*v1.Pod
	for _, p := range s.pods.Pods() {
		if api, ok := s.status.PodStatus(p.UID); ok {
			p = p.DeepCopy()
			p.Status = api
		}
		out = append(out, p)
	}
	return out
}

// HandlePodCleanups compares the desired pods, the workers and the running pods (pkg/kubelet/kubelet_pods.go upstream).
// It ends undesired pods, restarts pods that were added again while they ended, and removes the remains of pods that
// are gone. It makes two lists, on the loop's goroutine.
func (s *SyncLoop) HandlePodCleanups(ctx context.Context) error {
	desired, mirrors := s.pods.Pods(), s.pods.Mirrors()
	working := s.workers.SyncKnownPods(desired)
	running, err := s.runtime.GetPods(ctx, false)
	if err != nil {
		s.log.Error(err, "Error listing containers")
		return err
	}
	wanted := map[types.UID]bool{}
	for _, p := range slices.Concat(desired, mirrors) {
		wanted[p.UID] = true
	}
	alive := maps.Clone(wanted) // or known to the workers, or to the runtime alone
	maps.Copy(alive, working)
	for _, r := range running {
		alive[r.UID] = true
	}
	probed := map[types.UID]bool{}
	for _, p := range desired {
		probed[p.UID] = !s.workers.IsPodKnownTerminated(p.UID)
	}
	s.prober.CleanupPods(probed)
	s.status.RemoveOrphanedStatuses(wanted)
	if err := s.volumes.CleanupOrphans(alive); err != nil {
		s.log.Error(err, "Failed cleaning up orphaned pod directories")
	}
	s.deleteOrphanedMirrors(ctx)
	s.restart(working)
	for _, r := range running {
		if working[r.UID] { // a desired pod without a worker was not admitted
			continue
		}
		s.log.V(2).Info("Clean up containers for orphaned pod we had not seen before", "podUID", r.UID)
		s.metrics.OrphanedPods.Inc()
		s.workers.UpdatePod(podworkers.UpdatePodOptions{
			Type: podworkers.Kill, RunningPod: r, Kill: &podworkers.KillPodOptions{GraceOverride: new(int64(orphanGrace))},
		})
	}
	s.count(desired, mirrors)
	s.backOff.GC()
	return nil
}

// restart creates the worker of each active pod that has none, and adds it to working: its UID was used again while
// the earlier pod ended. A pod whose phase is terminal has ended or was not admitted, and never runs again.
func (s *SyncLoop) restart(working map[types.UID]bool) {
	for _, p := range s.activePods() {
		if working[p.UID] {
			continue
		}
		s.log.V(3).Info("Pod will be restarted because it is in the desired set and not known to the pod workers",
			"podUID", p.UID)
		s.metrics.RestartedPods.WithLabelValues(ifElse(pod.IsStatic(p), "true", "")).Inc()
		s.update(podworkers.Create, p, time.Time{})
		working[p.UID] = true
	}
}

func (s *SyncLoop) deleteOrphanedMirrors(ctx context.Context) {
	if s.mirrors == nil {
		return
	}
	for _, mirror := range s.pods.OrphanedMirrors() {
		name := pod.FullName(mirror)
		if !s.workers.IsPodForMirrorPodTerminatingByFullName(name) && s.mirrors.Delete(ctx, mirror, nil) {
			s.log.V(3).Info("Deleted mirror pod", "podName", name)
		}
	}
}

func (s *SyncLoop) count(desired, mirrors []*v1.Pod) {
	var static float64
	for _, p := range desired {
		if pod.IsStatic(p) {
			static++
		}
	}
	s.metrics.DesiredPods.WithLabelValues("true").Set(static)
	s.metrics.DesiredPods.WithLabelValues("").Set(float64(len(desired)) - static)
	s.metrics.MirrorPods.Set(float64(len(mirrors)))
}
