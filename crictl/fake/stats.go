package fake

import (
	"context"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The figures of containers are made up from their ids, in the ranges of an ordinary node.
const (
	minCPU    = 2_000_000   // nanocores
	cpuRange  = 150_000_000 // nanocores on top
	minMemory = 12 << 20    // bytes
	memRange  = 300 << 20   // bytes on top
)

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// cpu and memory return what a container uses while it runs.
func (c *container) cpu() uint64    { return minCPU + number(cpuRange, "cpu", c.id) }
func (c *container) memory() uint64 { return minMemory + number(memRange, "memory", c.id) }

// cpuSeconds returns what it has used by now, in core nanoseconds.
func (c *container) cpuSeconds(now time.Time) uint64 {
	return uint64(max(now.UnixNano()-c.started, 0)) / uint64(time.Second) * c.cpu()
}

// stats builds the statistics of a running container. The caller holds the store's lock.
func (c *container) stats(now time.Time, fs *runtimeapi.FilesystemIdentifier) *runtimeapi.ContainerStats {
	at := now.UnixNano()
	memory := c.memory()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Labels:      c.labels,
			Annotations: c.annotations(),
		},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: at, UsageCoreNanoSeconds: value(c.cpuSeconds(now)), UsageNanoCores: value(c.cpu()),
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: value(memory), UsageBytes: value(memory + memory/8), RssBytes: value(memory - memory/8),
			PageFaults: value(memory >> 12), MajorPageFaults: value(0),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: fs, UsedBytes: value(memory >> 8), InodesUsed: value(memory >> 20),
		},
	}
}

// stats sums up what runs in a sandbox. The caller holds the store's lock.
func (sb *sandbox) stats(now time.Time, fs *runtimeapi.FilesystemIdentifier) *runtimeapi.PodSandboxStats {
	at := now.UnixNano()
	var cpu, total, memory, processes uint64
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, c := range sb.containers {
		if !c.running() {
			continue
		}
		cpu += c.cpu()
		total += c.cpuSeconds(now)
		memory += c.memory()
		processes++
		linux.Containers = append(linux.Containers, c.stats(now, fs))
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: value(total), UsageNanoCores: value(cpu)}
	linux.Memory = &runtimeapi.MemoryUsage{Timestamp: at, WorkingSetBytes: value(memory), UsageBytes: value(memory + memory/8)}
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: value(processes)}
	if sb.address != "" {
		linux.Network = &runtimeapi.NetworkUsage{Timestamp: at, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: value(total >> 10), TxBytes: value(total >> 11), RxErrors: value(0), TxErrors: value(0),
		}}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: sb.id, Metadata: sb.meta, Labels: sb.labels, Annotations: sb.annots},
		Linux:      linux,
	}
}

// ContainerStats returns the statistics of one container.
func (r *runtimeService) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	if _, err := r.mustRun(req.GetContainerId()); err != nil {
		return nil, err
	}
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	c, err := r.store.containers.find(req.GetContainerId())
	if err != nil {
		return nil, notFoundOr(err, "container")
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats(time.Now(), r.filesystem())}, nil
}

// ListContainerStats returns the statistics of the running containers that the filter lets through.
func (r *runtimeService) ListContainerStats(
	ctx context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	list := r.containerStats(req.GetFilter())
	if err := perItem(ctx, len(list)); err != nil {
		return nil, err
	}
	return &runtimeapi.ListContainerStatsResponse{Stats: list}, nil
}

// StreamContainerStats is ListContainerStats in batches.
func (r *runtimeService) StreamContainerStats(
	req *runtimeapi.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse],
) error {
	return sendBatches(stream.Context(), r.containerStats(req.GetFilter()), func(batch []*runtimeapi.ContainerStats) error {
		return stream.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: batch})
	})
}

func (r *runtimeService) containerStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	now := time.Now()
	var list []*runtimeapi.ContainerStats
	for _, c := range r.store.filterContainers(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}) {
		list = append(list, c.stats(now, r.filesystem()))
	}
	return list
}

// PodSandboxStats returns the statistics of one sandbox.
func (r *runtimeService) PodSandboxStats(
	_ context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	sb, err := r.store.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, notFoundOr(err, "pod sandbox")
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: sb.stats(time.Now(), r.filesystem())}, nil
}

// ListPodSandboxStats returns the statistics of the ready sandboxes that the filter lets through.
func (r *runtimeService) ListPodSandboxStats(
	ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	list := r.sandboxStats(req.GetFilter())
	if err := perItem(ctx, len(list)); err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: list}, nil
}

// StreamPodSandboxStats is ListPodSandboxStats in batches.
func (r *runtimeService) StreamPodSandboxStats(
	req *runtimeapi.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse],
) error {
	return sendBatches(stream.Context(), r.sandboxStats(req.GetFilter()), func(batch []*runtimeapi.PodSandboxStats) error {
		return stream.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: batch})
	})
}

func (r *runtimeService) sandboxStats(f *runtimeapi.PodSandboxStatsFilter) []*runtimeapi.PodSandboxStats {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	now := time.Now()
	var list []*runtimeapi.PodSandboxStats
	for _, sb := range r.store.filterSandboxes(&runtimeapi.PodSandboxFilter{
		Id: f.GetId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}) {
		list = append(list, sb.stats(now, r.filesystem()))
	}
	return list
}
