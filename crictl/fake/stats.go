package fake

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The usage of containers is derived from their ids, within the ranges of an ordinary node.
const (
	minCPU    = 2_000_000   // nanocores
	cpuRange  = 150_000_000 // nanocores
	minMemory = 12 << 20    // bytes
	memRange  = 300 << 20   // bytes
)

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// stats returns the usage of a running container. The caller holds the store's lock.
func (c *container) stats(fs *runtimeapi.FilesystemIdentifier) *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	cpu, memory := minCPU+number(cpuRange, "cpu", c.id), minMemory+number(memRange, "memory", c.id)
	used := uint64(max(now-c.started, 0)) / uint64(time.Second) * cpu
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Labels:      c.labels,
			Annotations: c.annotations(),
		},
		Cpu: &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(used), UsageNanoCores: value(cpu)},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: now, WorkingSetBytes: value(memory), UsageBytes: value(memory + memory/8), RssBytes: value(memory - memory/8),
			PageFaults: value(memory >> 12), MajorPageFaults: value(0),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: fs, UsedBytes: value(memory >> 8), InodesUsed: value(memory >> 20),
		},
	}
}

// stats returns the usage of all that runs in a sandbox. The caller holds the store's lock.
func (sb *sandbox) stats(fs *runtimeapi.FilesystemIdentifier) *runtimeapi.PodSandboxStats {
	now := time.Now().UnixNano()
	var cpu, used, memory uint64
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, c := range sb.containers {
		if c.running() {
			s := c.stats(fs)
			cpu += s.GetCpu().GetUsageNanoCores().GetValue()
			used += s.GetCpu().GetUsageCoreNanoSeconds().GetValue()
			memory += s.GetMemory().GetWorkingSetBytes().GetValue()
			linux.Containers = append(linux.Containers, s)
		}
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(used), UsageNanoCores: value(cpu)}
	linux.Memory = &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: value(memory),
		UsageBytes: value(memory + memory/8),
	}
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: value(uint64(len(linux.Containers)))}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: sb.id, Metadata: sb.meta, Labels: sb.labels, Annotations: sb.annots},
		Linux:      linux,
	}
}

// ContainerStats returns the usage of one container.
func (r *runtimeService) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := r.mustRun(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats(r.filesystem())}, nil
}

// ListContainerStats returns the usage of the running containers that the filter lets through.
func (r *runtimeService) ListContainerStats(
	ctx context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	r.store.mu.RLock()
	for _, c := range r.store.filterContainers(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}) {
		resp.Stats = append(resp.Stats, c.stats(r.filesystem()))
	}
	r.store.mu.RUnlock()
	return resp, perItem(ctx, len(resp.Stats))
}

// PodSandboxStats returns the usage of one sandbox.
func (r *runtimeService) PodSandboxStats(
	_ context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	sb, err := r.store.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, notFoundOr(err, "pod sandbox")
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: sb.stats(r.filesystem())}, nil
}

// ListPodSandboxStats returns the usage of the ready sandboxes that the filter lets through.
func (r *runtimeService) ListPodSandboxStats(
	ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	r.store.mu.RLock()
	for _, sb := range r.store.filterSandboxes(&runtimeapi.PodSandboxFilter{
		Id: f.GetId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}) {
		resp.Stats = append(resp.Stats, sb.stats(r.filesystem()))
	}
	r.store.mu.RUnlock()
	return resp, perItem(ctx, len(resp.Stats))
}
