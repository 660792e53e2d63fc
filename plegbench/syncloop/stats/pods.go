package stats

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// pods measures the pods that run a container, by their sandboxes.
func (p *Provider) pods(ctx context.Context, rootFs, containerFs *statsapi.FsStats) ([]statsapi.PodStats, error) {
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	containers, err := p.cfg.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{State: running, LabelSelector: p.ours()})
	if err != nil {
		return nil, err
	}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	sandboxes, err := p.cfg.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: ready, LabelSelector: p.ours()})
	if err != nil {
		return nil, err
	}
	list, err := p.cfg.CRI.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{LabelSelector: p.ours()})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*runtimeapi.ContainerStats, len(list))
	for _, s := range list {
		byID[s.GetAttributes().GetId()] = s
	}
	bySandbox := map[string][]*runtimeapi.Container{}
	for _, c := range containers {
		bySandbox[c.GetPodSandboxId()] = append(bySandbox[c.GetPodSandboxId()], c)
	}
	out := []statsapi.PodStats{}
	for _, sandbox := range sandboxes {
		if own := bySandbox[sandbox.GetId()]; len(own) > 0 {
			out = append(out, p.pod(sandbox, own, byID, rootFs, containerFs))
		}
	}
	slices.SortFunc(out, func(a, b statsapi.PodStats) int {
		return cmp.Or(strings.Compare(a.PodRef.Namespace, b.PodRef.Namespace), strings.Compare(a.PodRef.Name, b.PodRef.Name))
	})
	return out, nil
}

func (p *Provider) pod(
	sandbox *runtimeapi.PodSandbox, own []*runtimeapi.Container, byID map[string]*runtimeapi.ContainerStats, rootFs, containerFs *statsapi.FsStats,
) statsapi.PodStats {
	meta := sandbox.GetMetadata()
	out := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid()},
		StartTime: metav1.NewTime(time.Unix(0, sandbox.GetCreatedAt())),
	}
	logs := filepath.Join(p.cfg.LogDir, meta.GetNamespace()+"_"+meta.GetName()+"_"+meta.GetUid())
	for _, c := range own {
		s := p.container(c, byID[c.GetId()], containerFs)
		log := p.size(filepath.Join(logs, s.Name))
		s.Logs = part(rootFs, metav1.NewTime(log.at), &log.bytes, &log.inodes)
		out.Containers = append(out.Containers, s)
		out.CPU, out.Memory = addCPU(out.CPU, s.CPU), addMemory(out.Memory, s.Memory)
	}
	p.rate("pod "+meta.GetUid(), out.CPU)
	p.storage(&out, rootFs)
	return out
}

// container turns the runtime's figures of a container into those of a summary.
func (p *Provider) container(c *runtimeapi.Container, s *runtimeapi.ContainerStats, containerFs *statsapi.FsStats) statsapi.ContainerStats {
	out := statsapi.ContainerStats{
		Name:      cmp.Or(c.GetLabels()[container.ContainerNameLabel], c.GetMetadata().GetName()),
		StartTime: metav1.NewTime(time.Unix(0, c.GetCreatedAt())),
	}
	if cpu := s.GetCpu(); cpu.GetUsageCoreNanoSeconds() != nil {
		out.CPU = &statsapi.CPUStats{
			Time: metav1.NewTime(time.Unix(0, cpu.GetTimestamp())), UsageCoreNanoSeconds: number(cpu.GetUsageCoreNanoSeconds()),
			UsageNanoCores: number(cpu.GetUsageNanoCores()),
		}
	}
	if m := s.GetMemory(); m.GetWorkingSetBytes() != nil {
		out.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: number(m.GetWorkingSetBytes()),
			AvailableBytes: number(m.GetAvailableBytes()), UsageBytes: number(m.GetUsageBytes()), RSSBytes: number(m.GetRssBytes()),
		}
	}
	p.rate(c.GetId(), out.CPU)
	if w := s.GetWritableLayer(); w != nil {
		out.Rootfs = part(containerFs, metav1.NewTime(time.Unix(0, w.GetTimestamp())), number(w.GetUsedBytes()), number(w.GetInodesUsed()))
	}
	return out
}

// storage adds the pod's local volumes, and the sum of what it has on the node's disk: writable layers, logs and
// volumes, but not volumes on another file system, such as one in memory.
func (p *Provider) storage(out *statsapi.PodStats, rootFs *statsapi.FsStats) {
	var bytes, inodes uint64
	add := func(b, i *uint64) { bytes, inodes = bytes+*cmp.Or(b, new(uint64)), inodes+*cmp.Or(i, new(uint64)) }
	for _, c := range out.Containers {
		add(c.Logs.UsedBytes, c.Logs.InodesUsed)
		if c.Rootfs != nil {
			add(c.Rootfs.UsedBytes, c.Rootfs.InodesUsed)
		}
	}
	node := device(p.cfg.RootDir)
	dirs, _ := filepath.Glob(filepath.Join(p.cfg.RootDir, "pods", out.PodRef.UID, "volumes", "kubernetes.io~*", "*"))
	for _, dir := range dirs {
		whole, err := fsStats(dir)
		if err != nil {
			continue // unmounted meanwhile
		}
		s := p.size(dir)
		if device(dir) == node {
			add(&s.bytes, &s.inodes)
		}
		v := statsapi.VolumeStats{Name: filepath.Base(dir), FsStats: *part(whole, metav1.NewTime(s.at), &s.bytes, &s.inodes)}
		out.VolumeStats = append(out.VolumeStats, v)
	}
	out.EphemeralStorage = part(rootFs, metav1.Now(), &bytes, &inodes)
}

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

// addCPU adds two measurements, of which each may be missing.
func addCPU(a, b *statsapi.CPUStats) *statsapi.CPUStats {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &statsapi.CPUStats{
		Time: later(a.Time, b.Time), UsageCoreNanoSeconds: plus(a.UsageCoreNanoSeconds, b.UsageCoreNanoSeconds),
		UsageNanoCores: plus(a.UsageNanoCores, b.UsageNanoCores),
	}
}

// addMemory is addCPU for memory.
func addMemory(a, b *statsapi.MemoryStats) *statsapi.MemoryStats {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &statsapi.MemoryStats{
		Time: later(a.Time, b.Time), UsageBytes: plus(a.UsageBytes, b.UsageBytes),
		WorkingSetBytes: plus(a.WorkingSetBytes, b.WorkingSetBytes), RSSBytes: plus(a.RSSBytes, b.RSSBytes),
	}
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(*a + *b)
}
