package journalfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkSearch searches the journal in the directory $KDIAG_JOURNAL for the unhealthy records of the kubelet with
// their times: file after file on one core, and two files at a time, as kdiag reads.
func BenchmarkSearch(b *testing.B) {
	dir := os.Getenv("KDIAG_JOURNAL")
	if dir == "" {
		b.Skip("KDIAG_JOURNAL names no directory with journal files")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no journal files in %s: %v", dir, err)
	}
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d at a time", workers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var found, size atomic.Int64
				var wg sync.WaitGroup
				next := make(chan string, len(paths))
				for _, p := range paths {
					next <- p
				}
				close(next)
				for range workers {
					wg.Go(func() {
						for p := range next {
							hits, bytes := searchOne(b, p)
							found.Add(hits)
							size.Add(bytes)
						}
					})
				}
				wg.Wait()
				b.SetBytes(size.Load())
				b.ReportMetric(float64(found.Load()), "hits")
			}
		})
	}
}

// searchOne counts the kubelet's unhealthy records of one file.
func searchOne(b *testing.B, path string) (hits, size int64) {
	needle := []byte("PLEG is not healthy")
	f, err := Open(path)
	if err != nil {
		b.Error(err)
		return 0, 0
	}
	defer f.Close()
	var times uint64
	q := Query{Match: func(m []byte) bool { return bytes.Contains(m, needle) }}
	stats, err := f.Search(b.Context(), q, func(e *Entry) bool {
		if unit(e) == "kubelet.service" {
			hits++
			times ^= e.Realtime
		}
		return true
	})
	if err != nil || len(stats.Unreadable) > 0 || hits > 0 && times == 0 {
		b.Errorf("searching %s: %v, %v", path, stats.Unreadable, err)
	}
	return hits, stats.Bytes
}
