package journalfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const needle = "PLEG is not healthy"

func pleg(m []byte) bool { return bytes.Contains(m, []byte(needle)) }

// hit is what a search should hand over.
type hit struct {
	Realtime uint64
	Message  string
	Unit     string
}

// fromBytes makes a File of b.
func fromBytes(b []byte) (*File, error) {
	f := &File{path: "memory", size: int64(len(b))}
	return f, f.load(b)
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := fromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// unit returns the value of _SYSTEMD_UNIT.
func unit(e *Entry) string {
	for l := range e.Labels() {
		if value, ok := bytes.CutPrefix(l, []byte("_SYSTEMD_UNIT=")); ok {
			return string(value)
		}
	}
	return ""
}

func collect(t testing.TB, f *File, q Query) ([]hit, Stats) {
	t.Helper()
	var hits []hit
	stats, err := f.Search(t.Context(), q, func(e *Entry) bool {
		hits = append(hits, hit{e.Realtime, string(e.Message), unit(e)})
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return hits, stats
}

// modes are all layouts that a file may have.
func modes(t *testing.T, run func(t *testing.T, compact, keyed bool, pack byte)) {
	for _, compact := range []bool{false, true} {
		for pack, name := range map[byte]string{0: "none", objXZ: "xz", objLZ4: "lz4", objZSTD: "zstd"} {
			t.Run(fmt.Sprintf("compact=%v/%s", compact, name), func(t *testing.T) { run(t, compact, pack&1 == 0, pack) })
		}
	}
}

func TestSearch(t *testing.T) {
	const n = 1000
	modes(t, func(t *testing.T, compact, keyed bool, pack byte) {
		f := openBytes(t, sample(compact, keyed, pack, n).b)
		hits, stats := collect(t, f, Query{Match: pleg})
		if len(hits) != n/5 {
			t.Fatalf("%d hits, want %d", len(hits), n/5)
		}
		seen := map[uint64]bool{}
		for _, h := range hits {
			i := int(h.Realtime-t0) / 1e6
			if seen[h.Realtime] || i%10 != 2 && i%10 != 4 || h.Unit != "kubelet.service" || !strings.Contains(h.Message, needle) {
				t.Errorf("unexpected %+v", h)
			}
			seen[h.Realtime] = true
		}
		want := Stats{Entries: n, Bytes: f.size, From: t0, To: t0 + (n-1)*1e6}
		if diff := cmp.Diff(want, stats); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSearchWindow(t *testing.T) {
	const n = 2000
	f := openBytes(t, sample(true, true, objZSTD, n).b)
	for _, tc := range []struct {
		name         string
		since, until uint64
		boot         byte
		entries      int64
		hits         int
	}{
		{"all", 0, 0, 0, 2000, 400},
		{"narrow", t0 + 1000e6, t0 + 1010e6, 0, 10, 2},
		{"until is exclusive", t0 + 2e6, t0 + 4e6, 0, 2, 1},
		{"wide", t0 + 100e6, t0 + 1900e6, 0, 1800, 360},
		{"open end", t0 + 1990e6, 0, 0, 10, 2},
		{"open beginning", 0, t0 + 10e6, 0, 10, 2},
		{"boot", 0, 0, 0xA2, 1000, 200},
		{"boot and time", t0 + 990e6, t0 + 1010e6, 0xA1, 10, 2},
		{"before", 1, t0, 0, 0, 0},
		{"after", t0 + 2000e6, 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := Query{Since: tc.since, Until: tc.until, Match: pleg}
			if tc.boot != 0 {
				q.Boot = ID{0: tc.boot, 15: 1}
			}
			hits, stats := collect(t, f, q)
			if len(hits) != tc.hits || stats.Entries != tc.entries {
				t.Errorf("%d hits of %d entries, want %d of %d", len(hits), stats.Entries, tc.hits, tc.entries)
			}
			if skipped := tc.entries == 0; stats.Skipped != skipped {
				t.Errorf("skipped %v, want %v", stats.Skipped, skipped)
			}
		})
	}
}

// A clock that is set back puts entries out of order; none of a window may be missed.
func TestSearchClockStep(t *testing.T) {
	const n = 3000
	w := newBuilder(true, true, 0)
	want := map[uint64]bool{}
	since, until := uint64(t0+500e6), uint64(t0+510e6)
	for i := range n {
		at := t0 + uint64(i)*1e6
		if i >= n/2 {
			at -= 1200e6 // the clock jumps back by twenty minutes
		}
		w.entry(at, 1, fmt.Sprintf("MESSAGE=%s %d", needle, i))
		if at >= since && at < until {
			want[at*10000+uint64(i)] = true
		}
	}
	got := map[uint64]bool{}
	_, err := openBytes(t, w.b).Search(t.Context(), Query{Since: since, Until: until, Match: pleg}, func(e *Entry) bool {
		var i uint64
		if _, err := fmt.Sscanf(string(e.Message), needle+" %d", &i); err != nil {
			t.Error(err)
		}
		got[e.Realtime*10000+i] = true
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSearchStops(t *testing.T) {
	f := openBytes(t, sample(true, true, 0, 100).b)
	calls := 0
	if _, err := f.Search(t.Context(), Query{Match: pleg}, func(*Entry) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("%d calls, %v; want 1 and no error", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Search(ctx, Query{Match: pleg}, func(*Entry) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestBoots(t *testing.T) {
	w := sample(true, true, objZSTD, 100)
	want := []Boot{
		{ID{0: 0xA1, 15: 1}, t0, t0 + 49e6, 50},
		{ID{0: 0xA2, 15: 1}, t0 + 50e6, t0 + 99e6, 50},
	}
	got, err := openBytes(t, w.b).Boots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	good := sample(true, true, 0, 10).b
	unknown := bytes.Clone(good)
	unknown[12] |= 0x40
	huge := bytes.Clone(good)
	huge[92] = 1
	for _, tc := range []struct {
		name    string
		content []byte
		want    error
		empty   bool
	}{
		{"good", good, nil, false},
		{"empty", nil, nil, true},
		{"zeros", make([]byte, 100_001), nil, true},
		{"text", []byte("Mar 05 00:00:00 node kubelet[1]: hello"), ErrNotJournal, false},
		{"cut header", good[:100], ErrNotJournal, false},
		{"header size", huge, ErrNotJournal, false},
		{"newer", unknown, ErrUnknownFormat, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, tc.name)
			if err := os.WriteFile(path, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if err != nil {
				return
			}
			hits, stats := collect(t, f, Query{})
			if f.empty != tc.empty || tc.empty && (len(hits) > 0 || len(stats.Unreadable) != min(1, len(tc.content))) {
				t.Errorf("empty %v, %d entries, unreadable %v", f.empty, len(hits), stats.Unreadable)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := f.Refresh(); err == nil {
				t.Error("a closed file can be refreshed")
			}
		})
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{filepath.Join(dir, "fifo"), dir, "/dev/zero"} {
		if _, err := Open(p); !errors.Is(err, ErrNotJournal) {
			t.Errorf("%s: error %v, want %v", p, err, ErrNotJournal)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	id := filepath.Join(dir, "00112233445566778899aabbccddeeff")
	if err := os.MkdirAll(filepath.Join(id, "deeper"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"system.journal~", "deeper/not.journal", "../a.journal", "system.journal", "notes.txt"} {
		name = filepath.Join(id, name)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_000_000_000+int64(i), 0)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(id, "system.journal~"), filepath.Join(dir, "a.journal"), filepath.Join(id, "system.journal")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
