package journalfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/internal/testkit"
)

const needle = "PLEG is not healthy"

func pleg(m []byte) bool { return bytes.Contains(m, []byte(needle)) }

// A line has the parts of an entry that are compared.
type line struct {
	Realtime      uint64
	Unit, Message string
}

// lineOf copies an entry.
func lineOf(e *Entry) line {
	l := line{Realtime: e.Realtime, Message: string(e.Message)}
	for label := range e.Labels() {
		if value, ok := bytes.CutPrefix(label, []byte("_SYSTEMD_UNIT=")); ok {
			l.Unit = string(value)
		}
	}
	return l
}

// find returns the entries that a search finds.
func find(t testing.TB, f *File, q Query) (all []line, stats Stats) {
	t.Helper()
	stats, err := f.Search(t.Context(), q, func(e *Entry) bool {
		all = append(all, lineOf(e))
		return true
	})
	must(t, err)
	return all, stats
}

// fromBytes makes a File of b.
func fromBytes(b []byte) (*File, error) {
	f := &File{path: "memory", size: int64(len(b))}
	return f, f.load(b)
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := fromBytes(b)
	must(t, err)
	return f
}

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestSearch searches files in every layout that a file may have.
func TestSearch(t *testing.T) {
	const n = 1000
	for mode, w := range modes(n) {
		path := filepath.Join(t.TempDir(), "x.journal")
		w.save(t, path)
		f := open(t, path)
		all, _ := find(t, f, Query{})
		testkit.Equal(t, mode+": all", w.lines, all)
		want := slices.DeleteFunc(w.lines, func(l line) bool { return !pleg([]byte(l.Message)) })
		got, stats := find(t, f, Query{Match: pleg})
		slices.SortFunc(got, func(a, b line) int { return int(a.Realtime) - int(b.Realtime) })
		testkit.Equal(t, mode+": how many have a text", n/5, len(want))
		testkit.Equal(t, mode+": those with a text", want, got)
		testkit.Equal(t, mode, Stats{Entries: n, Bytes: f.size, From: t0, To: t0 + (n-1)*1e6}, stats)
	}
}

func TestSearchWindow(t *testing.T) {
	f := openBytes(t, sample(true, true, objZSTD, 2000).b)
	for _, tt := range []struct {
		name         string
		since, until uint64
		boot         byte
		entries      int64
		hits         int
	}{
		{"all", 0, 0, 0, 2000, 400},
		{"until is exclusive", t0 + 2e6, t0 + 4e6, 0, 2, 1},
		{"wide", t0 + 100e6, t0 + 1900e6, 0, 1800, 360},
		{"open end", t0 + 1990e6, 0, 0, 10, 2},
		{"boot", 0, 0, 0xA2, 1000, 200},
		{"boot and time", t0 + 990e6, t0 + 1010e6, 0xA1, 10, 2},
		{"after", t0 + 2000e6, 0, 0, 0, 0},
	} {
		q := Query{Since: tt.since, Until: tt.until, Match: pleg}
		if tt.boot != 0 {
			q.Boot = ID{0: tt.boot, 15: 1}
		}
		hits, stats := find(t, f, q)
		if len(hits) != tt.hits || stats.Entries != tt.entries || stats.Skipped != (tt.entries == 0) {
			t.Errorf("%s: %d hits, %+v", tt.name, len(hits), stats)
		}
	}
}

// A clock that is set back puts entries out of order; none of a window may be missed.
func TestSearchClockStep(t *testing.T) {
	const n = 3000
	w := newBuilder(true, true, 0)
	since, until := uint64(t0+500e6), uint64(t0+510e6)
	for i := range uint64(n) {
		at := t0 + i*1e6
		if i >= n/2 {
			at -= 1200e6 // the clock jumps back by twenty minutes
		}
		w.entry(at, 1, fmt.Sprintf("MESSAGE=%s %d", needle, i))
	}
	want := slices.DeleteFunc(w.lines, func(l line) bool { return l.Realtime < since || l.Realtime >= until })
	got, _ := find(t, openBytes(t, w.b), Query{Since: since, Until: until, Match: pleg})
	testkit.Equal(t, "entries of the range", want, got)
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	good := sample(true, true, 0, 10).b
	unknown, huge := bytes.Clone(good), bytes.Clone(good)
	unknown[12] |= 0x40
	huge[92] = 1
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for _, tt := range []struct {
		name    string // of a new file, or a path
		content []byte
		want    error
		empty   bool
	}{
		{fifo, nil, safefile.ErrNotRegular, false},
		{"good", good, nil, false},
		{"empty", nil, nil, true},
		{"zeros", make([]byte, 100_001), nil, true},
		{"text", []byte("Mar 05 00:00:00 node kubelet[1]: hello"), ErrNotJournal, false},
		{"cut header", good[:100], ErrNotJournal, false},
		{"header size", huge, ErrNotJournal, false},
		{"newer", unknown, ErrUnknownFormat, false},
	} {
		path := tt.name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, tt.name)
			must(t, os.WriteFile(path, tt.content, 0o600))
		}
		f, err := Open(path)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		hits, stats := find(t, f, Query{})
		if f.empty != tt.empty || tt.empty && (len(hits) > 0 || len(stats.Unreadable) != min(1, len(tt.content))) {
			t.Errorf("%s: empty %v, %d entries, unreadable %v", tt.name, f.empty, len(hits), stats.Unreadable)
		}
		must(t, f.Close())
	}
}

func TestFind(t *testing.T) {
	dir := testkit.NewTree(t)
	id := dir.Path("00112233445566778899aabbccddeeff")
	for i, name := range []string{"system.journal~", "deeper/not.journal", "../a.journal", "system.journal", "notes"} {
		name = dir.Path(filepath.Join(filepath.Base(id), name))
		when := time.Unix(1_000_000_000+int64(i), 0)
		must(t, os.WriteFile(name, nil, 0o600), os.Chtimes(name, when, when))
	}
	got, err := Find(dir.Root)
	must(t, err)
	testkit.Equal(t, "found", []string{id + "/system.journal~", dir.Root + "/a.journal", id + "/system.journal"}, got)
}

// FuzzOpenSearch does with any bytes whatever can be done with a file. It must end, without a panic.
func FuzzOpenSearch(f *testing.F) {
	for _, w := range modes(12) {
		f.Add(w.b)
		f.Add(w.b[:len(w.b)/2])
		f.Add(append(w.b[:len(w.b):len(w.b)], make([]byte, 512)...))
	}
	f.Add([]byte("LPKSHHRH"))
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := fromBytes(b)
		if err != nil {
			return
		}
		for _, q := range []Query{{Match: pleg}, {}, {Since: t0 + 3e6, Until: t0 + 4e6, Match: pleg}} {
			_, stats := find(t, file, q)
			for _, r := range stats.Unreadable {
				if r.Offset < 0 || r.Bytes <= 0 {
					t.Errorf("range %+v", r)
				}
			}
		}
		// The file may be damaged: any error will do.
		_, _ = file.Boots(t.Context())
	})
}

// TestSearchNext searches a file that grows: each entry once, with the statistics of the new ones. What is broken is
// searched whole at first, and not again.
func TestSearchNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "system.journal")
	w := newBuilder(true, true, objZSTD)
	for i := range 10 {
		w.log(i)
	}
	w.save(t, path)
	next := uint64(0)
	q := Query{Since: t0 + 4e6, Match: func([]byte) bool { return true }, Next: &next}
	search := func(want int64) {
		t.Helper()
		f, err := Open(path)
		must(t, err)
		defer f.Close()
		if found, stats := find(t, f, q); int64(len(found)) != want || stats.Entries != want || next != w.seqnum {
			t.Errorf("%d of %d entries, want %d; the next is %d", len(found), stats.Entries, want, next)
		}
	}
	search(6)
	search(0)
	for i := 10; i < 500; i++ {
		w.log(i)
	}
	w.save(t, path)
	search(490)
	for i := 2; i < 5; i++ { // the clock was set back, two times before the range
		w.log(i)
	}
	w.save(t, path)
	search(1)
	w.put(w.get(176), 0) // the list of all entries is gone
	w.save(t, path)
	search(0)
	next = 0
	search(497)
}
