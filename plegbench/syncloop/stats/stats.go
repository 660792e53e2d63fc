// Package stats measures the node and the pods of a syncLoop (pkg/kubelet/stats upstream): cgroups and proc for the
// node, cgroups and CRI for pods, CRI for containers and the image file system, and the disk for logs and volumes. Left
// out are pressure, processes, accelerators, and the node's network and system containers.
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
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// CRI is the part of the runtime's client that a Provider uses.
type CRI interface {
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) (
		[]*runtimeapi.PodSandboxStats, error)
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
	Root     string // "/", but for tests: proc and sys are below it
	RootDir  string // with the pods' directories; its file system is the node's
	LogDir   string // with the pods' logs: /var/log/pods
	// Cgroup returns the path of a pod's cgroup in its hierarchies, or "" for an unknown pod.
	Cgroup func(uid string) string
}

// freshFor is how long a summary is returned again, and diskFor how long the size of a volume is (the kubelet's
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
	cpu         map[string]*statsapi.CPUStats // of the node, pods and containers, in the last summary
	sizes, next map[string]*statsapi.FsStats  // of volumes, in the last summary and in the one being made
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
	p.rates(p.last)
	return p.last, nil
}

// SummaryWithNetworks is a summary of less than 10 s ago, with the networks of the pods where the runtime knows them.
// A kubelet reads them itself. containerd 1.6 starts a process for each sandbox to answer, so that neither evictions
// nor /metrics/resource, which ask again and again, ask for them.
func (p *Provider) SummaryWithNetworks(ctx context.Context) (*statsapi.Summary, error) {
	s, err := p.Summary(ctx, false)
	if err != nil {
		return nil, err
	}
	list, err := p.cfg.CRI.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{LabelSelector: p.ours()})
	if remote.IsDeadlineExceeded(err) { // runtimes without these figures have another error
		return nil, fmt.Errorf("listing sandbox stats: %w", err)
	}
	networks := map[string]*statsapi.NetworkStats{} // by pod
	for _, sandbox := range list {
		networks[sandbox.GetAttributes().GetMetadata().GetUid()] = network(sandbox.GetLinux().GetNetwork())
	}
	out := &statsapi.Summary{Node: s.Node, Pods: slices.Clone(s.Pods)}
	for i := range out.Pods {
		out.Pods[i].Network = networks[out.Pods[i].PodRef.UID]
	}
	return out, nil
}

// ours selects what this node's syncLoop has made.
func (p *Provider) ours() map[string]string {
	return map[string]string{container.OwnerLabel: p.cfg.NodeName}
}

// node reads the node from the root of the cgroups of version 1, or from proc, as libcontainer does for version 2:
// memory in use is MemTotal - MemFree there.
func (p *Provider) node() (*statsapi.NodeStats, error) {
	stat, err := p.proc.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading stat: %w", err)
	}
	m, err := p.proc.Meminfo()
	if err != nil || m.MemTotalBytes == nil || m.MemFreeBytes == nil {
		return nil, fmt.Errorf("reading meminfo: %w", cmp.Or(err, errors.New("no MemTotal or MemFree")))
	}
	u, err := p.cgroup("")
	if err != nil {
		c := stat.CPUTotal // in seconds; guests are part of user and nice
		total := uint64(math.Round((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)))
		u = usage{
			total, *m.MemTotalBytes - *m.MemFreeBytes, ptr.Deref(m.InactiveFileBytes, 0), ptr.Deref(m.AnonPagesBytes, 0),
			ptr.Deref(m.SwapTotalBytes, 0) - ptr.Deref(m.SwapFreeBytes, 0),
		}
	}
	n := &statsapi.NodeStats{NodeName: p.cfg.NodeName, StartTime: metav1.Unix(int64(stat.BootTime), 0)}
	n.Rlimit = pidlimit(filepath.Join(p.cfg.Root, "proc"))
	n.CPU, n.Memory, n.Swap = u.stats()
	n.Swap.SwapAvailableBytes = m.SwapFreeBytes
	n.Memory.AvailableBytes = new(*m.MemTotalBytes - min(*m.MemTotalBytes, *n.Memory.WorkingSetBytes))
	return n, nil
}

// pods measures the pods that run a container, by their sandboxes.
func (p *Provider) pods(ctx context.Context) ([]statsapi.PodStats, error) {
	ours := p.ours()
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
	figures := map[string]*runtimeapi.ContainerStats{}
	for _, s := range list {
		figures[s.GetAttributes().GetId()] = s
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
			pod.Containers = append(pod.Containers, p.container(pod.PodRef, c, figures[c.GetId()]))
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

// container converts the runtime's figures of a container for a summary. Swap is zero without any.
func (p *Provider) container(
	pod statsapi.PodReference, c *runtimeapi.Container, s *runtimeapi.ContainerStats,
) statsapi.ContainerStats {
	out := statsapi.ContainerStats{
		Name: c.GetLabels()[container.ContainerNameLabel], StartTime: metav1.NewTime(time.Unix(0, c.GetCreatedAt())),
		CPU: cpu(s.GetCpu()), Memory: memory(s.GetMemory()),
		Swap: &statsapi.SwapStats{Time: metav1.Now(), SwapUsageBytes: new(uint64), SwapAvailableBytes: new(uint64)},
	}
	if swap := s.GetSwap(); swap != nil {
		out.Swap = &statsapi.SwapStats{
			Time:           metav1.NewTime(time.Unix(0, swap.GetTimestamp())),
			SwapUsageBytes: number(swap.GetSwapUsageBytes()), SwapAvailableBytes: number(swap.GetSwapAvailableBytes()),
		}
	}
	if w := s.GetWritableLayer(); w != nil {
		out.Rootfs = &statsapi.FsStats{
			Time:      metav1.NewTime(time.Unix(0, w.GetTimestamp())),
			UsedBytes: number(w.GetUsedBytes()), InodesUsed: number(w.GetInodesUsed()),
		}
	}
	logs, _ := filepath.Glob(filepath.Join(p.cfg.LogDir, pod.Namespace+"_"+pod.Name+"_"+pod.UID, out.Name, "*"))
	out.Logs = measure(logs...) // without their folder, as upstream
	return out
}

// cpu converts the runtime's figures for a summary; nil without any.
func cpu(c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if c.GetUsageCoreNanoSeconds() == nil {
		return nil
	}
	return &statsapi.CPUStats{
		Time: metav1.NewTime(time.Unix(0, c.GetTimestamp())), UsageNanoCores: number(c.GetUsageNanoCores()),
		UsageCoreNanoSeconds: number(c.GetUsageCoreNanoSeconds()),
	}
}

// memory converts the runtime's figures for a summary; nil without any.
func memory(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if m.GetWorkingSetBytes() == nil {
		return nil
	}
	out := &statsapi.MemoryStats{
		Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: number(m.GetWorkingSetBytes()),
		UsageBytes: number(m.GetUsageBytes()), RSSBytes: number(m.GetRssBytes()),
	}
	if m.GetAvailableBytes().GetValue() > 0 { // containerd has 0 without a limit
		out.AvailableBytes = number(m.GetAvailableBytes())
	}
	return out
}

// network converts the runtime's figures of a sandbox for a summary; nil without any.
func network(n *runtimeapi.NetworkUsage) *statsapi.NetworkStats {
	if n == nil {
		return nil
	}
	one := func(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
		return statsapi.InterfaceStats{
			Name: i.GetName(), RxBytes: number(i.GetRxBytes()), RxErrors: number(i.GetRxErrors()),
			TxBytes: number(i.GetTxBytes()), TxErrors: number(i.GetTxErrors()),
		}
	}
	at := cmp.Or(n.GetTimestamp(), time.Now().UnixNano()) // containerd 1.6 sets none
	out := &statsapi.NetworkStats{
		Time: metav1.NewTime(time.Unix(0, at)), InterfaceStats: one(n.GetDefaultInterface()),
	}
	for _, i := range n.GetInterfaces() {
		out.Interfaces = append(out.Interfaces, one(i))
	}
	return out
}

// sums adds the pod's local volumes, and its usage: CPU, memory and swap are those of its cgroup, or else its
// containers' together; the disk has writable layers, logs and volumes, but not volumes on another file system, such as
// one in memory.
func (p *Provider) sums(out *statsapi.PodStats) {
	now := metav1.Now()
	disk := &statsapi.FsStats{Time: now}
	var c *statsapi.CPUStats
	var m *statsapi.MemoryStats
	swap := &statsapi.SwapStats{Time: now}
	for _, one := range out.Containers {
		if one.CPU != nil {
			c = cmp.Or(c, &statsapi.CPUStats{Time: now})
			c.UsageNanoCores = plus(c.UsageNanoCores, one.CPU.UsageNanoCores)
			c.UsageCoreNanoSeconds = plus(c.UsageCoreNanoSeconds, one.CPU.UsageCoreNanoSeconds)
		}
		if one.Memory != nil {
			m = cmp.Or(m, &statsapi.MemoryStats{Time: now})
			m.UsageBytes = plus(m.UsageBytes, one.Memory.UsageBytes)
			m.WorkingSetBytes = plus(m.WorkingSetBytes, one.Memory.WorkingSetBytes)
			m.RSSBytes = plus(m.RSSBytes, one.Memory.RSSBytes)
		}
		swap.SwapUsageBytes = plus(swap.SwapUsageBytes, one.Swap.SwapUsageBytes)
		addFs(disk, one.Logs)
		addFs(disk, one.Rootfs)
	}
	if path := p.cfg.Cgroup(out.PodRef.UID); path != "" {
		if u, err := p.cgroup(path); err == nil { // runtimes that are elsewhere have their cgroups there
			c, m, swap = u.stats()
		}
	}
	out.CPU, out.Memory, out.Swap, out.EphemeralStorage = c, m, swap, disk
	own := filepath.Join(p.cfg.RootDir, "pods", out.PodRef.UID)
	addFs(disk, measure(filepath.Join(own, "etc-hosts")))
	dirs, _ := filepath.Glob(filepath.Join(own, "volumes", "kubernetes.io~*", "*"))
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

// measure adds up the blocks and inodes of files and below directories, each inode once, within their file systems.
// What vanishes or cannot be read meanwhile is not counted.
func measure(paths ...string) *statsapi.FsStats {
	var bytes, inodes uint64
	seen := map[uint64]bool{}
	for _, path := range paths {
		own := device(path)
		_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error { // which returns no errors but SkipDir
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
	}
	return &statsapi.FsStats{Time: metav1.Now(), UsedBytes: &bytes, InodesUsed: &inodes}
}
