package stats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A fakeCRI answers with what a test put in, and notes the selectors of the lists.
type fakeCRI struct {
	stats      []*runtimeapi.ContainerStats
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	imageFs    []*runtimeapi.FilesystemUsage
	pods       []*runtimeapi.PodSandboxStats // nil: the runtime does not know them
	selectors  []map[string]string
	calls      int // of ImageFsInfo
}

func (f *fakeCRI) ListContainerStats(
	_ context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.stats, nil
}

func (f *fakeCRI) ListPodSandboxStats(
	_ context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	if f.pods == nil {
		return nil, errors.New("unknown method")
	}
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.pods, nil
}

func (f *fakeCRI) ListContainers(
	_ context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.containers, nil
}

func (f *fakeCRI) ListPodSandbox(
	_ context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.sandboxes, nil
}

func (f *fakeCRI) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	f.calls++
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: f.imageFs}, ctx.Err()
}

func v64(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// newFake is a runtime with two pods. It has figures of the container of one of them.
func newFake(mountpoint string) *fakeCRI {
	labels := map[string]string{container.ContainerNameLabel: "app"}
	fsID := &runtimeapi.FilesystemIdentifier{Mountpoint: mountpoint}
	meta := func(name, uid string) *runtimeapi.PodSandboxMetadata {
		return &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: uid}
	}
	return &fakeCRI{
		sandboxes: []*runtimeapi.PodSandbox{
			{Id: "s2", CreatedAt: 7e9, Metadata: meta("web", "u2")},
			{Id: "s1", CreatedAt: 5e9, Metadata: meta("db", "u1")},
			{Id: "s3", Metadata: meta("empty", "u3")},
		},
		containers: []*runtimeapi.Container{
			{Id: "c1", PodSandboxId: "s1", CreatedAt: 6e9, Labels: labels},
			{Id: "c2", PodSandboxId: "s2", CreatedAt: 8e9, Labels: labels},
		},
		stats: []*runtimeapi.ContainerStats{
			{
				Attributes: &runtimeapi.ContainerAttributes{Id: "c2"},
				Cpu:        &runtimeapi.CpuUsage{Timestamp: 100e9, UsageCoreNanoSeconds: v64(4e9)},
				Memory: &runtimeapi.MemoryUsage{
					WorkingSetBytes: v64(3 << 20), UsageBytes: v64(4 << 20), RssBytes: v64(1 << 20), AvailableBytes: v64(0),
				},
				WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: 90e9, UsedBytes: v64(8192), InodesUsed: v64(3)},
			},
			{Attributes: &runtimeapi.ContainerAttributes{Id: "c1"}}, // without figures
		},
		imageFs: []*runtimeapi.FilesystemUsage{{FsId: fsID, UsedBytes: v64(1 << 20), InodesUsed: v64(12)}},
	}
}

// newProvider measures the recorded machine.
func newProvider(t *testing.T, cri CRI) (p *Provider, rootDir, logDir string) {
	t.Helper()
	rootDir, logDir = t.TempDir(), t.TempDir()
	p, err := New(Config{
		CRI: cri, NodeName: "node-1", Root: "testdata/node", RootDir: rootDir, LogDir: logDir,
		Cgroup: func(string) string { return "" },
	})
	testkit.Must(t, err)
	return p, rootDir, logDir
}

func summary(t *testing.T, p *Provider) *statsapi.Summary {
	t.Helper()
	s, err := p.Summary(t.Context(), false)
	testkit.Must(t, err)
	return s
}

func TestNode(t *testing.T) {
	p, rootDir, _ := newProvider(t, newFake("/nowhere"))
	n := summary(t, p).Node
	const total, usage, inactive = 24684096 << 10, (24684096 - 14813104) << 10, 2521280 << 10
	compare(t, &statsapi.MemoryStats{
		UsageBytes: new(uint64(usage)), WorkingSetBytes: new(uint64(usage - inactive)),
		AvailableBytes: new(uint64(total - usage + inactive)), RSSBytes: new(uint64(375396 << 10)),
	}, n.Memory)
	// user 1568732, nice 53825, system 718279, softirq 30279, steal 20239 hundredths of a second
	compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(2391354 * 1e7))}, n.CPU)
	compare(t, &statsapi.RlimitStats{MaxPID: new(int64(192657)), NumOfRunningProcesses: new(int64(3518))}, n.Rlimit)
	testkit.Equal(t, "name and boot", []any{"node-1", int64(1795225821)}, []any{n.NodeName, n.StartTime.Unix()})
	capacity, _, err := Disk(rootDir)
	if fs := n.Fs; err != nil || *fs.CapacityBytes != capacity || *fs.UsedBytes+*fs.AvailableBytes > capacity ||
		*fs.InodesUsed+*fs.InodesFree != *fs.Inodes {
		t.Errorf("file system %+v, %v", fs, err)
	}
	// The size of the runtime's file system is not known here.
	want := &statsapi.FsStats{UsedBytes: new(uint64(1 << 20)), InodesUsed: new(uint64(12))}
	compare(t, &statsapi.RuntimeStats{ImageFs: want, ContainerFs: want}, n.Runtime)
}

func TestPods(t *testing.T) {
	cri := newFake(t.TempDir())
	p, rootDir, logDir := newProvider(t, cri)
	testkit.Write(t, filepath.Join(logDir, "ns_web_u2/app/0.log"), strings.Repeat("x", 5000))
	cache := filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache")
	testkit.Write(t, filepath.Join(cache, "a"), strings.Repeat("x", 9000))
	testkit.Must(t, os.Link(filepath.Join(cache, "a"), filepath.Join(cache, "again")))
	hosts := filepath.Join(rootDir, "pods/u2/etc-hosts")
	testkit.Write(t, hosts, "127.0.0.1 localhost\n")
	pods := summary(t, p).Pods
	ours := map[string]string{container.OwnerLabel: "node-1"}
	compare(t, []map[string]string{ours, ours, ours}, cri.selectors)
	testkit.Equal(t, "pods", 2, len(pods))
	db, web := pods[0], pods[1]
	compare(t, statsapi.PodReference{Name: "db", Namespace: "ns", UID: "u1"}, db.PodRef)
	if c := db.Containers[0]; db.StartTime.Unix() != 5 || c.StartTime.Unix() != 6 || c.Name != "app" {
		t.Errorf("db %+v", db)
	}
	compare(t, (*statsapi.CPUStats)(nil), db.CPU) // the runtime has no figures
	compare(t, &statsapi.SwapStats{SwapUsageBytes: new(uint64), SwapAvailableBytes: new(uint64)}, web.Containers[0].Swap)
	compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(4e9))}, web.CPU)
	memory := &statsapi.MemoryStats{
		UsageBytes: new(uint64(4 << 20)), WorkingSetBytes: new(uint64(3 << 20)), RSSBytes: new(uint64(1 << 20)),
	}
	compare(t, memory, web.Containers[0].Memory)
	compare(t, memory, web.Memory)
	compare(t, &statsapi.FsStats{UsedBytes: new(uint64(8192)), InodesUsed: new(uint64(3))}, web.Containers[0].Rootfs)
	logs, volume := web.Containers[0].Logs, web.VolumeStats[0]
	if *logs.UsedBytes < 5000 || *logs.InodesUsed != 1 {
		t.Errorf("logs %+v", logs)
	}
	if volume.Name != "cache" || *volume.UsedBytes < 9000 || *volume.UsedBytes > 17000 || *volume.InodesUsed != 2 {
		t.Errorf("volume %s: %d bytes, %d inodes", volume.Name, *volume.UsedBytes, *volume.InodesUsed)
	}
	compare(t, &statsapi.FsStats{
		UsedBytes: new(8192 + *logs.UsedBytes + *volume.UsedBytes + *measure(hosts).UsedBytes), InodesUsed: new(uint64(7)),
	}, web.EphemeralStorage)
}

// TestNetworks has a runtime that knows the network of one pod, and then one that knows none.
func TestNetworks(t *testing.T) {
	cri := newFake("/nowhere")
	eth0 := &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: v64(1), TxBytes: v64(2), RxErrors: v64(3)}
	cri.pods = []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Metadata: cri.sandboxes[1].GetMetadata()},
		Linux: &runtimeapi.LinuxPodSandboxStats{Network: &runtimeapi.NetworkUsage{
			DefaultInterface: eth0, Interfaces: []*runtimeapi.NetworkInterfaceUsage{eth0},
		}},
	}}
	p, _, _ := newProvider(t, cri)
	one := statsapi.InterfaceStats{
		Name: "eth0", RxBytes: new(uint64(1)), TxBytes: new(uint64(2)), RxErrors: new(uint64(3)),
	}
	for _, want := range []*statsapi.NetworkStats{
		{InterfaceStats: one, Interfaces: []statsapi.InterfaceStats{one}}, nil,
	} {
		s, err := p.SummaryWithNetworks(t.Context())
		testkit.Must(t, err)
		compare(t, want, s.Pods[0].Network)
		compare(t, (*statsapi.NetworkStats)(nil), s.Pods[1].Network)
		compare(t, (*statsapi.NetworkStats)(nil), summary(t, p).Pods[0].Network)
		cri.pods = nil
	}
}

// TestCgroups reads the node and the pod web where control groups are of either version; only the root of version 2
// has no memory.
func TestCgroups(t *testing.T) {
	const pod = "kubepods/podu2/"
	for version, tt := range map[string]struct {
		files   map[string]string // below /sys/fs/cgroup
		nodeCPU uint64
		swap    uint64
	}{
		"1": {
			files: map[string]string{
				"cpuacct/cpuacct.usage": "11\n", "memory/memory.usage_in_bytes": "50\n",
				"memory/memory.stat":               "inactive_file 9\ntotal_inactive_file 20\ntotal_rss 5\ntotal_swap 3\n",
				"cpuacct/" + pod + "cpuacct.usage": "7000\n", "memory/" + pod + "memory.usage_in_bytes": "40\n",
				"memory/" + pod + "memory.stat": "inactive_file 9\ntotal_inactive_file 10\ntotal_rss 5\ntotal_swap 3\n",
			},
			nodeCPU: 11, swap: 3,
		},
		"2": {
			files: map[string]string{
				"cgroup.controllers": "cpu\n", "cpu.stat": "usage_usec 1\n", "memory.stat": "inactive_file 1\n",
				pod + "cpu.stat": "nr 1\nusage_usec 7\n", pod + "memory.current": "40\n",
				pod + "memory.stat":         "anon 5\nactive_file 1\ninactive_file 10\n",
				pod + "memory.swap.current": "3\n",
			},
			nodeCPU: 2391354 * 1e7, swap: 3,
		},
	} {
		t.Run(version, func(t *testing.T) {
			root := t.TempDir()
			testkit.Must(t, os.CopyFS(root, os.DirFS("testdata/node")))
			for name, text := range tt.files {
				testkit.Write(t, filepath.Join(root, "sys/fs/cgroup", name), text)
			}
			p, _, _ := newProvider(t, newFake("/nowhere"))
			p.cfg.Root = root
			p.cfg.Cgroup = func(uid string) string { return "kubepods/pod" + uid }
			s := summary(t, p)
			web := s.Pods[1]
			compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(tt.nodeCPU)}, s.Node.CPU)
			compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(7000))}, web.CPU)
			compare(t, &statsapi.MemoryStats{
				UsageBytes: new(uint64(40)), WorkingSetBytes: new(uint64(30)), RSSBytes: new(uint64(5)),
			}, web.Memory)
			compare(t, &statsapi.SwapStats{SwapUsageBytes: new(tt.swap)}, web.Swap)
			compare(t, &statsapi.SwapStats{SwapUsageBytes: new(uint64)}, s.Pods[0].Swap) // without cgroup
		})
	}
}

func TestSummaryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := newFake("/nowhere")
		p, rootDir, _ := newProvider(t, cri)
		testkit.Must(t, os.MkdirAll(filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache"), 0o755))
		begin := time.Now()
		for range 10 {
			cores := summary(t, p).Node.CPU.UsageNanoCores
			if (cores == nil) != (time.Since(begin) < freshFor) || cores != nil && *cores != 0 {
				t.Errorf("%v of the recorded machine", cores)
			}
			time.Sleep(4 * time.Second)
		}
		if cri.calls != 4 { // at 0, 12, 24 and 36 s
			t.Errorf("%d measurements in 36 s", cri.calls)
		}
		before := len(p.sizes)
		cri.containers = nil
		if _, err := p.Summary(t.Context(), true); err != nil || before == 0 || len(p.sizes) != 0 {
			t.Errorf("%d sizes are remembered, and %d when all is gone, %v", before, len(p.sizes), err)
		}
	})
}

// compare compares without times.
func compare(t *testing.T, want, got any) {
	t.Helper()
	testkit.Equal(t, "result", want, got, cmpopts.IgnoreTypes(metav1.Time{}))
}
