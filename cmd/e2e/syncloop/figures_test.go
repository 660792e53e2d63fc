//go:build e2e

package syncloop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/internal/testkit"
)

// BenchmarkPods is the figure of docs/bench on the syncLoop; docs/bench/run runs it, with -benchtime 1x. KDIAG in the
// environment names the program to measure. It starts with the manifests of 100 pods of one sleeping container on the
// host's network, on a containerd on the disk; bare are the CRI calls for such pods alone, 8 pods at a time, as short
// as they can be; same are those calls with the configurations of the program's pods, which ask more of a runtime. The
// time ends when CRI lists all containers as running; the CPU time until then is that of all processes here, and of
// containerd alone. The program's own CPU time and its memory at rest are those 15 s later.
func BenchmarkPods(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		c := nodebox.Start(b, nodebox.Options{Network: true})
		for b.Loop() {
			measure(b, c, "", func() {
				c.RunPods(b, nodebox.Pods{Count: benchPods, Containers: 1, State: crictl.ContainerRunning})
			})
		}
	})
	b.Run("syncloop", func(b *testing.B) { benchSyncLoop(b, os.Getenv("KDIAG")) })
}

const benchPods = 100

// measure reports how long it takes until all pods run, and whose CPU time that is, with a prefix of the names.
func measure(b *testing.B, c *nodebox.Containerd, prefix string, run func()) {
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	testkit.Must(b, err)
	defer client.Close()
	fs, err := procfs.NewDefaultFS()
	testkit.Must(b, err)
	cpu := func() (all, daemon float64) {
		text, err := os.ReadFile("/sys/fs/cgroup/cpuacct/cpuacct.usage") // of the group that nodebox.Main made
		testkit.Must(b, err)
		_, err = fmt.Sscan(string(text), &all)
		testkit.Must(b, err)
		proc, err := fs.Proc(c.PID())
		testkit.Must(b, err)
		own, err := proc.Stat()
		testkit.Must(b, err)
		return all / 1e9, own.CPUTime()
	}
	start, state := time.Now(), crictl.ContainerRunning
	all, daemon := cpu()
	run()
	for running := 0; running < benchPods; time.Sleep(50 * time.Millisecond) {
		list := client.ListContainers(b.Context(), crictl.Filter{State: &state}, crictl.ModeUnary)
		if running = len(list.Containers); time.Since(start) > 2*time.Minute {
			b.Fatalf("%d containers run after 2 m", running)
		}
	}
	b.ReportMetric(time.Since(start).Seconds(), prefix+"s-to-running")
	allNow, daemonNow := cpu()
	b.ReportMetric(allNow-all, prefix+"all-cpu-s")
	b.ReportMetric(daemonNow-daemon, prefix+"containerd-cpu-s")
}

func benchSyncLoop(b *testing.B, kdiag string) {
	c := nodebox.Start(b, nodebox.Options{Network: true})
	dir := b.TempDir()
	testkit.Must(b, os.Mkdir(filepath.Join(dir, "pods"), 0o755))
	for i := range benchPods {
		manifest := fmt.Appendf(nil, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d}, spec: {hostNetwork: true, "+
			"containers: [{name: c, image: %q, imagePullPolicy: Never, command: [/bin/sleep, '2147483647']}]}}\n",
			i, nodebox.ImageBusybox)
		testkit.Must(b, os.WriteFile(fmt.Sprintf("%s/pods/%d.yaml", dir, i), manifest, 0o644))
	}
	args := []string{
		"syncloop", "--runtime-endpoint", c.Endpoint(), "--node-name", "bench", "--root-dir", dir + "/root",
		"--log-dir", dir + "/log",
	}
	for b.Loop() {
		loop := exec.CommandContext(b.Context(), kdiag, slices.Concat(args, []string{
			"--manifests", dir + "/pods", "--log-file", dir + "/loop.log", "--max-pods", "1000",
			"--image-gc-high-threshold", "100", "--eviction-hard", "memory.available<50Mi",
		})...)
		measure(b, c, "", func() { testkit.Must(b, loop.Start()) })
		time.Sleep(15 * time.Second)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", loop.Process.Pid))
		testkit.Must(b, err)
		for field, unit := range map[string]string{"VmHWM:": "peak-MB", "VmRSS:": "rest-MB", "RssAnon:": "rest-anon-MB"} {
			var kib float64
			_, value, _ := strings.Cut(string(status), field)
			_, err := fmt.Sscan(value, &kib)
			testkit.Must(b, err)
			b.ReportMetric(kib*1024/1e6, unit)
		}
		testkit.Must(b, loop.Process.Signal(unix.SIGTERM))
		testkit.Must(b, loop.Wait())
		b.ReportMetric((loop.ProcessState.UserTime() + loop.ProcessState.SystemTime()).Seconds(), "cpu-s")
		pods := configurations(b, c)
		clean := func() { testkit.Must(b, exec.CommandContext(b.Context(), kdiag, append(args, "--cleanup")...).Run()) }
		start := time.Now()
		clean()
		b.ReportMetric(time.Since(start).Seconds(), "s-to-clean")
		runSame(b, c, pods)
		clean()
	}
}

// A configuredPod is what a sandbox and its container were created with.
type configuredPod struct {
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
}

// configurations reads those of all containers from containerd's verbose statuses.
func configurations(b *testing.B, c *nodebox.Containerd) (pods []configuredPod) {
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(b, err)
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := client.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{})
	testkit.Must(b, err)
	for _, one := range list.GetContainers() {
		container, err := client.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{
			ContainerId: one.GetId(), Verbose: true,
		})
		testkit.Must(b, err)
		sandbox, err := client.PodSandboxStatus(b.Context(), &runtimeapi.PodSandboxStatusRequest{
			PodSandboxId: one.GetPodSandboxId(), Verbose: true,
		})
		testkit.Must(b, err)
		var c struct{ Config *runtimeapi.ContainerConfig }
		var s struct{ Config *runtimeapi.PodSandboxConfig }
		testkit.Must(b, json.Unmarshal([]byte(container.GetInfo()["info"]), &c))
		testkit.Must(b, json.Unmarshal([]byte(sandbox.GetInfo()["info"]), &s))
		pods = append(pods, configuredPod{s.Config, c.Config})
	}
	return pods
}

// runSame makes pods with the same configurations, and the folders and files in which they log and end.
func runSame(b *testing.B, c *nodebox.Containerd, pods []configuredPod) {
	cri, err := remote.Dial(c.Endpoint(), remote.Options{Timeout: time.Minute})
	testkit.Must(b, err)
	defer cri.Close()
	for _, p := range pods {
		logs := filepath.Join(p.sandbox.GetLogDirectory(), p.container.GetMetadata().GetName())
		testkit.Must(b, os.MkdirAll(logs, 0o755))
		for _, mount := range p.container.GetMounts() {
			testkit.Write(b, mount.GetHostPath(), "")
		}
	}
	measure(b, c, "same-", func() {
		g, ctx := errgroup.WithContext(b.Context())
		g.SetLimit(8)
		for _, p := range pods {
			g.Go(func() error {
				id, err := cri.RunPodSandbox(ctx, p.sandbox, "")
				if err == nil {
					id, err = cri.CreateContainer(ctx, id, p.container, p.sandbox)
				}
				if err == nil {
					err = cri.StartContainer(ctx, id)
				}
				return err
			})
		}
		testkit.Must(b, g.Wait())
	})
}
