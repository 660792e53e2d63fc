package syncloop

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// containerDeletorBufferLimit is how many containers wait for their removal (pkg/kubelet/pod_container_deletor.go
// upstream). Garbage collection finds the others.
const containerDeletorBufferLimit = 50

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

// cleanUpContainersInPod asks for the removal of the older dead instances of a container that has just died. Of a pod
// that was evicted, or deleted and has ended, all dead containers go.
func (s *SyncLoop) cleanUpContainersInPod(uid types.UID, exited string) {
	st, err := s.cache.Get(uid)
	i := slices.IndexFunc(st.ContainerStatuses, func(c *container.Status) bool { return c.ID.ID == exited })
	if err != nil || i < 0 {
		return
	}
	all, keep := s.workers.ShouldPodContentBeRemoved(uid), max(s.cfg.ContainerGC.MaxPerPodContainer, 1)
	for _, c := range st.ContainerStatuses { // newest first
		if c.State != container.Exited || !all && c.Name != st.ContainerStatuses[i].Name {
			continue
		}
		if keep--; keep >= 0 && !all {
			continue
		}
		select {
		case s.toDelete <- c.ID:
		default:
			s.log.Info("Failed to issue the request to remove container", "containerID", c.ID)
		}
	}
}
