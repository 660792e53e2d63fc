package gc

import (
	"context"
	"slices"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// RunDeletor removes the containers that DeleteContainersInPod asks for, one at a time, until ctx ends. Its error is
// always nil.
func (c *Collector) RunDeletor(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-c.queue:
			if err := c.remove(ctx, id); err != nil {
				c.Log.Info("DeleteContainer returned error", "containerID", id, "err", err)
			}
		}
	}
}

// DeleteContainersInPod asks for the removal of dead containers of a pod without waiting for the next pass: those with
// the name of the container with this id, except the newest; or all if id is empty. It never blocks; what does not fit
// into the queue is left to the next pass.
func (c *Collector) DeleteContainersInPod(id string, status *container.PodStatus) {
	for _, old := range c.surplus(id, status) {
		select {
		case c.queue <- old:
		default:
			c.Log.Info("Failed to issue the request to remove container", "containerID", old)
		}
	}
}

// surplus returns the ids of the containers to remove, newest first.
func (c *Collector) surplus(id string, status *container.PodStatus) []string {
	keep, name := 0, ""
	if id != "" {
		i := slices.IndexFunc(status.ContainerStatuses, func(s *container.Status) bool { return s.ID.ID == id })
		if i < 0 {
			c.Log.Info("Container not found in pod's containers", "containerID", id)
			return nil
		}
		keep, name = max(c.Keep, 1), status.ContainerStatuses[i].Name
	}
	var ids []string
	for _, s := range status.ContainerStatuses { // newest first
		if s.State == container.Exited && (id == "" || s.Name == name) {
			ids = append(ids, s.ID.ID)
		}
	}
	return ids[min(keep, len(ids)):]
}
