package journalfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// big writes a file of several pages and opens it.
func big(t *testing.T) (string, *File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.journal")
	sample(true, true, objZSTD, 2000).save(t, path)
	return path, open(t, path)
}

// A file that is cut while it is mapped: what was read stays, the rest is reported, the process lives.
func TestTruncatedWhileSearched(t *testing.T) {
	path, f := big(t)
	whole := f.size
	hits := 0
	stats, err := f.Search(t.Context(), Query{Match: pleg}, func(e *Entry) bool {
		if hits++; hits == 210 { // the text that repeats two hundred times comes first
			if err := os.Truncate(path, int64(e.Offset)&^4095); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if hits < 210 || hits > 300 {
		t.Errorf("%d hits", hits)
	}
	n := len(stats.Unreadable)
	if n == 0 || stats.Unreadable[n-1].Offset+stats.Unreadable[n-1].Bytes != whole {
		t.Errorf("unreadable %+v, want a range that ends at %d", stats.Unreadable, whole)
	}
}

func TestTruncatedBeforeUse(t *testing.T) {
	path, f := big(t)
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Boots(t.Context()); !errors.Is(err, ErrFault) {
		t.Errorf("Boots: %v", err)
	}
	if hits, stats := collect(t, f, Query{Match: pleg}); len(hits) > 0 && hits[0].Message == "" || len(stats.Unreadable) == 0 {
		t.Errorf("Search: %d entries, unreadable %v", len(hits), stats.Unreadable)
	}
	if err := f.Refresh(); err != nil {
		t.Errorf("Refresh: %v", err)
	}
}
