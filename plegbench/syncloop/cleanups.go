package syncloop

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// HandlePodCleanups is the housekeeping. It compares the desired pods, the workers and what runs: it ends pods that are
// not desired, restarts pods that were added again while they ended, and removes what is left of pods that are gone
// (pkg/kubelet/kubelet_pods.go upstream). It makes two lists, on the loop's goroutine.
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
	known := maps.Clone(wanted) // or known to the workers
	maps.Copy(known, working)
	alive := maps.Clone(known) // or known to the runtime alone
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
	s.restart(desired, working)
	for _, r := range running {
		if known[r.UID] {
			continue
		}
		s.log.V(2).Info("Clean up containers for orphaned pod we had not seen before", "podUID", r.UID)
		s.metrics.OrphanedPods.Inc()
		s.notify("orphan", r.Namespace+"/"+r.Name)
		grace := int64(orphanGrace)
		s.workers.UpdatePod(podworkers.UpdateOptions{
			Type: podworkers.Kill, RunningPod: r, Kill: &podworkers.KillOptions{GraceOverride: &grace},
		})
	}
	s.count(desired, mirrors)
	s.backOff.GC()
	return nil
}

// restart creates the worker of each desired pod that has none: its UID was used again while the earlier pod ended.
func (s *SyncLoop) restart(desired []*v1.Pod, working map[types.UID]bool) {
	for _, p := range desired {
		if working[p.UID] || pod.IsTerminal(p.Status.Phase) {
			continue
		}
		if _, known := s.status.PodStatus(p.UID); known && s.workers.ShouldPodBeFinished(p.UID) {
			continue // it has ended, and is not yet removed from its source
		}
		s.log.V(3).Info("Pod will be restarted because it is in the desired set and not known to the pod workers",
			"podUID", p.UID)
		s.metrics.RestartedPods.WithLabelValues(word(pod.IsStatic(p), "true", "")).Inc()
		s.update(podworkers.Create, p, time.Time{})
	}
}

func (s *SyncLoop) deleteOrphanedMirrors(ctx context.Context) {
	if s.mirrors == nil {
		return
	}
	for _, mirror := range s.pods.OrphanedMirrors() {
		if !s.workers.IsPodForMirrorPodTerminatingByFullName(pod.FullName(mirror)) && s.mirrors.Delete(ctx, mirror, nil) {
			s.log.V(3).Info("Deleted mirror pod", "podName", pod.FullName(mirror))
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

// cleanDead removes the older dead instances of a container that has just died.
func (s *SyncLoop) cleanDead(uid types.UID, exited string) {
	status, err := s.cache.Get(uid)
	if err != nil {
		s.log.V(4).Info("Pod status could not be read, not removing its dead containers", "podUID", uid, "err", err)
		return
	}
	if p, ok := s.pods.PodByUID(uid); ok {
		api, known := s.status.PodStatus(uid)
		if known && api.Phase == v1.PodFailed && api.Reason == evicted ||
			p.DeletionTimestamp != nil && s.workers.ShouldPodContentBeRemoved(uid) {
			exited = "" // all of them
		}
	}
	s.garbage.DeleteContainersInPod(exited, status)
}
