package journal

import (
	"fmt"
	"strconv"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

// An unhealthyLog builds unhealthy records for the pure part: at a second, with an age, of a process.
type unhealthyLog struct {
	records []*unhealthy
	seq     uint32
}

var zero = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).UnixMicro()

// add adds a record at seconds after zero; a negative time is unknown, a zero age is none.
func (s *unhealthyLog) add(at, age float64, kind uint8) *unhealthy {
	s.seq++
	h := &unhealthy{pid: 1, threshold: 180, kind: kind, age: int64(age * 1e9)}
	h.seq = s.seq
	if age != 0 {
		h.kind |= hasAge
	}
	if at >= 0 {
		h.at, h.known = zero+int64(at*1e6), true
	}
	s.records = append(s.records, h)
	return h
}

// flap adds the records of one stall, from its anchor on, as the sync loop writes them, shifted by a step of the clock.
func (s *unhealthyLog) flap(anchor float64, n int, shift float64) {
	pause, age := 0.1, 180.2
	for range n {
		s.add(anchor+age+shift, age, 0)
		age += pause
		pause = min(2*pause, 5)
	}
}

func ascending(uint16) bool { return false }

// shape words episodes and stalls: lines per stall, episodes apart by |.
func shape(all []*unhealthy) string {
	g := group(sequence(all, nil, ascending), func(int64, int64) bool { return true })
	out := ""
	for _, e := range g.episodes {
		out += "|"
		for _, s := range e.stalls {
			out += fmt.Sprintf(" %d", len(s.recs))
		}
	}
	return out
}

func TestGroup(t *testing.T) {
	tests := []struct {
		name  string
		build func(s *unhealthyLog)
		want  string
	}{
		{"one stall", func(s *unhealthyLog) { s.flap(0, 20, 0) }, "| 20"},
		{
			"three short flaps", func(s *unhealthyLog) { s.flap(0, 5, 0); s.flap(241, 5, 0); s.flap(482, 5, 0) },
			"| 5| 5| 5",
		},
		{"slow relists without a pause move the anchor", func(s *unhealthyLog) {
			s.add(200, 200, 0)
			s.add(205, 205, 0)
			s.add(210, 190, 0)
			s.add(215, 195, 0)
		}, "| 2 2"},
		{"a hole in the middle of a stall", func(s *unhealthyLog) {
			s.add(190, 190, 0)
			s.add(195, 195,
				0)
			s.add(4000, 4000, 0)
		}, "| 3"},
		{"the clock goes forward an hour", func(s *unhealthyLog) {
			s.flap(0, 12, 0)
			for k := range 5 {
				age := 180.2 + 6.3 + 5*float64(6+k)
				s.add(age+3600, age, 0)
			}
		}, "| 17"},
		{"the clock goes back ten minutes within a stall", func(s *unhealthyLog) {
			s.add(1000, 200, 0)
			s.add(1005, 205, 0)
			s.add(410, 210, 0)
			s.add(415, 215, 0)
		}, "| 4"},
		{"the clock goes forward early in a stall", func(s *unhealthyLog) {
			s.add(180.2, 180.2, 0)
			s.add(180.3, 180.3, 0)
			s.add(3780.5, 180.5, 0)
			s.add(3780.9, 180.9, 0)
		}, "| 4"},
		{
			"the clock goes back between flaps, so that the second seems to lie inside the first",
			func(s *unhealthyLog) { s.flap(0, 20, 0); s.flap(341, 5, -300) }, "| 20| 5",
		},
		{"whole seconds only", func(s *unhealthyLog) {
			for k := range 4 {
				s.add(float64(200+5*k), 200.7+5*float64(k), coarse)
			}
		}, "| 4"},
		{"no times: rising ages are one stall, a fresh one begins another", func(s *unhealthyLog) {
			s.add(-1, 185, 0)
			s.add(-1, 190, 0)
			s.add(-1, 181, 0)
			s.add(-1, 186, 0)
		}, "| 2| 2"},
		{"ages missing: the two-minute rule", func(s *unhealthyLog) {
			s.add(0, 0, 0)
			s.add(119, 0, 0)
			s.add(240, 0,
				0)
		}, "| 1 1| 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s unhealthyLog
			tt.build(&s)
			if got := shape(s.records); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	never := func(s *unhealthyLog, at float64, pid int32) { s.add(at, 0, never).pid = pid }
	tests := []struct {
		name      string
		build     func(s *unhealthyLog)
		recovered bool
		want      []string
	}{
		{"a start", func(s *unhealthyLog) { never(s, 0, 1) }, false, []string{"startup 1"}},
		{"a start that lasts", func(s *unhealthyLog) {
			for k := range 40 {
				never(s, float64(5*k), 1)
			}
		}, false, []string{"incident 40"}},
		{"three processes start one after the other", func(s *unhealthyLog) {
			for k := range 3 {
				never(s, float64(20*k), int32(1+k))
				never(s, float64(20*k)+5, int32(1+k))
				never(s, float64(20*k)+6, 0) // names no process
			}
		}, false, []string{"startup 3", "startup 3", "startup 3"}},
		{"the lines of two processes that start cross", func(s *unhealthyLog) {
			never(s, 0, 1)
			never(s, 1, 2)
			never(s, 2, 1)
		}, false, []string{"startup 2", "startup 1"}},
		{
			"restarted within an incident", func(s *unhealthyLog) { s.flap(0, 12, 0); never(s, 470, 2) }, false,
			[]string{"incident 13"},
		},
		{
			"restarted after it had ended", func(s *unhealthyLog) { s.flap(0, 12, 0); never(s, 470, 2) }, true,
			[]string{"incident 12", "startup 1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s unhealthyLog
			tt.build(&s)
			g := group(sequence(s.records, nil, ascending), func(int64, int64) bool { return tt.recovered })
			var got []string
			for _, e := range g.episodes {
				got = append(got, fmt.Sprintf("%s %d", e.episode().Kind, len(e.recs)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDedupe(t *testing.T) {
	var s unhealthyLog
	a, b := s.add(200, 200, 0), s.add(200.0004, 200, 0)
	b.source = 1 // the same record by way of syslog
	c := s.add(205, 205, 0)
	d := s.add(0, 0, never)
	e := s.add(0, 0, never) // the same words twice in one source are two records
	got := dedupe(s.records)
	if diff := cmp.Diff([]uint32{a.seq, c.seq, d.seq, e.seq},
		[]uint32{got[0].seq, got[1].seq, got[2].seq, got[3].seq}); len(got) != 4 || diff != "" {
		t.Errorf("%d records: %s", len(got), diff)
	}
}

func TestBurstsStayBounded(t *testing.T) {
	st := newMatches()
	for i := range 3 * maxBursts {
		at := timestamp{inner: klog.Stamp{Micros: int64(i) * second, Known: true}, seq: uint32(i)}
		key := burstKey{Code: "x", object: unique.Make(Object{ID: strconv.Itoa(i)})}
		st.add(Burst{burstKey: key, first: at, last: at, Count: 1})
	}
	n := int64(0)
	for _, b := range st.bursts {
		n += b.Count
	}
	if len(st.bursts) > maxBursts || n != 3*maxBursts {
		t.Errorf("%d bursts of %d records, want at most %d of %d", len(st.bursts), n, maxBursts, 3*maxBursts)
	}
}

func TestRelists(t *testing.T) {
	lengths := func(build func(s *unhealthyLog)) [][]int64 {
		var s unhealthyLog
		build(&s)
		g := group(sequence(s.records, nil, ascending), func(int64, int64) bool { return true })
		relists := g.relists()
		var out [][]int64
		for _, s := range g.stalls {
			seconds := []int64{}
			for _, d := range *relists[s] {
				seconds = append(seconds, int64(d.Seconds()))
			}
			out = append(out, seconds)
		}
		return out
	}
	tests := []struct {
		name  string
		build func(s *unhealthyLog)
		want  [][]int64
	}{
		// The last of 17 lines stands 4 s before the relist ends.
		{"direct", func(s *unhealthyLog) { s.flap(0, 17, 0); s.flap(241, 17, 0) }, [][]int64{{240}, {240}}},
		{"another process", func(s *unhealthyLog) {
			s.flap(0, 17, 0)
			s.flap(241, 17, 0)
			for _, h := range s.records[17:] {
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
