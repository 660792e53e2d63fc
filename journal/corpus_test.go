package journal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

// now is the clock of the tests.
func now() time.Time { return time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC) }

// readFile reads one file as kdiag journal FILE does.
func readFile(t testing.TB, names ...string) *Report {
	t.Helper()
	opts := Options{Now: now, Local: time.UTC}
	for _, n := range names {
		opts.Inputs = append(opts.Inputs, Input{Path: n})
	}
	r, err := Read(t.Context(), opts)
	must(t, err)
	return r
}

// lines returns how many records the report counts as unhealthy.
func lines(r *Report) int64 {
	for _, s := range r.Signatures {
		if s.Code == "PLEGNotHealthy" {
			return s.Count
		}
	}
	return 0
}

// briefs words the episodes of a report.
func briefs(r *Report) (all []string) {
	at := func(t *time.Time) string {
		if t == nil {
			return "unknown"
		}
		return t.Truncate(time.Second).Format(time.RFC3339)
	}
	for _, e := range r.Episodes {
		all = append(all, fmt.Sprintf("%s %s to %s, worst %gs, flap %d, recovered %v", e.Kind, at(e.Start), at(e.End),
			e.MaxLastSeenSeconds, e.Flaps, e.Recovered))
	}
	return all
}

// TestCorpus compares the report of each log of the corpus with its line in the index, which was made by hand.
func TestCorpus(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(testkit.Read(t, "testdata/corpus/index.tsv")), "\n")[1:]
	if len(rows) < 50 {
		t.Fatalf("the index has %d lines", len(rows))
	}
	for _, row := range rows {
		col := strings.Split(row, "\t")
		t.Run(col[0], func(t *testing.T) {
			worst, _ := time.ParseDuration(col[9]) // else "yet to be successful", or no record
			kind := Incident
			// An excerpt of nothing but the first line of a kubelet is a start, also if its note has more.
			if strings.Contains(row, "START-UP ONLY") || worst == 0 {
				kind = Startup
			}
			want := []string{col[8] + " records, worst age " + worst.String()}
			for n, _ := strconv.Atoi(col[10]); n > 0; n-- {
				want = append(want, fmt.Sprint(kind, ", recovered: ", col[11] == "yes"))
			}
			r := readFile(t, "testdata/corpus/"+col[0])
			got, seconds := []string{""}, 0.0
			for _, e := range r.Episodes {
				seconds = max(seconds, e.MaxLastSeenSeconds)
				got = append(got, fmt.Sprint(e.Kind, ", recovered: ", e.Recovered))
			}
			got[0] = fmt.Sprintf("%d records, worst age %v", lines(r), time.Duration(math.Round(seconds*1e9)))
			testkit.Equal(t, fmt.Sprintf("%q", briefs(r)), want, got)
		})
	}
}

var must = testkit.Must
