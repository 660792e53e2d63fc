package stats

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	var cgroup string
	if p.cfg.PodCgroup != nil {
		cgroup = CgroupPath(p.cfg.PodCgroup(types.UID(meta.GetUid())))
	}
	logs := filepath.Join(p.cfg.LogDir, meta.GetNamespace()+"_"+meta.GetName()+"_"+meta.GetUid())
	var cpu []*statsapi.CPUStats
	var memory []*statsapi.MemoryStats
	for _, c := range own {
		s := p.container(c, byID[c.GetId()], cgroup, containerFs)
		log := p.size(filepath.Join(logs, s.Name))
		s.Logs = part(rootFs, metav1.NewTime(log.at), &log.bytes, &log.inodes)
		out.Containers = append(out.Containers, s)
		cpu, memory = append(cpu, s.CPU), append(memory, s.Memory)
	}
	out.CPU, out.Memory = sumCPU(cpu), sumMemory(memory)
	if u, err := p.cgroups.read(cgroup); cgroup != "" && err == nil { // has the sandbox and what was charged to the pod as well
		out.CPU, out.Memory, out.ProcessStats = u.cpu, u.memory, u.process
	}
	p.rate("pod "+meta.GetUid(), out.CPU)
	p.storage(&out, rootFs)
	return out
}

// container joins what the runtime says with what the cgroup does.
func (p *Provider) container(
	c *runtimeapi.Container, s *runtimeapi.ContainerStats, podCgroup string, containerFs *statsapi.FsStats,
) statsapi.ContainerStats {
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
			PageFaults: number(m.GetPageFaults()), MajorPageFaults: number(m.GetMajorPageFaults()),
		}
	}
	if (out.CPU == nil || out.Memory == nil) && podCgroup != "" {
		if u, err := p.cgroups.readContainer(podCgroup, c.GetId()); err == nil {
			out.CPU, out.Memory = cmp.Or(out.CPU, u.cpu), cmp.Or(out.Memory, u.memory)
		}
	}
	p.rate(c.GetId(), out.CPU)
	if swap := s.GetSwap(); swap != nil {
		out.Swap = &statsapi.SwapStats{
			Time: metav1.NewTime(time.Unix(0, swap.GetTimestamp())), SwapUsageBytes: number(swap.GetSwapUsageBytes()),
			SwapAvailableBytes: number(swap.GetSwapAvailableBytes()),
		}
	}
	if w := s.GetWritableLayer(); w != nil {
		out.Rootfs = part(containerFs, metav1.NewTime(time.Unix(0, w.GetTimestamp())), number(w.GetUsedBytes()), number(w.GetInodesUsed()))
	}
	return out
}

// storage adds the pod's local volumes, and all it keeps on the node's disk: writable layers, logs and volumes. A volume on
// another file system, such as one in memory, is none of it.
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

// sumCPU adds up what is known. It is nil if nothing is.
func sumCPU(all []*statsapi.CPUStats) (out *statsapi.CPUStats) {
	for _, c := range all {
		if c == nil {
			continue
		}
		if out == nil {
			out = &statsapi.CPUStats{}
		}
		out.UsageCoreNanoSeconds = plus(out.UsageCoreNanoSeconds, c.UsageCoreNanoSeconds)
		out.UsageNanoCores = plus(out.UsageNanoCores, c.UsageNanoCores)
		if c.Time.After(out.Time.Time) {
			out.Time = c.Time
		}
	}
	return out
}

// sumMemory is sumCPU for memory.
func sumMemory(all []*statsapi.MemoryStats) (out *statsapi.MemoryStats) {
	for _, m := range all {
		if m == nil {
			continue
		}
		if out == nil {
			out = &statsapi.MemoryStats{}
		}
		out.UsageBytes, out.WorkingSetBytes = plus(out.UsageBytes, m.UsageBytes), plus(out.WorkingSetBytes, m.WorkingSetBytes)
		out.RSSBytes = plus(out.RSSBytes, m.RSSBytes)
		out.PageFaults, out.MajorPageFaults = plus(out.PageFaults, m.PageFaults), plus(out.MajorPageFaults, m.MajorPageFaults)
		if m.Time.After(out.Time.Time) {
			out.Time = m.Time
		}
	}
	return out
}

func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(*a + *b)
}
