package journalfile

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// damageable is a journal in which every eighth record is one to be found; all of them are different and marked with
// both ends, so that the raw bytes of a damaged file show which of them are intact.
func damageable(entries int) []byte {
	w := newBuilder(true, true, objZSTD)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range entries {
		text := fmt.Sprintf("I0305 kubelet.go:99] %x %s", r.Uint64(), strings.Repeat("b", r.IntN(700)))
		if i%8 == 0 {
			filler := strings.Repeat("a", r.IntN(200))
			text = fmt.Sprintf("<%06d E0305 kubelet.go:2456] \"Skipping\" err=\"%s: %s\" %06d>", i, needle, filler, i)
		}
		w.entry(t0+uint64(i)*1000, 0xe1, "_SYSTEMD_UNIT=kubelet.service", "PRIORITY=6", fmt.Sprintf("_PID=%d", 1000+i%3),
			fmt.Sprintf("_SOURCE_REALTIME_TIMESTAMP=%d", t0+i*1000-7), "MESSAGE="+text)
	}
	return w.b
}

// marked matches a record of damageable.
var marked = regexp.MustCompile(`MESSAGE=<(\d{6})[^<>\x00]*` + needle + `[^<>\x00]*(\d{6})>`)

// intact returns the records that stand whole in the raw bytes, without looking at any object.
func intact(b []byte) map[int]bool {
	found := map[int]bool{}
	for _, m := range marked.FindAllSubmatch(b, -1) {
		if i, err := strconv.Atoi(string(m[1])); err == nil && bytes.Equal(m[1], m[2]) {
			found[i] = true
		}
	}
	return found
}

func TestDamage(t *testing.T) {
	whole := damageable(10_000)
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
		missed int  // at most, of 1,250
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
		{"zeros in the middle", func(b []byte) []byte { return zeros(len(b)/2, len(b)/2+1<<19)(b) }, false, 2},
		{"zeros at an odd place", func(b []byte) []byte { return zeros(len(b)/3|3, len(b)/3+70_001)(b) }, false, 2},
		{"entry arrays gone", zeros(176, 184), true, 0},
		{"hash tables gone", zeros(272, 272+2*(16+16*builderBuckets)), false, 0},
	}
	for seed := range uint64(8) {
		cases = append(cases, damaged{fmt.Sprintf("500 flipped bits/%d", seed), flip(500, seed), false, 10})
	}
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
		// The number of a record that is whole.
		i := -1
		if whole := intact(append([]byte("MESSAGE="), e.Message...)); len(whole) == 1 { // a damaged size covers several
			i = slices.Collect(maps.Keys(whole))[0]
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
			must(t, os.Truncate(path, int64(e.obj.off)&^4095))
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
