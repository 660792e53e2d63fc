package agentcmd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/internal/testkit"
)

// busy is a runtime that answers fast, and freezes for a second in each twenty: at the pace of the benchmark, for ten
// minutes each four hours.
const busy = `
name: busy
summary: a node on which pods come and go
cause: RuntimeHung
extends: healthy
faults:
  - {rpc: "*", hang: true, thaw: true, every: 20s, for: 1s}
`

// BenchmarkWeek runs the agent for as many looks as it has in a week, without a pause between them, while pods come and
// go and the runtime freezes now and then. The kernel's counters are read twice with hardly a pause too. It prints
// heap, goroutines and files in use on the way: none may grow. WEEK_LOOKS has another number of looks.
func BenchmarkWeek(b *testing.B) {
	looks := 7 * 24 * 120.0
	_, _ = fmt.Sscan(os.Getenv("WEEK_LOOKS"), &looks)
	scenario, err := fake.Parse([]byte(busy))
	must(b, err)
	server, err := fake.New(scenario)
	must(b, err)
	socket := filepath.Join(b.TempDir(), "cri.sock")
	stop, err := fake.Listen(b.Context(), server, socket)
	must(b, err)
	defer stop()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	listen := lis.Addr().String()
	must(b, lis.Close())

	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	cri, err := remote.Dial(socket, remote.Options{Timeout: 5 * time.Second})
	must(b, err)
	go func() {
		for ctx.Err() == nil {
			canary.Run(ctx, cri, canary.Options{RPCTimeout: 5 * time.Second, Course: time.Minute, Cleanup: time.Minute})
		}
	}()
	opts := options{
		interval: 10 * time.Millisecond, sweep: 100 * time.Millisecond, listen: listen,
		dataDir: b.TempDir(), dataBytes: leastData,
	}
	opts.Endpoint, opts.Timeout, opts.RPCTimeout = socket, cli.DefaultTimeout, 200*time.Millisecond
	env := cli.System()
	log, err := os.Create(filepath.Join(b.TempDir(), "log"))
	must(b, err)
	env.Err = log
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, env, opts) }()
	began := time.Now()
	fmt.Printf("%8s %9s %10s %6s %9s\n", "looks", "heap MiB", "goroutines", "files", "records")
	for b.Loop() {
		for next, done := 0.0, 0.0; done < looks; next += looks / 28 {
			for done = 0; done < next; {
				select {
				case err := <-ended:
					b.Fatalf("the agent ended: %v", err)
				case <-time.After(time.Second):
					done = runs(listen)
				}
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			files, _ := os.ReadDir("/proc/self/fd")
			records, _ := filepath.Glob(opts.dataDir + "/records/*")
			fmt.Printf("%8.0f %9.1f %10d %6d %9d\n",
				done, float64(m.HeapAlloc)/(1<<20), runtime.NumGoroutine(), len(files), len(records))
		}
		b.ReportMetric(time.Since(began).Seconds()*1000/looks, "ms/look")
	}
	cancel()
	must(b, <-ended)
}

// runs returns how many looks an agent has had.
func runs(listen string) (n float64) {
	resp, err := http.Get("http://" + listen + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if value, of := strings.CutPrefix(in.Text(), "kdiag_runs_total{"); of {
			var some float64
			_, _ = fmt.Sscan(value[strings.Index(value, "}")+1:], &some)
			n += some
		}
	}
	return n
}

var must = testkit.Must
