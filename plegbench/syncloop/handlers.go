package syncloop

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// update hands a pod with its mirror to its worker.
func (s *SyncLoop) update(t podworkers.UpdateType, p *v1.Pod, start time.Time) {
	mirror, _ := s.pods.MirrorOf(p)
	s.workers.UpdatePod(podworkers.UpdateOptions{Type: t, Pod: p, MirrorPod: mirror, StartTime: start})
}

// HandlePodAdditions handles pods that a source has and that were not there before, oldest first, so that a node that
// comes back admits earlier pods first.
func (s *SyncLoop) HandlePodAdditions(pods []*v1.Pod) {
	start := time.Now()
	pods = slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.mirrorChanged(podworkers.Update, p, start)
			continue
		}
		if !s.workers.IsPodTerminationRequested(p.UID) && !pod.IsTerminal(p.Status.Phase) {
			if ok, reason, message := s.evictor.Admit(p); !ok {
				s.reject(p, reason, message)
				continue
			}
		}
		s.update(podworkers.Create, p, start)
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

// mirrorChanged updates the static pod of a mirror that was added, changed or removed.
func (s *SyncLoop) mirrorChanged(t podworkers.UpdateType, mirror *v1.Pod, start time.Time) {
	if static, ok := s.pods.PodOf(mirror); ok {
		s.update(t, static, start)
		return
	}
	s.log.V(4).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(mirror))
}

// HandlePodUpdates handles pods whose desired state changed; a deletion is such a change, too.
func (s *SyncLoop) HandlePodUpdates(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.mirrorChanged(podworkers.Update, p, start)
			continue
		}
		s.update(podworkers.Update, p, start)
	}
}

// HandlePodRemoves handles pods that their source no longer has. Until all sources were seen, housekeeping decides
// later whether another source has them.
func (s *SyncLoop) HandlePodRemoves(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.RemovePod(p)
		switch {
		case pod.IsMirror(p):
			s.mirrorChanged(podworkers.Update, p, start)
		case !s.sourcesReady():
			s.log.V(2).Info("Failed to delete pod", "pod", klog.KObj(p),
				"err", "skipping delete because sources aren't ready yet")
		default:
			s.workers.UpdatePod(podworkers.UpdateOptions{Type: podworkers.Kill, Pod: p})
		}
	}
}

// HandlePodReconcile handles pods whose status at the API server differs from the reported one.
func (s *SyncLoop) HandlePodReconcile(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		s.pods.UpdatePod(p)
		if pod.IsMirror(p) {
			s.mirrorChanged(podworkers.Sync, p, start)
			continue
		}
		if p.Status.Reason == evicted {
			if known, err := s.cache.Get(p.UID); err == nil {
				s.garbage.DeleteContainersInPod("", known)
			}
		}
	}
}

// evicted is the reason in the status of evicted pods.
const evicted = "Evicted"

// HandlePodSyncs handles pods that something happened to, or that are due. Mirrors are never synced themselves.
func (s *SyncLoop) HandlePodSyncs(pods []*v1.Pod) {
	start := time.Now()
	for _, p := range pods {
		if !pod.IsMirror(p) {
			s.update(podworkers.Sync, p, start)
		}
	}
}
