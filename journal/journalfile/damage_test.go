package journalfile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// damageStream is a journal in which every eighth record is one to be found; all of them are different and marked with
// both ends, so that the raw bytes of a damaged file show which of them are intact.
func damageStream(entries int) []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for i := range entries {
		text := ""
		if i%8 == 0 {
			filler := strings.Repeat("a", r.IntN(200))
			text = fmt.Sprintf("<%06d E0305 kubelet.go:2456] \"Skipping\" err=\"%s: %s\" %06d>", i, needle, filler, i)
		} else {
			text = fmt.Sprintf("I0305 kubelet.go:99] %x %s", r.Uint64(), strings.Repeat("b", r.IntN(700)))
		}
		exportEntry(&b, i, 0xe1, fmt.Sprintf("_SOURCE_REALTIME_TIMESTAMP=%d", t0+i*1000-7), "MESSAGE="+text)
	}
	return b.Bytes()
}

// intact returns the records that stand whole in the raw bytes, without looking at any object.
func intact(b []byte) map[int]bool {
	found := map[int]bool{}
	mark := []byte("MESSAGE=<")
	for at := 0; ; {
		n := bytes.Index(b[at:], mark)
		if n < 0 {
			return found
		}
		at += n + len(mark)
		text := b[at:min(len(b), at+600)]
		end := bytes.IndexByte(text, '>')
		if end < 0 || !bytes.Contains(text[:end], []byte(needle)) || bytes.IndexByte(text[:end], 0) >= 0 {
			continue
		}
		first, err1 := strconv.Atoi(string(text[:6]))
		last, err2 := strconv.Atoi(string(text[end-6 : end]))
		if err1 == nil && err2 == nil && first == last {
			found[first] = true
		}
	}
}

func TestDamage(t *testing.T) {
	const n = 20_000
	stream := damageStream(n)
	flip := func(count int, seed uint64) func([]byte) []byte {
		return func(b []byte) []byte {
			r := rand.New(rand.NewPCG(seed, 0))
			for range count {
				b[272+r.IntN(len(b)-272)] ^= 1 << r.IntN(8)
			}
			return b
		}
	}
	zeros := func(from, to int) func([]byte) []byte {
		return func(b []byte) []byte { clear(b[from:min(to, len(b))]); return b }
	}
	type damaged struct {
		name   string
		damage func([]byte) []byte
		intact bool // nothing is unreadable
		missed int  // at most, of 2,500
	}
	cases := []damaged{
		{"none", func(b []byte) []byte { return b }, true, 0},
		{"left online", func(b []byte) []byte { b[16] = byte(online); return b }, true, 0},
		{"zeros at the end", func(b []byte) []byte {
			b[16] = byte(online)
			return append(b, make([]byte, 8<<20)...)
		}, true, 0},
		{"cut to half", func(b []byte) []byte { return b[:len(b)/2] }, false, 2},
		{"cut to an odd size", func(b []byte) []byte { return b[:len(b)/3|5] }, false, 2},
		{"tail cut", func(b []byte) []byte { return b[:len(b)-4700] }, false, 2},
		{"zeros in the middle", func(b []byte) []byte { return zeros(len(b)/2, len(b)/2+1<<20)(b) }, false, 2},
		{"zeros at an odd place", func(b []byte) []byte { return zeros(len(b)/3|3, len(b)/3+70_001)(b) }, false, 2},
		{"entry arrays gone", zeros(176, 184), true, 0},
		{"hash tables gone", zeros(272, 200_000), false, 0},
	}
	for seed := range uint64(8) {
		cases = append(cases, damaged{fmt.Sprintf("2000 flipped bits/%d", seed), flip(2000, seed), false, 10})
	}
	path := filepath.Join(t.TempDir(), "x.journal")
	remote(t, path, stream, "SYSTEMD_JOURNAL_COMPACT=1")
	whole, err := os.ReadFile(path)
	must(t, err)
	// Only what the file holds, without what it was grown by in advance.
	h := openBytes(t, whole).img
	last, _ := h.at(h.head.tailObject, h.size())
	whole = whole[:last.end()]
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			checkDamaged(t, tc.damage(bytes.Clone(whole)), tc.intact, tc.missed)
		})
	}
}

func checkDamaged(t *testing.T, b []byte, clean bool, most int) {
	t.Helper()
	f := openBytes(t, b)
	want, got := intact(b), map[int]bool{}
	wrong, undated := 0, 0
	stats, err := f.Search(t.Context(), Query{Match: pleg}, func(e *Entry) bool {
		i := -1 // the number of a record that is whole
		for n := range intact(append([]byte("MESSAGE="), e.Message...)) {
			i = n
		}
		if got[i] && i >= 0 {
			t.Errorf("record %d came twice", i)
		}
		got[i] = true
		switch {
		case e.Realtime == 0:
			undated++
		case want[i] && e.Realtime != t0+uint64(i)*1000:
			wrong++ // a bit of the time itself may be flipped
		}
		return true
	})
	must(t, err)
	missed := 0
	for i := range want {
		if !got[i] {
			missed++
		}
	}
	// Damage may hide what stands beside it, and a flipped bit of a size what the object then covers.
	if missed > most || len(want) == 0 {
		t.Errorf("%d of %d intact records missed", missed, len(want))
	}
	if wrong > 8 || undated > 20 {
		t.Errorf("of %d records %d have a wrong time and %d none", len(want), wrong, undated)
	}
	if clean != (len(stats.Unreadable) == 0) && !(clean && stats.Unreadable[0].Why == whyCut) {
		t.Errorf("unreadable: %v", stats.Unreadable)
	}
	var last int64
	for _, r := range stats.Unreadable {
		if r.Bytes <= 0 || r.Offset < last || r.Why == "" {
			t.Errorf("range %+v is empty, unexplained or out of order", r)
		}
		last = r.Offset
	}
}

// TestTruncated cuts a file while it is mapped: what was read stays, the rest is reported, the process lives.
func TestTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.journal")
	sample(true, true, objZSTD, 2000).save(t, path)
	f := open(t, path)
	hits := 0
	stats, err := f.Search(t.Context(), Query{Match: pleg}, func(e *Entry) bool {
		if hits++; hits == 210 { // the text that repeats two hundred times comes first
			must(t, os.Truncate(path, int64(e.Offset)&^4095))
		}
		return true
	})
	n := len(stats.Unreadable)
	if err != nil || hits < 210 || hits > 300 || n == 0 ||
		stats.Unreadable[n-1].Offset+stats.Unreadable[n-1].Bytes != f.size {
		t.Errorf("%d hits, %v; unreadable %+v, want a range that ends at %d", hits, err, stats.Unreadable, f.size)
	}
	must(t, os.Truncate(path, 8192))
	if _, stats := find(t, f, Query{Match: pleg}); len(stats.Unreadable) == 0 {
		t.Errorf("Search: %+v", stats)
	}
}
