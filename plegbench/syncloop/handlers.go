package syncloop

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
)

// HandlePodAdditions takes pods that a source has and that were not there before, oldest first, so that a node that comes
// back admits what it had before what is new.
func (s *SyncLoop) HandlePodAdditions(pods []*v1.Pod) {
	start := time.Now()
	pods = slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.mirrorChanged(p, start)
			continue
		}
		if !s.workers.IsPodTerminationRequested(p.UID) && !pod.IsTerminal(p.Status.Phase) {
			if ok, reason, message := s.evictor.Admit(p); !ok {
				s.reject(p, reason, message)
				continue
			}
		}
		s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Create, Pod: p, MirrorPod: s.mirrorOf(p), StartTime: start})
	}
}

// reject fails a pod that the node does not admit.
func (s *SyncLoop) reject(p *v1.Pod, reason, message string) {
	s.metrics.AdmissionRejections.WithLabelValues(reason).Inc()
	s.recorder.Eventf(p, v1.EventTypeWarning, reason, "%s", message)
	s.status.SetPodStatus(p, v1.PodStatus{
		QOSClass: p.Status.QOSClass, Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message,
	})
}

// mirrorChanged syncs the static pod behind a mirror pod that came, changed or went.
func (s *SyncLoop) mirrorChanged(mirror *v1.Pod, start time.Time) {
	static, ok := s.pods.PodOf(mirror)
	if !ok {
		s.log.V(4).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(mirror), "mirrorPodUID", mirror.UID)
		return
	}
	s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Update, Pod: static, MirrorPod: s.mirrorOf(static), StartTime: start})
}

func (s *SyncLoop) mirrorOf(p *v1.Pod) *v1.Pod {
	mirror, _ := s.pods.MirrorOf(p)
	return mirror
}

// HandlePodUpdates takes pods whose desired state changed; a deletion is one too.
func (s *SyncLoop) HandlePodUpdates(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.mirrorChanged(p, start)
			continue
		}
		s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Update, Pod: p, MirrorPod: s.mirrorOf(p), StartTime: start})
	}
}

// HandlePodRemoves takes pods that their source does not have any more.
func (s *SyncLoop) HandlePodRemoves(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		static, isMirror := s.pods.PodOf(p)
		s.pods.RemovePod(p)
		if pod.IsMirror(p) {
			if isMirror {
				s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Update, Pod: static, StartTime: start})
			}
			continue
		}
		if err := s.deletePod(p); err != nil {
			s.log.V(2).Info("Failed to delete pod", "pod", klog.KObj(p), "err", err)
		}
	}
}

var errSourcesNotReady = errors.New("skipping delete because sources aren't ready yet")

// deletePod ends a pod that nobody wants any more. Before all sources were seen, a pod that seems unwanted may only not have been
// told of yet; housekeeping comes back to it.
func (s *SyncLoop) deletePod(p *v1.Pod) error {
	if !s.sourcesReady() {
		return errSourcesNotReady
	}
	s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Kill, Pod: p})
	return nil
}

// HandlePodReconcile takes pods whose status at the API server differs from what was reported.
func (s *SyncLoop) HandlePodReconcile(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			if static, ok := s.pods.PodOf(p); ok {
				s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Sync, Pod: static, MirrorPod: p, StartTime: start})
			}
			continue
		}
		if status.NeedsReadinessSync(p) {
			s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Sync, Pod: p, MirrorPod: s.mirrorOf(p), StartTime: start})
		}
		if p.Status.Reason == evicted {
			if known, err := s.cache.Get(p.UID); err == nil {
				s.garbage.DeleteContainersInPod("", known)
			}
		}
	}
}

// evicted is the reason of pods that an eviction ended.
const evicted = "Evicted"

// HandlePodSyncs takes pods that something happened to, or whose time has come.
func (s *SyncLoop) HandlePodSyncs(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		if pod.IsMirror(p) {
			continue // the static pod is synced, never its mirror
		}
		s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Sync, Pod: p, MirrorPod: s.mirrorOf(p), StartTime: start})
	}
}
