package gc

import (
	"context"
	"slices"

	"github.com/go-logr/logr"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// deletorQueue is containerDeletorBufferLimit of pkg/kubelet/pod_container_deletor.go.
const deletorQueue = 50

// DeletorConfig is what a Deletor is made of.
type DeletorConfig struct {
	Delete func(ctx context.Context, id string) error // a container and its logs
	Keep   int                                        // newest dead instances of a container; at least 1
	Log    logr.Logger
}

// A Deletor removes the older instances of a container when it has died again, one at a time, without waiting for the
// collector. What finds no place in its queue is left to the collector.
type Deletor struct {
	cfg   DeletorConfig
	queue chan container.ID
}

// NewDeletor makes a Deletor.
func NewDeletor(cfg DeletorConfig) *Deletor {
	cfg.Keep = max(cfg.Keep, 1)
	return &Deletor{cfg: cfg, queue: make(chan container.ID, deletorQueue)}
}

// Run removes until ctx ends. Its error is always nil.
func (d *Deletor) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-d.queue:
			if err := d.cfg.Delete(ctx, id.ID); err != nil {
				d.cfg.Log.Info("DeleteContainer returned error", "containerID", id, "err", err)
			}
		}
	}
}

// DeleteContainersInPod asks for the removal of the dead instances of the container that the one with this id is an instance
// of, but for the newest. With all, every dead container of the pod goes. It never blocks.
func (d *Deletor) DeleteContainersInPod(id string, status *container.PodStatus, all bool) {
	for _, old := range d.choose(id, status, all) {
		select {
		case d.queue <- old:
		default:
			d.cfg.Log.Info("Failed to issue the request to remove container", "containerID", old)
		}
	}
}

// choose returns the containers that go, newest first.
func (d *Deletor) choose(id string, status *container.PodStatus, all bool) []container.ID {
	keep, name := d.cfg.Keep, ""
	if all {
		keep, id = 0, ""
	}
	if id != "" {
		i := slices.IndexFunc(status.ContainerStatuses, func(s *container.Status) bool { return s.ID.ID == id })
		if i < 0 {
			d.cfg.Log.Info("Container not found in pod's containers", "containerID", id)
			return nil
		}
		name = status.ContainerStatuses[i].Name
	}
	var exited []*container.Status
	for _, s := range status.ContainerStatuses {
		if s.State == container.Exited && (id == "" || s.Name == name) {
			exited = append(exited, s)
		}
	}
	slices.SortStableFunc(exited, func(a, b *container.Status) int { return b.CreatedAt.Compare(a.CreatedAt) })
	var ids []container.ID
	for _, s := range exited[min(keep, len(exited)):] {
		ids = append(ids, s.ID)
	}
	return ids
}
