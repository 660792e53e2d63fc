// Package stats measures the node and the pods of a syncLoop (pkg/kubelet/stats upstream): proc for the node, CRI for
// containers and the image file system, and the disk for logs and volumes. Left out are cgroups, and so the
// usage charged to a pod but not to its containers, network, swap of the node, processes, and accelerators.
package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// CRI is the part of the runtime's client that a Provider uses.
type CRI interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) (
		[]*runtimeapi.ContainerStats, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config configures a Provider.
type Config struct {
	CRI      CRI
	NodeName string // only sandboxes and containers with it as container.OwnerLabel are counted
	Root     string // "/", but for tests: proc is below it
	RootDir  string // with the pods' directories; its file system is the node's
	LogDir   string // with the pods' logs: /var/log/pods
}

// freshFor is how long a summary is returned again, and diskFor how long the size of a directory is (the kubelet's
// housekeeping of cAdvisor, and volumeStatsAggPeriod).
const (
	freshFor = 10 * time.Second
	diskFor  = time.Minute
)

// A Provider measures. It is safe for use by several goroutines.
type Provider struct {
	cfg         Config
	proc        procfs.FS
	turn        chan struct{} // holds a token during a measurement; guards the fields below
	last        *statsapi.Summary
	lastAt      time.Time
	sizes, next map[string]*statsapi.FsStats // of directories, as of the last summary and of the one being made
}

// New makes a Provider. A root without proc is an error.
func New(cfg Config) (*Provider, error) {
	proc, err := procfs.NewFS(filepath.Join(cfg.Root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("opening proc: %w", err)
	}
	return &Provider{cfg: cfg, proc: proc, turn: make(chan struct{}, 1)}, nil
}

// Summary measures. Unless it has to be fresh, it returns a summary of less than 10 s ago, which must not be changed.
// It fails if any part cannot be measured, as upstream: while a runtime hangs there are no stats, and therefore no
// evictions.
func (p *Provider) Summary(ctx context.Context, fresh bool) (*statsapi.Summary, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !fresh && p.last != nil && time.Since(p.lastAt) < freshFor {
		return p.last, nil
	}
	node, err := p.node()
	if err != nil {
		return nil, err
	}
	if node.Fs, err = fsStats(p.cfg.RootDir); err != nil {
		return nil, err
	}
	_, imageFs, err := p.imageFs(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting imageFs stats: %w", err)
	}
	node.Runtime = &statsapi.RuntimeStats{ImageFs: imageFs, ContainerFs: imageFs}
	p.next = map[string]*statsapi.FsStats{}
	pods, err := p.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing pod stats: %w", err)
	}
	p.sizes = p.next
	p.last, p.lastAt = &statsapi.Summary{Node: *node, Pods: pods}, time.Now()
	return p.last, nil
}

// node reads the node from proc. Memory in use is MemTotal - MemFree, as libcontainer has it for the root cgroup of
// version 2.
func (p *Provider) node() (*statsapi.NodeStats, error) {
	now := metav1.Now()
	stat, err := p.proc.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading stat: %w", err)
	}
	m, err := p.proc.Meminfo()
	if err != nil || m.MemTotalBytes == nil || m.MemFreeBytes == nil {
		return nil, fmt.Errorf("reading meminfo: %w", cmp.Or(err, errors.New("no MemTotal or MemFree")))
	}
	c := stat.CPUTotal // in seconds; guests are part of user and nice
	total := uint64(math.Round((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)))
	usage := *m.MemTotalBytes - *m.MemFreeBytes
	inactive := cmp.Or(m.InactiveFileBytes, new(uint64)) // files that the kernel can drop at once
	working := usage - min(usage, *inactive)
	n := &statsapi.NodeStats{
		NodeName: p.cfg.NodeName, StartTime: metav1.Unix(int64(stat.BootTime), 0),
		CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total},
		Memory: &statsapi.MemoryStats{
			Time: now, UsageBytes: &usage, WorkingSetBytes: &working, AvailableBytes: new(*m.MemTotalBytes - working),
			RSSBytes: m.AnonPagesBytes,
		},
		Rlimit: pidlimit(filepath.Join(p.cfg.Root, "proc")),
	}
	if p.last != nil {
		before := p.last.Node.CPU
		cores := float64(total-*before.UsageCoreNanoSeconds) / now.Sub(before.Time.Time).Seconds()
		n.CPU.UsageNanoCores = new(uint64(cores))
	}
	return n, nil
}

// pods measures the pods that run a container, by their sandboxes.
func (p *Provider) pods(ctx context.Context) ([]statsapi.PodStats, error) {
	ours := map[string]string{container.OwnerLabel: p.cfg.NodeName}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	containers, err := p.cfg.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{State: running, LabelSelector: ours})
	if err != nil {
		return nil, err
	}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	sandboxes, err := p.cfg.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: ready, LabelSelector: ours})
	if err != nil {
		return nil, err
	}
	list, err := p.cfg.CRI.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{LabelSelector: ours})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*runtimeapi.ContainerStats, len(list))
	for _, s := range list {
		byID[s.GetAttributes().GetId()] = s
	}
	pods := map[string]*statsapi.PodStats{} // by sandbox
	for _, s := range sandboxes {
		m := s.GetMetadata()
		pods[s.GetId()] = &statsapi.PodStats{
			PodRef:    statsapi.PodReference{Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid()},
			StartTime: metav1.NewTime(time.Unix(0, s.GetCreatedAt())),
		}
	}
	for _, c := range containers {
		if pod := pods[c.GetPodSandboxId()]; pod != nil {
			pod.Containers = append(pod.Containers, p.container(pod.PodRef, c, byID[c.GetId()]))
		}
	}
	out := []statsapi.PodStats{}
	for _, pod := range pods {
		if len(pod.Containers) > 0 {
			p.sums(pod)
			out = append(out, *pod)
		}
	}
	slices.SortFunc(out, func(a, b statsapi.PodStats) int {
		x, y := a.PodRef, b.PodRef
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return out, nil
}

// container turns the runtime's figures of a container into those of a summary.
func (p *Provider) container(
	pod statsapi.PodReference, c *runtimeapi.Container, s *runtimeapi.ContainerStats,
) statsapi.ContainerStats {
	out := statsapi.ContainerStats{
		Name: c.GetLabels()[container.ContainerNameLabel], StartTime: metav1.NewTime(time.Unix(0, c.GetCreatedAt())),
	}
	if cpu := s.GetCpu(); cpu.GetUsageCoreNanoSeconds() != nil {
		out.CPU = &statsapi.CPUStats{
			Time:                 metav1.NewTime(time.Unix(0, cpu.GetTimestamp())),
			UsageNanoCores:       number(cpu.GetUsageNanoCores()),
			UsageCoreNanoSeconds: number(cpu.GetUsageCoreNanoSeconds()),
		}
	}
	if m := s.GetMemory(); m.GetWorkingSetBytes() != nil {
		out.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: number(m.GetWorkingSetBytes()),
			AvailableBytes: number(m.GetAvailableBytes()), UsageBytes: number(m.GetUsageBytes()),
			RSSBytes: number(m.GetRssBytes()),
		}
	}
	if w := s.GetWritableLayer(); w != nil {
		out.Rootfs = &statsapi.FsStats{
			Time:      metav1.NewTime(time.Unix(0, w.GetTimestamp())),
			UsedBytes: number(w.GetUsedBytes()), InodesUsed: number(w.GetInodesUsed()),
		}
	}
	out.Logs = p.size(filepath.Join(p.cfg.LogDir, pod.Namespace+"_"+pod.Name+"_"+pod.UID, out.Name))
	return out
}

// sums adds the pod's local volumes, the usage of its containers together, and its usage of the node's disk: writable
// layers, logs and volumes, but not volumes on another file system, such as one in memory.
func (p *Provider) sums(out *statsapi.PodStats) {
	now := metav1.Now()
	disk, cpu, memory := &statsapi.FsStats{Time: now}, &statsapi.CPUStats{Time: now}, &statsapi.MemoryStats{Time: now}
	out.EphemeralStorage, out.CPU, out.Memory = disk, cpu, memory
	for _, c := range out.Containers {
		if c.CPU != nil {
			cpu.UsageNanoCores = plus(cpu.UsageNanoCores, c.CPU.UsageNanoCores)
			cpu.UsageCoreNanoSeconds = plus(cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
		}
		if c.Memory != nil {
			memory.UsageBytes = plus(memory.UsageBytes, c.Memory.UsageBytes)
			memory.WorkingSetBytes = plus(memory.WorkingSetBytes, c.Memory.WorkingSetBytes)
			memory.RSSBytes = plus(memory.RSSBytes, c.Memory.RSSBytes)
		}
		addFs(disk, c.Logs)
		addFs(disk, c.Rootfs)
	}
	dirs, _ := filepath.Glob(filepath.Join(p.cfg.RootDir, "pods", out.PodRef.UID, "volumes", "kubernetes.io~*", "*"))
	for _, dir := range dirs {
		s := p.size(dir)
		if device(dir) == device(p.cfg.RootDir) {
			addFs(disk, s)
		}
		out.VolumeStats = append(out.VolumeStats, statsapi.VolumeStats{Name: filepath.Base(dir), FsStats: *s})
	}
}

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

// addFs adds the usage of a disk, if it is known, to a sum.
func addFs(sum, s *statsapi.FsStats) {
	if s != nil {
		sum.UsedBytes, sum.InodesUsed = plus(sum.UsedBytes, s.UsedBytes), plus(sum.InodesUsed, s.InodesUsed)
	}
}

func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(*a + *b)
}

// fsStats measures the file system of a directory. Available is the space for a user without privileges; used is
// all space that is not free.
func fsStats(dir string) (*statsapi.FsStats, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, fmt.Errorf("measuring the file system of %s: %w", dir, err)
	}
	block := uint64(s.Bsize)
	return &statsapi.FsStats{
		Time: metav1.Now(), CapacityBytes: new(s.Blocks * block), AvailableBytes: new(s.Bavail * block),
		UsedBytes: new((s.Blocks - s.Bfree) * block),
		Inodes:    new(s.Files), InodesFree: new(s.Ffree), InodesUsed: new(s.Files - s.Ffree),
	}, nil
}

// Disk returns the size of a directory's file system and its available space, in bytes.
func Disk(dir string) (capacity, available uint64, err error) {
	s, err := fsStats(dir)
	if err != nil {
		return 0, 0, err
	}
	return *s.CapacityBytes, *s.AvailableBytes, nil
}

// imageFs measures the file system of the images: used counts the images, the rest is of the whole file system.
// One that this machine does not have, such as that of a simulated runtime, has the runtime's figures only, and dir is
// the node's.
func (p *Provider) imageFs(ctx context.Context) (dir string, out *statsapi.FsStats, err error) {
	info, err := p.cfg.CRI.ImageFsInfo(ctx)
	if err != nil {
		return "", nil, err
	}
	if len(info.GetImageFilesystems()) == 0 {
		return "", nil, errors.New("the runtime has no image filesystem")
	}
	u := info.GetImageFilesystems()[0]
	dir = u.GetFsId().GetMountpoint()
	if out, err = fsStats(dir); errors.Is(err, fs.ErrNotExist) {
		dir, out, err = p.cfg.RootDir, &statsapi.FsStats{}, nil
	}
	if err == nil {
		out.Time = metav1.NewTime(time.Unix(0, u.GetTimestamp()))
		out.UsedBytes, out.InodesUsed = number(u.GetUsedBytes()), number(u.GetInodesUsed())
	}
	return dir, out, err
}

// ImageDisk returns the size of the file system with the images and its available space, in bytes.
func (p *Provider) ImageDisk(ctx context.Context) (capacity, available uint64, err error) {
	dir, _, err := p.imageFs(ctx)
	if err != nil {
		return 0, 0, err
	}
	return Disk(dir)
}

// device is the number of a directory's file system; 0 if it cannot be asked for.
func device(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return uint64(st.Dev) // of another type on other systems
}

// size adds up a directory, at most once a minute. One that is not there is empty.
func (p *Provider) size(dir string) *statsapi.FsStats {
	s, ok := p.sizes[dir]
	if !ok || time.Since(s.Time.Time) >= diskFor {
		s = measure(dir)
	}
	p.next[dir] = s
	return s
}

// measure adds up the blocks and inodes below a directory, each inode once, within its file system. What vanishes or
// cannot be read meanwhile is not counted.
func measure(dir string) *statsapi.FsStats {
	var bytes, inodes uint64
	seen, own := map[uint64]bool{}, device(dir)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // which returns no errors but SkipDir
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || seen[st.Ino]:
			return nil
		case uint64(st.Dev) != own && d.IsDir():
			return filepath.SkipDir
		}
		seen[st.Ino] = true
		bytes += uint64(st.Blocks) * 512 // stat's unit, independent of the file system's block
		inodes++
		return nil
	})
	return &statsapi.FsStats{Time: metav1.Now(), UsedBytes: &bytes, InodesUsed: &inodes}
}
