package syncloop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
)

// update hands a pod with its mirror to its worker.
func (s *SyncLoop) update(t podworkers.UpdateType, p *v1.Pod, start time.Time) {
	mirror, _ := s.pods.MirrorOf(p)
	s.workers.UpdatePod(podworkers.UpdateOptions{Type: t, Pod: p, MirrorPod: mirror, StartTime: start})
}

// handlePods handles pods that a source has sent. The change of a mirror is one of its static pod. Where only the
// status differs nothing is to do: the status manager mends it, and readiness gates, for which a kubelet syncs, are
// left out.
func (s *SyncLoop) handlePods(op config.Op, pods []*v1.Pod) {
	start := time.Now()
	if op == config.Add { // oldest first, so that a node that comes back admits earlier pods first
		pods = slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
	}
	for _, p := range pods {
		if op == config.Remove {
			s.pods.RemovePod(p)
		} else {
			s.pods.UpdatePod(p)
		}
		if op == config.Reconcile {
			continue
		}
		if pod.IsMirror(p) {
			if static, ok := s.pods.PodOf(p); ok {
				s.update(podworkers.Update, static, start)
			} else {
				s.log.V(4).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(p))
			}
			continue
		}
		switch op {
		case config.Add:
			if s.admits(p) {
				s.update(podworkers.Create, p, start)
			}
		case config.Remove: // until all sources were seen, housekeeping decides later whether another source has it
			if s.sourcesReady() {
				s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Kill, Pod: p})
			} else {
				s.log.V(2).Info("Failed to delete pod", "pod", klog.KObj(p),
					"err", "skipping delete because sources aren't ready yet")
			}
		default: // a deletion too: the pod is removed only after it has ended within its grace period
			s.update(podworkers.Update, p, start)
		}
	}
}

// admits reports whether the node admits a new pod. A pod that it does not admit fails.
func (s *SyncLoop) admits(p *v1.Pod) bool {
	if s.workers.IsPodTerminationRequested(p.UID) || pod.IsTerminal(p.Status.Phase) {
		return true
	}
	ok, reason, message := s.evictor.Admit(p)
	others := slices.DeleteFunc(s.activePods(), func(other *v1.Pod) bool { return other.UID == p.UID })
	if most := int(s.cfg.Kubelet.MaxPods); ok && len(others) >= most { // pkg/kubelet/lifecycle/predicate.go upstream
		ok, reason, message = false, "OutOfpods", fmt.Sprintf(
			"Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(others), most)
	}
	if !ok {
		s.log.Info("Pod admission denied", "podUID", p.UID, "pod", klog.KObj(p), "reason", reason, "message", message)
		s.metrics.AdmissionRejections.WithLabelValues(reason).Inc()
		s.recorder.Eventf(p, v1.EventTypeWarning, reason, "%s", message)
		s.status.SetPodStatus(p, v1.PodStatus{
			QOSClass: p.Status.QOSClass, Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message,
		})
	}
	return ok
}

// syncPods syncs pods that something happened to, or that are due.
func (s *SyncLoop) syncPods(pods ...*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.update(podworkers.Sync, p, start)
	}
}

func (s *SyncLoop) runtimeErrors() error { return s.state.RuntimeErrors() }

func (s *SyncLoop) podByUID(uid types.UID) (*v1.Pod, bool) { return s.pods.PodByUID(uid) }

func (s *SyncLoop) probed(probe string, uid types.UID, id container.ID, ok bool) {
	if probe == "readiness" {
		s.status.SetContainerReadiness(uid, id, ok)
		return
	}
	s.status.SetContainerStartup(uid, id, ok)
}

func (s *SyncLoop) sourcesReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mux.SeenAllSources(s.seen)
}

func (s *SyncLoop) sawSource(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[source] = true
}

// podsDue are the pods whose resync or back-off is over, and those beyond their active deadline.
func (s *SyncLoop) podsDue() []*v1.Pod {
	ready := s.workers.Due()
	return slices.DeleteFunc(s.pods.Pods(), func(p *v1.Pod) bool {
		api, known := s.status.PodStatus(p.UID)
		late := known && !pod.IsTerminal(api.Phase) && status.PastDeadline(p, &api, time.Now())
		return !ready[p.UID] && !late
	})
}

// activePods are the desired pods that may have something running.
func (s *SyncLoop) activePods() []*v1.Pod {
	return slices.DeleteFunc(s.pods.Pods(), func(p *v1.Pod) bool {
		api, _ := s.status.PodStatus(p.UID)
		ended := pod.IsTerminal(p.Status.Phase) || pod.IsTerminal(api.Phase)
		return s.workers.IsPodKnownTerminated(p.UID) || ended && !s.workers.IsPodTerminationRequested(p.UID)
	})
}

// PodsWithStatus are the desired pods with the statuses that were last computed for them.
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

// cleanUpPods is the housekeeping. It compares the desired pods, the workers and what runs: it ends pods that are
// not desired, restarts pods that were added again while they ended, and removes what is left of pods that are gone
// (pkg/kubelet/kubelet_pods.go upstream). It makes two lists, on the loop's goroutine.
func (s *SyncLoop) cleanUpPods(ctx context.Context) error {
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
		s.notify("orphan", r.Namespace+"/"+r.Name)
		s.workers.UpdatePod(podworkers.UpdateOptions{
			Type: podworkers.Kill, RunningPod: r, Kill: &podworkers.KillOptions{GraceOverride: new(int64(orphanGrace))},
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
		s.metrics.RestartedPods.WithLabelValues(word(pod.IsStatic(p), "true", "")).Inc()
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
