package fake

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The usage of each container.
const (
	usageCPU    = 50_000_000 // nanocores
	usageMemory = 64 << 20   // bytes
	usageDisk   = 256 << 10  // bytes of the writable layer
	usageInodes = 64         // of the writable layer
)

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// stats returns the usage of a running container. The caller holds the store's lock.
func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	used := uint64(max(now-c.started, 0)) / uint64(time.Second) * usageCPU
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Labels:      c.labels,
			Annotations: c.annots,
		},
		Cpu: &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(used), UsageNanoCores: value(usageCPU)},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: now, WorkingSetBytes: value(usageMemory), UsageBytes: value(usageMemory),
			RssBytes: value(usageMemory), PageFaults: value(0), MajorPageFaults: value(0),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: imageFilesystem(), UsedBytes: value(usageDisk), InodesUsed: value(usageInodes),
		},
	}
}

// ListContainerStats returns the usage of the running containers that the filter lets through.
func (s *service) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	for _, c := range s.store.filterContainers(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}) {
		resp.Stats = append(resp.Stats, c.stats())
	}
	return resp, nil
}
