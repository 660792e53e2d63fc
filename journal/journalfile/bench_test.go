package journalfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkSearch searches the journal in the directory $KDIAG_JOURNAL, file after file on one core, for the unhealthy
// records of the kubelet with their times. docs/bench makes that journal.
func BenchmarkSearch(b *testing.B) {
	dir := os.Getenv("KDIAG_JOURNAL")
	if dir == "" {
		b.Skip("KDIAG_JOURNAL names no directory with journal files")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no journal files in %s: %v", dir, err)
	}
	needle, unit := []byte("PLEG is not healthy"), "kubelet.service"
	q := Query{Match: func(m []byte) bool { return bytes.Contains(m, needle) }}
	b.ReportAllocs()
	for b.Loop() {
		found, size := 0, int64(0)
		var times uint64
		for _, p := range paths {
			f, err := Open(p)
			if err != nil {
				b.Fatal(err)
			}
			stats, err := f.Search(b.Context(), q, func(e *Entry) bool {
				if string(e.Field("_SYSTEMD_UNIT")) == unit {
					found++
					times ^= e.Realtime
				}
				return true
			})
			if err != nil || len(stats.Unreadable) > 0 {
				b.Fatalf("searching %s: %v, %v", p, stats.Unreadable, err)
			}
			size += stats.Bytes
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(size)
		b.ReportMetric(float64(found), "hits")
	}
}
