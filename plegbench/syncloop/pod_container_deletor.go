package syncloop

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
)

// Of pkg/kubelet/pod_container_deletor.go and kubelet.go upstream.
const (
	containerDeletorBufferLimit = 50
	minDeadContainerInPod       = 1
)

// deleteContainers removes the containers that are asked for, one after the other, until ctx ends.
func (s *SyncLoop) deleteContainers(ctx context.Context) error {
	for {
		select {
		case id := <-s.toDelete:
			if err := s.runtime.DeleteContainer(ctx, id); err != nil {
				s.log.Info("DeleteContainer returned error", "containerID", id, "err", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cleanUpContainersInPod has the older dead instances of a container removed that has just died. Of a pod that was
// evicted, or deleted and has ended, all dead containers go. Garbage collection does the same, but only each minute.
func (s *SyncLoop) cleanUpContainersInPod(uid types.UID, exited string) {
	st, err := s.cache.Get(uid)
	if err != nil {
		return
	}
	keep, name := max(s.cfg.ContainerGC.MaxPerPodContainer, minDeadContainerInPod), ""
	for _, c := range st.ContainerStatuses {
		if c.ID.ID == exited {
			name = c.Name
		}
	}
	switch {
	case s.workers.ShouldPodContentBeRemoved(uid):
		s.deleteContainersInPod(st, "", 0)
	case name == "":
		s.log.Info("Container not found in pod's containers", "containerID", exited)
	default:
		s.deleteContainersInPod(st, name, keep)
	}
}

// deleteContainersInPod asks for the removal of a pod's dead containers of a name, or of all, but for the newest keep.
func (s *SyncLoop) deleteContainersInPod(st *container.PodStatus, name string, keep int) {
	for _, c := range st.ContainerStatuses { // newest first
		if c.State != container.Exited || name != "" && c.Name != name {
			continue
		}
		if keep--; keep >= 0 {
			continue
		}
		select {
		case s.toDelete <- c.ID:
		default:
			s.log.Info("Failed to issue the request to remove container", "containerID", c.ID)
		}
	}
}

// deleteContainersOfEvicted has all dead containers of a pod removed whose eviction the API server knows.
func (s *SyncLoop) deleteContainersOfEvicted(p *v1.Pod) {
	if st, err := s.cache.Get(p.UID); err == nil && eviction.PodIsEvicted(&p.Status) {
		s.deleteContainersInPod(st, "", 0)
	}
}
