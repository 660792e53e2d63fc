//go:build e2e

package nodebox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

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

// benchContainerd starts a containerd for a benchmark.
func benchContainerd(b *testing.B, opts Options) *Containerd {
	b.Helper()
	if missing := Missing(false); missing != "" {
		b.Skip(missing)
	}
	c, err := Start(b.Context(), opts)
	must(b, err)
	b.Cleanup(func() { must(b, c.Close()) })
	return c
}

// inMemory is for what measures the client: thousands of containers mean thousands of fsyncs elsewhere.
func inMemory() Options { return Options{Network: true, RootSize: 4 << 30} }

// number is the value of an environment variable, if it has one.
func number(name string, n int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil && v > 0 {
		return v
	}
	return n
}

// BenchmarkNodeExited lists 5,000 exited containers (KDIAG_BENCH_EXITED changes the number).
func BenchmarkNodeExited(b *testing.B) {
	n := number("KDIAG_BENCH_EXITED", 5000)
	c := benchContainerd(b, inMemory())
	if _, err := c.MakeExited(b.Context(), n); err != nil {
		b.Fatal(err)
	}
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
		conn, err := grpc.NewClient("passthrough:///runtime",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket())
			}),
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
	if kdiag := os.Getenv("KDIAG"); kdiag != "" {
		program(b, "process/kdiag-runtime", nil, kdiag, "runtime", "--runtime-endpoint", c.Endpoint(), "-o", "json")
		program(b, "process/kdiag-pleg", nil, kdiag, "pleg", "--runtime-endpoint", c.Endpoint(), "-o", "json",
			"--fail-on", "warning")
	}
	crictlPath := os.Getenv("CRICTL")
	if crictlPath == "" {
		crictlPath, _ = exec.LookPath("crictl")
	}
	if crictlPath != "" {
		program(b, "process/crictl-ps-a", nil, crictlPath, "--timeout", "60s", "--runtime-endpoint", c.Endpoint(),
			"--image-endpoint", c.Endpoint(), "ps", "-a")
		program(b, "process/crictl-ps-a-json", nil, crictlPath, "--timeout", "60s", "--runtime-endpoint", c.Endpoint(),
			"--image-endpoint", c.Endpoint(), "ps", "-a", "-o", "json")
	}
}

// BenchmarkStart runs programs that only print their version, one after the other, and reports their medians.
func BenchmarkStart(b *testing.B) {
	programs := [][]string{{os.Getenv("KDIAG"), "version"}, {os.Getenv("CRICTL"), "--version"}}
	cpu, peak := make([][]float64, len(programs)), make([][]float64, len(programs))
	for b.Loop() {
		for i, p := range programs {
			cmd := exec.CommandContext(b.Context(), p[0], p[1:]...)
			must(b, cmd.Run())
			s := cmd.ProcessState
			cpu[i] = append(cpu[i], (s.UserTime()+s.SystemTime()).Seconds()*1e3)
			peak[i] = append(peak[i], float64(s.SysUsage().(*syscall.Rusage).Maxrss)/1024)
		}
	}
	for i, name := range []string{"kdiag", "crictl"} {
		slices.Sort(cpu[i])
		slices.Sort(peak[i])
		b.ReportMetric(cpu[i][len(cpu[i])/2], name+"-cpu-ms")
		b.ReportMetric(peak[i][len(peak[i])/2], name+"-peak-MiB")
	}
}

// BenchmarkNodePleg times the whole of kdiag pleg and kdiag node on a healthy node with 100 containers, and pleg on a
// frozen one.
func BenchmarkNodePleg(b *testing.B) {
	kdiag := os.Getenv("KDIAG")
	if kdiag == "" {
		b.Skip("KDIAG names no program to measure")
	}
	c := benchContainerd(b, inMemory())
	if _, err := c.RunPods(b.Context(), Pods{Count: 50, Containers: 2, State: crictl.ContainerRunning}); err != nil {
		b.Fatal(err)
	}
	program(b, "healthy", nil, kdiag, "pleg", "--runtime-endpoint", c.Endpoint(), "-o", "json")
	program(b, "healthy-node", nil, kdiag, "node", "--runtime-endpoint", c.Endpoint(), "-o", "json")
	must(b, c.Pause(b.Context()))
	program(b, "frozen-rpc-timeout-2s", nil, kdiag, "pleg", "--runtime-endpoint", c.Endpoint(), "-o", "json",
		"--rpc-timeout", "2s")
	must(b, c.Resume())
}

// BenchmarkNodeBundle times the whole of kdiag bundle on a healthy node with 100 containers, and on one where all
// hangs: a CNI plugin, a mount, a shim, the runtime.
func BenchmarkNodeBundle(b *testing.B) {
	kdiag := os.Getenv("KDIAG")
	if kdiag == "" {
		b.Skip("KDIAG names no program to measure")
	}
	c := benchContainerd(b, inMemory())
	pods, err := c.RunPods(b.Context(), Pods{Count: 50, Containers: 2, State: crictl.ContainerRunning})
	must(b, err)
	program(b, "healthy", nil, kdiag, "bundle", "--runtime-endpoint", c.Endpoint(), "-")
	wedging, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	if release, err := c.Wedge(wedging, pods[1].ID, pods[1].Containers[0].ID); err == nil { // containerd 1
		program(b, "one-list-hangs", nil, kdiag, "bundle", "--runtime-endpoint", c.Endpoint(), "-")
		must(b, release())
	}
	deadMount(b)
	must(b, c.FreezeShim(b.Context(), pods[0].ID))
	b.Cleanup(func() { must(b, c.ThawShim(pods[0].ID)) })
	must(b, c.HangCNI())
	b.Cleanup(func() { must(b, c.ReleaseCNI()) })
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	go func() { _, _ = c.RunPods(ctx, Pods{Count: 1, Prefix: "late", PodNetwork: true}) }()
	time.Sleep(2 * time.Second)
	must(b, c.Pause(b.Context()))
	b.Cleanup(func() { must(b, c.Resume()) })
	program(b, "everything-hangs", nil, kdiag, "bundle", "--runtime-endpoint", c.Endpoint(), "-")
}

// deadMount mounts a file system that does not answer.
func deadMount(b *testing.B) {
	fuse, dir := OpenDeadFuse(b), b.TempDir()
	must(b, unix.Mount("dead", dir, "fuse", 0, fuse.Options(fuse.Dev.Fd())))
	go fuse.Serve()
	b.Cleanup(func() { must(b, errors.Join(fuse.Dev.Close(), unix.Unmount(dir, unix.MNT_DETACH))) })
}

// program benchmarks a whole process: its time, its CPU time and its peak memory. Exit code 1 means that kdiag found
// something, which is as good as 0 here.
func program(b *testing.B, name string, env []string, args ...string) {
	b.Run(name, func(b *testing.B) {
		var cpu time.Duration
		peak, runs := 0, 0
		for b.Loop() {
			var out bytes.Buffer
			cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
			cmd.Env = append(os.Environ(), env...)
			cmd.Stdout, cmd.Stderr = &out, &out
			must(b, cmd.Start())
			ended := make(chan struct{})
			watched := make(chan int)
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
		b.ReportMetric(float64(peak)/1024, "peak-MiB")
	})
}

// peakMemory watches VmHWM of a process until it ends and returns the last value, in KiB. What wait4 reports begins
// with the memory of the process that forked, which is larger than what is measured here.
func peakMemory(pid int, ended <-chan struct{}) int {
	name := fmt.Sprintf("/proc/%d/status", pid)
	peak := 0
	for {
		if status, err := os.ReadFile(name); err == nil {
			if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
				var kib int
				if _, err := fmt.Sscan(rest, &kib); err == nil {
					peak = max(peak, kib)
				}
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
	kdiag := os.Getenv("KDIAG")
	if kdiag == "" {
		b.Skip("KDIAG names no program to measure")
	}
	c := benchContainerd(b, inMemory())
	measure := func(name string) {
		b.Run("agent/"+name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), kdiag, "agent", "--runtime-endpoint", c.Endpoint(),
					"--data-dir", b.TempDir(), "--listen", "")
				must(b, cmd.Start())
				pid := cmd.Process.Pid
				before := 0.0
				for _, phase := range []struct {
					name string
					time time.Duration
				}{
					{"start-cpu-%", 3 * time.Minute}, // the first look asks about all, and causes make it look closer
					{"cpu-%", 5 * time.Minute},
				} {
					time.Sleep(phase.time)
					p, err := procfs.NewProc(pid)
					must(b, err)
					stat, err := p.Stat()
					must(b, err)
					cpu := stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/100 // and its children's, in ticks
					b.ReportMetric(100*(cpu-before)/phase.time.Seconds(), phase.name)
					before = cpu
				}
				p, err := procfs.NewProc(pid)
				must(b, err)
				status, err := p.NewStatus()
				must(b, err)
				b.ReportMetric(float64(status.RssAnon)/(1<<20), "anon-MiB")
				b.ReportMetric(float64(status.VmHWM)/(1<<20), "peak-MiB")
				must(b, cmd.Process.Signal(syscall.SIGTERM))
				must(b, cmd.Wait())
			}
		})
		program(b, "pleg/"+name, nil, kdiag, "pleg", "-o", "brief", "--runtime-endpoint", c.Endpoint())
	}
	_, err := c.RunPods(b.Context(), Pods{Count: 50, Containers: 2, State: crictl.ContainerRunning})
	must(b, err)
	measure("100")
	_, err = c.RunPods(b.Context(), Pods{Count: 450, Containers: 2, State: crictl.ContainerRunning, Prefix: "more"})
	must(b, err)
	_, err = c.RunPods(b.Context(), Pods{Count: 50, Containers: 100, State: crictl.ContainerExited, Prefix: "exited"})
	must(b, err)
	measure("1000+5000")
}
