package stats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A fakeCRI answers with what a test put in, and notes what it was asked for.
type fakeCRI struct {
	stats      []*runtimeapi.ContainerStats
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	imageFs    *runtimeapi.ImageFsInfoResponse
	err        error
	hang       bool
	selectors  []map[string]string
	calls      atomic.Int64
}

func (f *fakeCRI) ListContainerStats(_ context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.stats, f.err
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.containers, nil
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	f.selectors = append(f.selectors, filter.GetLabelSelector())
	return f.sandboxes, nil
}

func (f *fakeCRI) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	f.calls.Add(1)
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.imageFs, nil
}

func v64(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

const recordedUID = "0b8e4c1c-7d1e-4f63-9b52-2b6f3b1e1a01"

// newFake is a runtime with a pod whose container the runtime knows, and one whose container only its cgroup knows.
func newFake(mountpoint string) *fakeCRI {
	labels := map[string]string{container.ContainerNameLabel: "app"}
	fsID := &runtimeapi.FilesystemIdentifier{Mountpoint: mountpoint}
	return &fakeCRI{
		sandboxes: []*runtimeapi.PodSandbox{
			{Id: "s2", CreatedAt: 7e9, Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u2"}},
			{Id: "s1", CreatedAt: 5e9, Metadata: &runtimeapi.PodSandboxMetadata{Name: "db", Namespace: "ns", Uid: recordedUID}},
			{Id: "s3", Metadata: &runtimeapi.PodSandboxMetadata{Name: "empty", Namespace: "ns", Uid: "u3"}},
		},
		containers: []*runtimeapi.Container{
			{Id: "3f1c0d", PodSandboxId: "s1", CreatedAt: 6e9, Labels: labels},
			{Id: "c2", PodSandboxId: "s2", CreatedAt: 8e9, Labels: labels},
		},
		stats: []*runtimeapi.ContainerStats{
			{
				Attributes: &runtimeapi.ContainerAttributes{Id: "c2"},
				Cpu:        &runtimeapi.CpuUsage{Timestamp: 100e9, UsageCoreNanoSeconds: v64(4e9)},
				Memory:     &runtimeapi.MemoryUsage{Timestamp: 100e9, WorkingSetBytes: v64(3 << 20), UsageBytes: v64(4 << 20), RssBytes: v64(1 << 20)},
				WritableLayer: &runtimeapi.FilesystemUsage{
					Timestamp: 90e9, FsId: fsID, UsedBytes: v64(8192), InodesUsed: v64(3),
				},
			},
			{Attributes: &runtimeapi.ContainerAttributes{Id: "3f1c0d"}}, // without figures
			{Attributes: &runtimeapi.ContainerAttributes{Id: "gone"}, Cpu: &runtimeapi.CpuUsage{UsageCoreNanoSeconds: v64(1)}},
		},
		imageFs: &runtimeapi.ImageFsInfoResponse{
			ImageFilesystems: []*runtimeapi.FilesystemUsage{{Timestamp: 80e9, FsId: fsID, UsedBytes: v64(1 << 20), InodesUsed: v64(12)}},
		},
	}
}

// newProvider measures the recorded machine.
func newProvider(t *testing.T, cri CRI) (p *Provider, rootDir, logDir string) {
	t.Helper()
	rootDir, logDir = t.TempDir(), t.TempDir()
	p, err := New(Config{
		CRI: cri, NodeName: "node-1", Root: "testdata/node", RootDir: rootDir, LogDir: logDir,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, rootDir, logDir
}

func write(t *testing.T, path string, bytes int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", bytes)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNode(t *testing.T) {
	p, rootDir, _ := newProvider(t, newFake("/nowhere"))
	s, err := p.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := s.Node
	const total, usage, inactive = 24684096 << 10, (24684096 - 14813104) << 10, 2521280 << 10
	compare(t, &statsapi.MemoryStats{
		UsageBytes: new(uint64(usage)), WorkingSetBytes: new(uint64(usage - inactive)), AvailableBytes: new(uint64(total - usage + inactive)),
		RSSBytes: new(uint64(375396 << 10)),
	}, n.Memory)
	// user 1568732, nice 53825, system 718279, softirq 30279, steal 20239 hundredths of a second
	compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(2391354 * 1e7))}, n.CPU)
	if n.NodeName != "node-1" || n.StartTime.Unix() != 1795225821 {
		t.Errorf("%s, since %v", n.NodeName, n.StartTime)
	}
	fs, err := fsStats(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	if *n.Fs.CapacityBytes != *fs.CapacityBytes || *n.Fs.Inodes != *fs.Inodes || *n.Fs.UsedBytes+*n.Fs.AvailableBytes > *n.Fs.CapacityBytes ||
		*n.Fs.InodesUsed+*n.Fs.InodesFree != *n.Fs.Inodes {
		t.Errorf("file system %+v", n.Fs)
	}
	want := &statsapi.FsStats{UsedBytes: new(uint64(1 << 20)), InodesUsed: new(uint64(12))} // its size is not known here
	compare(t, &statsapi.RuntimeStats{ImageFs: want, ContainerFs: want}, n.Runtime)
}

func TestPods(t *testing.T) {
	cri := newFake(t.TempDir())
	p, rootDir, logDir := newProvider(t, cri)
	write(t, filepath.Join(logDir, "ns_web_u2/app/0.log"), 5000)
	write(t, filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache/a"), 9000)
	write(t, filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache/b"), 1)
	if err := os.Link(filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache/a"),
		filepath.Join(rootDir, "pods/u2/volumes/kubernetes.io~empty-dir/cache/again")); err != nil {
		t.Fatal(err)
	}
	s, err := p.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range cri.selectors {
		compare(t, map[string]string{container.OwnerLabel: "node-1"}, got)
	}
	if len(s.Pods) != 2 {
		t.Fatalf("%d pods", len(s.Pods))
	}
	db, web := s.Pods[0], s.Pods[1]
	compare(t, statsapi.PodReference{Name: "db", Namespace: "ns", UID: recordedUID}, db.PodRef)
	if db.StartTime.Unix() != 5 || db.Containers[0].StartTime.Unix() != 6 || db.Containers[0].Name != "app" || db.Containers[0].Rootfs != nil {
		t.Errorf("db %+v", db)
	}
	compare(t, &statsapi.CPUStats{}, db.CPU) // the runtime has no figures
	compare(t, &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(4e9))}, web.CPU)
	compare(t, &statsapi.MemoryStats{
		UsageBytes: new(uint64(4 << 20)), WorkingSetBytes: new(uint64(3 << 20)), RSSBytes: new(uint64(1 << 20)),
	}, web.Containers[0].Memory)
	rootfs := web.Containers[0].Rootfs
	if *rootfs.UsedBytes != 8192 || *rootfs.InodesUsed != 3 || rootfs.Time.Unix() != 90 {
		t.Errorf("rootfs %+v", rootfs)
	}
	logs, volume := web.Containers[0].Logs, web.VolumeStats[0]
	if *logs.UsedBytes < 5000 || *logs.InodesUsed != 2 {
		t.Errorf("logs %+v", logs)
	}
	if len(web.VolumeStats) != 1 || volume.Name != "cache" || *volume.UsedBytes < 9001 || *volume.UsedBytes > 40000 || *volume.InodesUsed != 3 {
		t.Errorf("volume %s: %d bytes, %d inodes", volume.Name, *volume.UsedBytes, *volume.InodesUsed)
	}
	if e := web.EphemeralStorage; *e.UsedBytes != 8192+*logs.UsedBytes+*volume.UsedBytes || *e.InodesUsed != 8 {
		t.Errorf("ephemeral storage %+v", e)
	}
}

func TestSummaryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := newFake("/nowhere")
		p, _, _ := newProvider(t, cri)
		begin := time.Now()
		for range 10 {
			s, err := p.Summary(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if cores := s.Node.CPU.UsageNanoCores; (cores == nil) != (time.Since(begin) < freshFor) || cores != nil && *cores != 0 {
				t.Errorf("%v of the recorded machine", cores)
			}
			time.Sleep(4 * time.Second)
		}
		if got := cri.calls.Load(); got != 4 { // at 0, 12, 24 and 36 s
			t.Errorf("%d measurements in 36 s", got)
		}
		if len(p.sizes) == 0 {
			t.Fatal("nothing is remembered")
		}
		cri.containers = nil
		time.Sleep(freshFor)
		if _, err := p.Summary(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(p.sizes) != 0 {
			t.Errorf("remembers %v of what is gone", p.sizes)
		}
	})
}

// While a runtime hangs nobody gets a summary, and nobody waits longer than it wants to.
func TestSummaryOfHungRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := newFake("/nowhere")
		cri.hang = true
		p, _, _ := newProvider(t, cri)
		start := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := p.Summary(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "getting imageFs stats: ") {
				t.Errorf("got %v", err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Summary(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestSummaryErrors(t *testing.T) {
	cri := newFake("/nowhere")
	p, rootDir, _ := newProvider(t, cri)
	cri.err = errors.New("too large")
	if _, err := p.Summary(t.Context()); err == nil || err.Error() != "listing pod stats: too large" {
		t.Errorf("stats: %v", err)
	}
	cri.imageFs = &runtimeapi.ImageFsInfoResponse{}
	if _, err := p.Summary(t.Context()); err == nil || err.Error() != "getting imageFs stats: the runtime has no image filesystem" {
		t.Errorf("image file system: %v", err)
	}
	if err := os.Remove(rootDir); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Summary(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("root directory: %v", err)
	}
	if _, err := New(Config{Root: rootDir}); err == nil {
		t.Error("a root without proc is no error")
	}
}

func TestImageDisk(t *testing.T) {
	for mountpoint, there := range map[string]bool{"/proc": true, "/nowhere": false} {
		p, where, _ := newProvider(t, newFake(mountpoint))
		if there {
			where = mountpoint
		}
		want, _, err := Disk(where)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := p.ImageDisk(t.Context()); got != want || err != nil {
			t.Errorf("%s: %d bytes, %v; want %d", mountpoint, got, err, want)
		}
	}
}

// compare compares without times.
func compare(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.Time{})); diff != "" {
		t.Error(diff)
	}
}
