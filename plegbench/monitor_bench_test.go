package plegbench

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// BenchmarkLook makes looks as if one came each 30 s. The embedded runtime is in the same process, and takes about half
// of the CPU time.
func BenchmarkLook(b *testing.B) {
	for _, size := range []struct{ pods, exited int }{{100, 0}, {1000, 5000}} {
		b.Run(fmt.Sprintf("running=%d/exited=%d", size.pods, size.exited), func(b *testing.B) {
			srv, err := fake.New(node(size.pods, size.exited))
			if err != nil {
				b.Fatal(err)
			}
			endpoint := filepath.Join(b.TempDir(), "cri.sock")
			stop, err := fake.Listen(b.Context(), srv, endpoint)
			if err != nil {
				b.Fatal(err)
			}
			defer stop()
			client, err := crictl.Dial(endpoint, crictl.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			empty := heap()
			m := NewMonitor(endpoint, client, MonitorOptions{Interval: 30 * time.Second, Sweep: 5 * time.Minute})
			defer m.Close()
			m.Look(b.Context(), false)
			looks, asked, before := 0, 0, cpuTime()
			b.ReportAllocs()
			for b.Loop() {
				m.looked = time.Now().Add(-m.opts.Interval)
				asked += m.Look(b.Context(), false).asked()
				looks++
			}
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(looks), "cpu-ms/op")
			b.ReportMetric(float64(heap()-empty)/1024, "kept-KiB")
			b.ReportMetric(float64(asked)/float64(looks), "statuses/op")
		})
	}
}

// cpuTime is what this process has used of the CPUs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is what lives on the heap.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // what is pooled goes after two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
