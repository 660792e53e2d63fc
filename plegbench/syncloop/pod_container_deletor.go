package syncloop

import (
	"context"

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

// deleteContainersInPod asks for the removal of the older dead instances of a container that has just died. Of a pod
// that was evicted, or deleted and has ended, or without a container's id, all dead containers go.
func (s *SyncLoop) deleteContainersInPod(uid types.UID, exited string) {
	st, err := s.cache.Get(uid)
	if err != nil {
		return
	}
	keep, name := max(s.cfg.ContainerGC.MaxPerPodContainer, 1), ""
	for _, c := range st.ContainerStatuses {
		if c.ID.ID == exited {
			name = c.Name
		}
	}
	all := exited == "" || s.workers.ShouldPodContentBeRemoved(uid)
	if all {
		keep = 0
	} else if name == "" {
		s.log.Info("Container not found in pod's containers", "containerID", exited)
		return
	}
	for _, c := range st.ContainerStatuses { // newest first
		if c.State != container.Exited || !all && c.Name != name {
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
