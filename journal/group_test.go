package journal

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/klog"
)

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
	r := newReader(&opts, discover(opts.Inputs))
	r.run(t.Context())
	if kept := len(r.sources[0].matches.unhealthy); kept > maxUnhealthy+100 {
		t.Errorf("%d of %d records kept", kept, n)
	}
	got := r.report()
	if len(got.Episodes) != 1 || got.Episodes[0].Lines != n || lines(got) != n ||
		got.Episodes[0].MaxLastSeenSeconds != 183+5*(n-1) {
		t.Errorf("%d of %d records counted%s", lines(got), n, briefs(got))
	}
}
