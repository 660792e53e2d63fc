package journalfile

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkSearch searches the journal in the directory $KDIAG_JOURNAL for the unhealthy records of the kubelet, file
// after file.
func BenchmarkSearch(b *testing.B) {
	dir := os.Getenv("KDIAG_JOURNAL")
	if dir == "" {
		b.Skip("KDIAG_JOURNAL names no directory with journal files")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no journal files in %s: %v", dir, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		hits, size := 0, int64(0)
		for _, path := range paths {
			f := open(b, path)
			found, stats := collect(b, f, Query{Match: pleg})
			_ = f.Close() // was only read
			hits += len(found)
			size += stats.Bytes
		}
		b.SetBytes(size)
		b.ReportMetric(float64(hits), "hits")
	}
}
