package journal

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unique"

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
	h := &unhealthy{moment: moment{pid: 1}, threshold: 180_000, kind: kind, age: int64(age * 1e9)}
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

// group puts the records into stalls and episodes. ended is whether the log shows that they ended.
func (s *unhealthyLog) group(ended bool) *grouping {
	ascending := func(uint16) bool { return false }
	return group(sequence(s.records, nil, ascending), func(int64, int64) bool { return ended })
}

// read adds records without a process of their own, "time/age" in seconds each, "-1" for a time that is unknown.
func (s *unhealthyLog) read(kind uint8, records string) {
	for r := range strings.FieldsSeq(records) {
		var at, age float64
		_, _ = fmt.Sscanf(r, "%g/%g", &at, &age) // without an age it is 0
		s.add(at, age, kind)
	}
}

// TestSettle checks which episodes are starts, by records of a kubelet that has not relisted yet, "time/process" each.
func TestSettle(t *testing.T) {
	lasting := ""
	for k := range 40 {
		lasting += fmt.Sprintf("%d/1 ", 5*k)
	}
	for _, tt := range []struct {
		name, starts string
		flap         bool // an incident goes before
		ended        bool // and shows its end
		want         string
	}{
		{"a start", "0/1", false, false, " startup 1"},
		{"a log that begins long after a start", "0/1 5/1 10/1", false, false, " incident 3"},
		{"a start that lasts", lasting, false, false, " incident 40"},
		{
			"three processes start one after the other, and some records name none",
			"0/1 5/1 6/0 20/2 25/2 26/0 40/3 45/3 46/0", false, false, " startup 3 startup 3 startup 3",
		},
		{"the lines of two processes that start cross", "0/1 1/2 2/1", false, false, " startup 2 startup 1"},
		{"restarted within an incident", "470/2", true, false, " incident 13"},
		{"restarted after it had ended", "470/2", true, true, " incident 12 startup 1"},
	} {
		var s unhealthyLog
		if tt.flap {
			s.flap(0, 12, 0)
		}
		for r := range strings.FieldsSeq(tt.starts) {
			var at float64
			var pid int32
			_, _ = fmt.Sscanf(r, "%g/%d", &at, &pid) // it is in the table
			s.add(at, 0, never).pid = pid
		}
		got := ""
		for _, e := range s.group(tt.ended).episodes {
			got += fmt.Sprintf(" %s %d", e.episode().Kind, len(e.recs))
		}
		if got != tt.want {
			t.Errorf("%s:%s, want%s", tt.name, got, tt.want)
		}
	}
}

func TestBurstsStayBounded(t *testing.T) {
	const most = 1000
	st := newMatches(most)
	for i := range 3 * most {
		at := timestamp{inner: klog.Stamp{Micros: int64(i) * second, Known: true}, seq: uint32(i)}
		key := burstKey{Code: "x", object: unique.Make(Object{ID: strconv.Itoa(i)})}
		st.add(Burst{burstKey: key, first: at, last: at, Count: 1})
	}
	n := int64(0)
	for _, b := range st.bursts {
		n += b.Count
	}
	if len(st.bursts) > most || n != 3*most {
		t.Errorf("%d bursts of %d records, want at most %d of %d", len(st.bursts), n, most, 3*most)
	}
}

// TestUnhealthyStayBounded reads a relist that hangs for days. Its report is that of all its records.
func TestUnhealthyStayBounded(t *testing.T) {
	const n = maxUnhealthy + 5000
	var log strings.Builder
	for i := range n {
		log.WriteString(at(5 * i))
	}
	opts := Options{Now: now, Local: time.UTC, Inputs: []Input{{Kind: Stream, Reader: strings.NewReader(log.String())}}}
	r := newReading(&opts, discover(opts.Inputs))
	r.run(t.Context())
	if kept := len(r.jobs[0].source.matches.unhealthy); kept > maxUnhealthy+100 {
		t.Errorf("%d of %d records kept", kept, n)
	}
	got := r.report()
	if len(got.Episodes) != 1 || got.Episodes[0].Lines != n || lines(got) != n ||
		got.Episodes[0].MaxLastSeenSeconds != 183+5*(n-1) {
		t.Errorf("%d of %d records counted%s", lines(got), n, briefs(got))
	}
}
