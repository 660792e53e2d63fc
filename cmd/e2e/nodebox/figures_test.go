//go:build e2e

package nodebox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prometheus/procfs"

	"github.com/kdiag/kdiag/crictl"
)

// The figures of docs/bench on a real containerd: make bench runs them. KDIAG and CRICTL in the environment name the
// programs to measure; CRICTL defaults to the one on the path, and is left out when there is none.

// oneListEnv makes the test binary a program that makes one list and nothing else: TestMain looks for it.
const oneListEnv = "KDIAG_BENCH_ONE_LIST"

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(oneListEnv); endpoint != "" {
		os.Exit(oneList(endpoint))
	}
	Main(m)
}

func oneList(endpoint string) int {
	client, err := crictl.Dial(endpoint, crictl.Options{RPCTimeout: time.Minute})
	if err != nil {
		return 2
	}
	if list := client.ListContainers(context.Background(), crictl.Filter{}, crictl.ModeUnary); !list.Complete {
		return 1
	}
	return 0
}

// inMemory is for what measures the client: thousands of containers mean thousands of fsyncs elsewhere.
func inMemory() Options { return Options{Network: true, RootSize: 4 << 30} }

// makeExited creates so many hundreds of exited containers that never ran, a hundred attempts of one container in each
// pod, like crash loops without garbage collection. A thousand take about ten seconds. Their sandboxes are not ready.
func makeExited(b *testing.B, c *Containerd, hundreds int) (all []Pod) {
	b.Helper()
	// containerd keeps the files of a container's output open until it is removed or the daemon restarts, and may run
	// out of them after some four thousand.
	const perDaemon = 20
	for made := 0; made < hundreds; made += perDaemon {
		if made > 0 {
			must(b, c.Restart(b.Context()))
		}
		all = append(all, c.RunPods(b, Pods{
			Count: min(hundreds-made, perDaemon), Containers: 1, Attempts: 100, State: crictl.ContainerExited,
			NeverRan: true, Prefix: fmt.Sprintf("loop-%d", made),
		})...)
	}
	return all
}

// kdiag is a command that measures kdiag.
func kdiag(c *Containerd, args ...string) []string {
	return append([]string{os.Getenv("KDIAG"), args[0], "--runtime-endpoint", c.Endpoint()}, args[1:]...)
}

// BenchmarkNodeExited lists 5,000 exited containers.
func BenchmarkNodeExited(b *testing.B) {
	const n = 5000
	c := Start(b, inMemory())
	makeExited(b, c, n/100)
	b.Run("call/kdiag", func(b *testing.B) {
		client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
		must(b, err)
		defer client.Close()
		b.ReportAllocs()
		for b.Loop() {
			list := client.ListContainers(b.Context(), crictl.Filter{}, crictl.ModeUnary)
			if len(list.Containers) != n {
				b.Fatalf("%d containers, want %d: %+v", len(list.Containers), n, list.Calls)
			}
		}
	})
	b.Run("call/bare", func(b *testing.B) {
		conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(512<<20)))
		must(b, err)
		defer conn.Close()
		client := runtimeapi.NewRuntimeServiceClient(conn)
		b.ReportAllocs()
		for b.Loop() {
			list, err := client.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{})
			if err != nil || len(list.GetContainers()) != n {
				b.Fatalf("%d containers, want %d: %v", len(list.GetContainers()), n, err)
			}
		}
	})
	self, err := os.Executable()
	must(b, err)
	program(b, "process/one-list", []string{oneListEnv + "=" + c.Endpoint()}, self)
	program(b, "process/kdiag-runtime", nil, kdiag(c, "runtime", "-o", "json")...)
	program(b, "process/kdiag-pleg", nil, kdiag(c, "pleg", "-o", "json", "--fail-on", "warning")...)
	if path, err := exec.LookPath(cmp.Or(os.Getenv("CRICTL"), "crictl")); err == nil {
		ps := []string{
			path, "--timeout", "60s", "--runtime-endpoint", c.Endpoint(), "--image-endpoint", c.Endpoint(), "ps", "-a",
		}
		program(b, "process/crictl-ps-a", nil, ps...)
		program(b, "process/crictl-ps-a-json", nil, append(ps, "-o", "json")...)
	}
}

// BenchmarkStart runs programs that only print their version.
func BenchmarkStart(b *testing.B) {
	program(b, "kdiag", nil, os.Getenv("KDIAG"), "version")
	program(b, "crictl", nil, os.Getenv("CRICTL"), "--version")
}

// BenchmarkNodeCommands times the whole of kdiag pleg, node and bundle on a healthy node with 100 containers, pleg on a
// frozen one, and bundle where one list hangs, and where all hangs: a CNI plugin, a mount, a shim, the runtime.
func BenchmarkNodeCommands(b *testing.B) {
	c := Start(b, inMemory())
	pods := c.RunPods(b, Pods{Count: 50, Containers: 2, State: crictl.ContainerRunning})
	bundle := kdiag(c, "bundle", "-")
	program(b, "pleg/healthy", nil, kdiag(c, "pleg", "-o", "json")...)
	program(b, "node/healthy", nil, kdiag(c, "node", "-o", "json")...)
	program(b, "bundle/healthy", nil, bundle...)
	must(b, c.Pause(b.Context()))
	program(b, "pleg/frozen-rpc-timeout-2s", nil, kdiag(c, "pleg", "-o", "json", "--rpc-timeout", "2s")...)
	must(b, c.Resume())
	wedging, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	if release, err := c.Wedge(wedging, pods[1].ID, pods[1].Containers[0].ID); err == nil { // containerd 1
		program(b, "bundle/one-list-hangs", nil, bundle...)
		must(b, release())
	}
	OpenDeadFuse(b).Mount(b, b.TempDir())
	must(b, c.FreezeShim(b.Context(), pods[0].ID))
	b.Cleanup(func() { must(b, c.ThawShim(pods[0].ID)) })
	must(b, c.HangCNI())
	b.Cleanup(func() { must(b, c.ReleaseCNI()) })
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	go func() { _, _ = RunPods(ctx, c.Endpoint(), Pods{Count: 1, Prefix: "late", PodNetwork: true}) }()
	time.Sleep(2 * time.Second)
	must(b, c.Pause(b.Context()))
	b.Cleanup(func() { must(b, c.Resume()) })
	program(b, "bundle/everything-hangs", nil, bundle...)
}

// program benchmarks a whole process: its time, its CPU time and its peak memory. Exit code 1 means that kdiag found
// something, which is as good as 0 here.
func program(b *testing.B, name string, env []string, args ...string) {
	b.Run(name, func(b *testing.B) {
		var cpu time.Duration
		peak, runs := uint64(0), 0
		for b.Loop() {
			var out bytes.Buffer
			cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
			cmd.Env = append(os.Environ(), env...)
			cmd.Stdout, cmd.Stderr = &out, &out
			must(b, cmd.Start())
			ended := make(chan struct{})
			watched := make(chan uint64)
			go func() { watched <- peakMemory(cmd.Process.Pid, ended) }()
			err := cmd.Wait()
			close(ended)
			peak = max(peak, <-watched)
			if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
				b.Fatalf("%v: exit code %d: %v\n%.2000s", args, code, err, out.String())
			}
			cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			runs++
		}
		b.ReportMetric(float64(cpu.Microseconds())/1000/float64(runs), "cpu-ms/op")
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	})
}

// peakMemory watches VmHWM of a process until it ends and returns the last value, in bytes. What wait4 reports begins
// with the memory of the process that forked, which is larger than what is measured here.
func peakMemory(pid int, ended <-chan struct{}) (peak uint64) {
	for {
		if p, err := procfs.NewProc(pid); err == nil {
			if status, err := p.NewStatus(); err == nil {
				peak = max(peak, status.VmHWM)
			}
		}
		select {
		case <-ended:
			return peak
		case <-time.After(time.Millisecond):
		}
	}
}

// BenchmarkAgent measures three minutes from the start of kdiag agent and the five after, beside the way of the node
// problem detector, which runs kdiag pleg -o brief each 30 s: with 100 containers, and with 1,000 and 5,000 that have
// exited.
func BenchmarkAgent(b *testing.B) {
	c := Start(b, inMemory())
	measure := func(name string) {
		b.Run("agent/"+name, func(b *testing.B) {
			for b.Loop() {
				args := kdiag(c, "agent", "--data-dir", b.TempDir(), "--listen", "")
				cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
				must(b, cmd.Start())
				p, err := procfs.NewProc(cmd.Process.Pid)
				must(b, err)
				before := 0.0
				for _, phase := range []struct {
					name string
					time time.Duration
				}{
					{"start-cpu-%", 3 * time.Minute}, // the first look asks about all, and causes make it look closer
					{"cpu-%", 5 * time.Minute},
				} {
					time.Sleep(phase.time)
					stat, err := p.Stat()
					must(b, err)
					cpu := stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/100 // and its children's, in ticks
					b.ReportMetric(100*(cpu-before)/phase.time.Seconds(), phase.name)
					before = cpu
				}
				status, err := p.NewStatus()
				must(b, err)
				b.ReportMetric(float64(status.RssAnon)/(1<<20), "anon-MiB")
				b.ReportMetric(float64(status.VmHWM)/(1<<20), "peak-MiB")
				must(b, cmd.Process.Signal(syscall.SIGTERM))
				must(b, cmd.Wait())
			}
		})
		program(b, "pleg/"+name, nil, kdiag(c, "pleg", "-o", "brief")...)
	}
	c.RunPods(b, Pods{Count: 50, Containers: 2, State: crictl.ContainerRunning})
	measure("100")
	c.RunPods(b, Pods{Count: 450, Containers: 2, State: crictl.ContainerRunning, Prefix: "more"})
	c.RunPods(b, Pods{Count: 50, Containers: 100, State: crictl.ContainerExited, Prefix: "exited"})
	measure("1000+5000")
}
