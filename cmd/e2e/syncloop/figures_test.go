//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// BenchmarkPods is the figure of docs/bench on the syncLoop; docs/bench/run runs it, with -benchtime 1x. KDIAG in the
// environment names the program to measure. It starts with the manifests of 100 pods of one sleeping container on the
// host's network, on a containerd on the disk; bare are the CRI calls for such pods alone, 8 pods at a time. The time
// ends when CRI lists all containers as running; the CPU time until then is the machine's, and containerd's share. The
// program's own CPU time and its memory at rest are those 15 s later.
func BenchmarkPods(b *testing.B) {
	kdiag := os.Getenv("KDIAG")
	if missing := nodebox.Missing(false); missing != "" || kdiag == "" {
		b.Skip("KDIAG names no program to measure, or " + missing)
	}
	b.Run("bare", func(b *testing.B) {
		c := benchContainerd(b)
		for b.Loop() {
			measure(b, c, func() {
				_, err := c.RunPods(b.Context(), nodebox.Pods{Count: benchPods, Containers: 1, State: crictl.ContainerRunning})
				looptest.Must(b, err)
			})
		}
	})
	b.Run("syncloop", func(b *testing.B) { benchSyncLoop(b, kdiag) })
}

const benchPods = 100

func benchContainerd(b *testing.B) *nodebox.Containerd {
	c, err := nodebox.Start(b.Context(), nodebox.Options{Network: true})
	looptest.Must(b, err)
	b.Cleanup(func() { looptest.Must(b, c.Close()) })
	return c
}

// measure reports how long it takes until all pods run, and whose CPU time that is.
func measure(b *testing.B, c *nodebox.Containerd, run func()) {
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	looptest.Must(b, err)
	defer client.Close()
	fs, err := procfs.NewDefaultFS()
	looptest.Must(b, err)
	cpu := func() (all, daemon float64) {
		stat, err := fs.Stat()
		looptest.Must(b, err)
		proc, err := fs.Proc(c.PID())
		looptest.Must(b, err)
		own, err := proc.Stat()
		looptest.Must(b, err)
		return stat.CPUTotal.User + stat.CPUTotal.System, own.CPUTime()
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
	b.ReportMetric(time.Since(start).Seconds(), "s-to-running")
	allNow, daemonNow := cpu()
	b.ReportMetric(allNow-all, "all-cpu-s")
	b.ReportMetric(daemonNow-daemon, "containerd-cpu-s")
}

func benchSyncLoop(b *testing.B, kdiag string) {
	c := benchContainerd(b)
	dir := b.TempDir()
	looptest.Must(b, os.Mkdir(filepath.Join(dir, "pods"), 0o755))
	for i := range benchPods {
		manifest := fmt.Appendf(nil, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d}, spec: {hostNetwork: true, "+
			"containers: [{name: c, image: %q, imagePullPolicy: Never, command: [/bin/sleep, '2147483647']}]}}\n",
			i, nodebox.ImageBusybox)
		looptest.Must(b, os.WriteFile(fmt.Sprintf("%s/pods/%d.yaml", dir, i), manifest, 0o644))
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
		measure(b, c, func() { looptest.Must(b, loop.Start()) })
		time.Sleep(15 * time.Second)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", loop.Process.Pid))
		looptest.Must(b, err)
		for field, unit := range map[string]string{"VmHWM:": "peak-MB", "VmRSS:": "rest-MB", "RssAnon:": "rest-anon-MB"} {
			var kib float64
			_, value, _ := strings.Cut(string(status), field)
			_, err := fmt.Sscan(value, &kib)
			looptest.Must(b, err)
			b.ReportMetric(kib*1024/1e6, unit)
		}
		looptest.Must(b, loop.Process.Signal(unix.SIGTERM))
		looptest.Must(b, loop.Wait())
		b.ReportMetric((loop.ProcessState.UserTime() + loop.ProcessState.SystemTime()).Seconds(), "cpu-s")
		start := time.Now()
		looptest.Must(b, exec.CommandContext(b.Context(), kdiag, append(args, "--cleanup")...).Run())
		b.ReportMetric(time.Since(start).Seconds(), "s-to-clean")
	}
}
