package stats

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	NodeName string // only what bears it as container.OwnerLabel is counted
	Root     string // "/", but for tests: proc and, for CgroupRoot, cgroups are found below it
	// CgroupRoot is where the cgroups are mounted, of version 1 or 2: sys/fs/cgroup.
	CgroupRoot string
	RootDir    string // with the pods' directories; its file system is the node's
	LogDir     string // with the pods' logs: /var/log/pods
	// PodCgroup is a pod's cgroup in the form of CRI's cgroup_parent, empty if it is not known. It may be nil.
	PodCgroup func(uid types.UID) string
}

// freshFor is how long a summary is given out again, and diskFor how long the size of a directory is (the kubelet's
// housekeeping of cAdvisor, and volumeStatsAggPeriod).
const (
	freshFor = 10 * time.Second
	diskFor  = time.Minute
)

// A Provider measures. It is safe for use by several goroutines.
type Provider struct {
	cfg     Config
	proc    procfs.FS
	cgroups cgroups
	turn    chan struct{} // holds a token while somebody measures; guards what follows
	last    *statsapi.Summary
	lastAt  time.Time
	cpu     map[string]cpuSample // by container id, pod UID or node
	sizes   map[string]size      // by directory
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
	return &Provider{
		cfg: cfg, proc: proc, cgroups: openCgroups(filepath.Join(cfg.Root, cfg.CgroupRoot)),
		turn: make(chan struct{}, 1), cpu: map[string]cpuSample{}, sizes: map[string]size{},
	}, nil
}

// Summary measures, or returns what was measured less than 10 s ago, which must not be changed. Any part that cannot be
// measured makes it fail, as upstream: while a runtime hangs there are no stats, and so no evictions.
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
	rootFs, err := fsStats(p.cfg.RootDir)
	if err != nil {
		return nil, err
	}
	imageFs, containerFs, err := p.imageFs(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting imageFs stats: %w", err)
	}
	pods, err := p.pods(ctx, rootFs, containerFs)
	if err != nil {
		return nil, fmt.Errorf("listing pod stats: %w", err)
	}
	node.Fs, node.Runtime = rootFs, &statsapi.RuntimeStats{ImageFs: imageFs, ContainerFs: containerFs}
	node.SystemContainers = []statsapi.ContainerStats{podsTogether(pods, node.StartTime)}
	p.last, p.lastAt = &statsapi.Summary{Node: *node, Pods: pods}, time.Now()
	p.forget()
	return p.last, nil
}

// podsTogether is the system container of all pods, which eviction by allocatable memory looks at.
func podsTogether(pods []statsapi.PodStats, start metav1.Time) statsapi.ContainerStats {
	var cpu []*statsapi.CPUStats
	var memory []*statsapi.MemoryStats
	for i := range pods {
		cpu, memory = append(cpu, pods[i].CPU), append(memory, pods[i].Memory)
	}
	return statsapi.ContainerStats{
		Name: statsapi.SystemContainerPods, StartTime: start, CPU: sumCPU(cpu), Memory: sumMemory(memory),
	}
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
		now.rate = before.rate // the runtime gave its last sample again
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
