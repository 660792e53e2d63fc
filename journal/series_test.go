package journal

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stall returns the skip lines of a relist that begins at an anchor and lasts some seconds, as the sync loop writes them.
func stall(anchor, lasts float64) []string {
	var out []string
	pause := 0.1
	for age := 180.2; age < lasts; age += pause {
		if age > 180.2 {
			pause = min(2*pause, 5)
		}
		out = append(out, fmt.Sprintf(`%.3f "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active %.3fs ago; threshold is 3m0s"`, anchor+age, age))
	}
	return out
}

// series returns stalls that follow each other directly.
func series(lasts ...float64) []string {
	var out []string
	at := 1000.0
	for _, d := range lasts {
		out = append(out, stall(at, d)...)
		at += d + 1
	}
	return append(out, fmt.Sprintf(`%.3f "SyncLoop UPDATE" source="api" pods=["ns/p"]`, at))
}

func TestSeries(t *testing.T) {
	const housekeeping = `1210 "Housekeeping took longer than expected" err="housekeeping took too long" expected="1s" actual="9.001s"`
	tests := []struct {
		name     string
		messages []string
		first    string
		min      float64
	}{
		{"two hung calls each", series(240, 240, 240), "InspectHang", 0.6},
		{"two or three hung calls each", series(240.3, 360.9, 240.2), "InspectHang", 0.6},
		{"each for another time", series(190, 201, 185, 229), "RelistOverloaded", 0.5},
		{"each for another time, with other slowness", append(series(190, 201, 185, 229), housekeeping), "RuntimeSlow", 0.5},
		{"one alone shows no series", series(225), "PLEGUnhealthy", 0.4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, tt.messages...)
			for i, e := range r.Episodes {
				if c := e.Causes[0]; c.Code != tt.first || c.Confidence < tt.min {
					t.Errorf("episode %d: first is %s %.2f, want %s from %.2f%s", i, c.Code, c.Confidence, tt.first, tt.min, brief(r))
				}
			}
		})
	}
}

func TestChains(t *testing.T) {
	lengths := func(build func(s *scene)) [][]int64 {
		var s scene
		build(&s)
		g := group(sequence(s.hits, nil, nil, nil))
		var out [][]int64
		for _, c := range g.chains() {
			seconds := []int64{}
			for _, l := range c.lengths {
				seconds = append(seconds, l/second)
			}
			out = append(out, seconds)
		}
		return out
	}
	tests := []struct {
		name  string
		build func(s *scene)
		want  [][]int64
	}{
		// The last of 17 lines stands 4 s before the relist ends.
		{"direct", func(s *scene) { s.flap(0, 17, 0); s.flap(241, 17, 0) }, [][]int64{{240}, {240}}},
		{"a good relist in between", func(s *scene) { s.flap(0, 17, 0); s.flap(260, 17, 0) }, [][]int64{{}, {}}},
		{"another process", func(s *scene) {
			s.flap(0, 17, 0)
			s.flap(241, 17, 0)
			for _, h := range s.hits[17:] {
				h.pid = 2
			}
		}, [][]int64{{}, {}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, lengths(tt.build)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// An age counts hung calls only once the stall has ended, and only well above the threshold.
func TestPeak(t *testing.T) {
	const sync = `1245 "SyncLoop UPDATE" source="api" pods=["ns/p"]`
	cut := stall(1000, 241)
	if c, ok := cause(report(t, cut...), "InspectHang"); ok {
		t.Errorf("a log that ends at 4 min counts calls: %+v", c)
	}
	if c, ok := cause(report(t, append(cut, sync)...), "InspectHang"); !ok || len(c.Evidence.For) == 0 {
		t.Error("a stall that ended at 4 min counts none")
	}
	long := []string{`1602 "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 10m2.113s ago; threshold is 10m0s"`}
	if c, ok := cause(report(t, append(long, `1604 "SyncLoop UPDATE" source="api" pods=["ns/p"]`)...), "InspectHang"); ok {
		t.Errorf("the threshold itself counts calls: %+v", c)
	}
}
