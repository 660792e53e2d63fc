// Package stats measures the node and the pods of a syncLoop (pkg/kubelet/stats upstream): proc for the node, CRI for
// containers and the image file system, and the disk for logs and volumes. Left out are cgroups, which would show
// what is charged to a pod but not to its containers, network, swap of the node, and accelerators.
package stats

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// CRI is the part of the runtime's client that a Provider uses.
type CRI interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config is what a Provider is made of.
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
	cfg    Config
	proc   procfs.FS
	turn   chan struct{} // holds a token during a measurement; guards the fields below
	last   *statsapi.Summary
	lastAt time.Time
	cpu    map[string]cpuSample // by container id, pod UID or node
	sizes  map[string]size      // by directory
}

type cpuSample struct {
	at    time.Time
	total uint64 // ns of CPU
	rate  uint64 // ns per second, before that
}

// New makes a Provider. A root without proc is an error.
func New(cfg Config) (*Provider, error) {
	proc, err := procfs.NewFS(filepath.Join(cfg.Root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("opening proc: %w", err)
	}
	return &Provider{cfg: cfg, proc: proc, turn: make(chan struct{}, 1), cpu: map[string]cpuSample{}, sizes: map[string]size{}}, nil
}

// Summary measures, or returns what was measured less than 10 s ago, which must not be changed. It fails if any part
// cannot be measured, as upstream: while a runtime hangs there are no stats, and therefore no evictions.
func (p *Provider) Summary(ctx context.Context) (*statsapi.Summary, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.last != nil && time.Since(p.lastAt) < freshFor {
		return p.last, nil
	}
	node, err := p.node()
	if err != nil {
		return nil, err
	}
	if node.Fs, err = fsStats(p.cfg.RootDir); err != nil {
		return nil, err
	}
	imageFs, containerFs, err := p.imageFs(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting imageFs stats: %w", err)
	}
	pods, err := p.pods(ctx, node.Fs, containerFs)
	if err != nil {
		return nil, fmt.Errorf("listing pod stats: %w", err)
	}
	node.Runtime = &statsapi.RuntimeStats{ImageFs: imageFs, ContainerFs: containerFs}
	together := statsapi.ContainerStats{Name: statsapi.SystemContainerPods, StartTime: node.StartTime} // for eviction by allocatable memory
	for _, pod := range pods {
		together.CPU, together.Memory = addCPU(together.CPU, pod.CPU), addMemory(together.Memory, pod.Memory)
	}
	node.SystemContainers = []statsapi.ContainerStats{together}
	p.last, p.lastAt = &statsapi.Summary{Node: *node, Pods: pods}, time.Now()
	p.forget()
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
	if err != nil {
		return nil, fmt.Errorf("reading meminfo: %w", err)
	}
	if m.MemTotalBytes == nil || m.MemFreeBytes == nil {
		return nil, fmt.Errorf("reading meminfo: no MemTotal or MemFree")
	}
	c := stat.CPUTotal // in seconds; guests are part of user and nice
	total := uint64(math.Round((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)))
	usage := *m.MemTotalBytes - *m.MemFreeBytes
	working := usage - min(usage, *cmp.Or(m.InactiveFileBytes, new(uint64))) // the kernel can drop inactive files at once
	n := &statsapi.NodeStats{
		NodeName: p.cfg.NodeName, StartTime: metav1.Unix(int64(stat.BootTime), 0),
		CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total},
		Memory: &statsapi.MemoryStats{
			Time: now, UsageBytes: &usage, WorkingSetBytes: &working, AvailableBytes: new(*m.MemTotalBytes - working), RSSBytes: m.AnonPagesBytes,
		},
		Rlimit: p.rlimit(now),
	}
	p.rate("node", n.CPU)
	return n, nil
}

// rlimit is how many tasks there are and may be (pkg/kubelet/stats/pidlimit upstream). What cannot be read stays nil.
func (p *Provider) rlimit(now metav1.Time) *statsapi.RlimitStats {
	out := &statsapi.RlimitStats{Time: now}
	for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
		if v, err := p.proc.SysctlInts(name); err == nil && len(v) == 1 && (out.MaxPID == nil || int64(v[0]) < *out.MaxPID) {
			out.MaxPID = new(int64(v[0]))
		}
	}
	// 3518 in "1.36 3.49 4.53 2/3518 3715089"
	data, _ := os.ReadFile(filepath.Join(p.cfg.Root, "proc/loadavg"))
	if fields := strings.Fields(string(data)); len(fields) == 5 {
		_, tasks, _ := strings.Cut(fields[3], "/")
		if n, err := strconv.ParseInt(tasks, 10, 64); err == nil {
			out.NumOfRunningProcesses = &n
		}
	}
	return out
}

// rate fills in the cores that were used since the last measurement, in ns per second, if there was one.
func (p *Provider) rate(key string, cpu *statsapi.CPUStats) {
	if cpu == nil || cpu.UsageCoreNanoSeconds == nil {
		return
	}
	now := cpuSample{at: cpu.Time.Time, total: *cpu.UsageCoreNanoSeconds}
	before, ok := p.cpu[key]
	elapsed := now.at.Sub(before.at)
	switch {
	case !ok || now.total < before.total: // new, or counting again from zero
	case elapsed <= 0:
		now.rate = before.rate // the runtime returned its last sample again
		cpu.UsageNanoCores = &now.rate
	default:
		now.rate = uint64(float64(now.total-before.total) / elapsed.Seconds())
		if cpu.UsageNanoCores == nil {
			cpu.UsageNanoCores = &now.rate
		}
	}
	p.cpu[key] = now
}

// forget drops what was measured of containers and directories that are gone.
func (p *Provider) forget() {
	for key, s := range p.cpu {
		if p.lastAt.Sub(s.at) > 2*diskFor {
			delete(p.cpu, key)
		}
	}
	for dir, s := range p.sizes {
		if p.lastAt.Sub(s.at) > 2*diskFor {
			delete(p.sizes, dir)
		}
	}
}

// ours is the label selector for what this node made.
func (p *Provider) ours() map[string]string {
	return map[string]string{container.OwnerLabel: p.cfg.NodeName}
}
