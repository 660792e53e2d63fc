package journal

import (
	"strings"
	"testing"
	"time"
)

// TestUnhealthyStayBounded reads a relist that hangs for days. Its report counts all records.
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
		t.Errorf("%d of %d records counted: %q", lines(got), n, briefs(got))
	}
}
