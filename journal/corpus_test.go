package journal

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A truth is one line of the corpus's index, made by hand.
type truth struct {
	file      string
	lines     int64
	worst     time.Duration
	episodes  int
	recovered string
	startup   bool
}

// corpus reads the index of the corpus.
func corpus(t testing.TB) []truth {
	t.Helper()
	f, err := os.Open("testdata/corpus/index.tsv")
	must(t, err)
	defer f.Close()
	var all []truth
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		col := strings.Split(sc.Text(), "\t")
		if len(col) < 12 || col[0] == "file" {
			continue
		}
		tr := truth{
			file: filepath.Join("testdata/corpus", col[0]), recovered: col[11],
			startup: strings.Contains(sc.Text(), "START-UP ONLY"),
		}
		tr.lines, _ = strconv.ParseInt(col[8], 10, 64)
		tr.worst, _ = time.ParseDuration(col[9])
		tr.episodes, _ = strconv.Atoi(col[10])
		all = append(all, tr)
	}
	if err := sc.Err(); err != nil || len(all) < 50 {
		t.Fatalf("the index has %d lines: %v", len(all), err)
	}
	return all
}

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
	if err != nil {
		t.Fatalf("reading %v: %v", names, err)
	}
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

// brief words an episode.
func brief(e *Episode) string {
	at := func(t *time.Time) string {
		if t == nil {
			return "unknown"
		}
		return t.Truncate(time.Second).Format(time.RFC3339)
	}
	return fmt.Sprintf("%s %s to %s, worst %gs, flap %d, recovered %v", e.Kind, at(e.Start), at(e.End),
		e.MaxLastSeenSeconds, e.Flaps, e.Recovered)
}

// briefs words the episodes for a failed test.
func briefs(r *Report) string {
	out := ""
	for _, e := range r.Episodes {
		out += fmt.Sprintf("\n  %s by %q, %d lines, %d stalls", brief(&e), e.RecoveredBy, e.Lines, len(e.Stalls))
	}
	return out
}

func TestCorpus(t *testing.T) {
	for _, tr := range corpus(t) {
		t.Run(filepath.Base(tr.file), func(t *testing.T) {
			r := readFile(t, tr.file)
			worst := 0.0
			for _, e := range r.Episodes {
				worst = max(worst, e.MaxLastSeenSeconds)
			}
			if lines(r) != tr.lines || math.Abs(worst-tr.worst.Seconds()) > 1e-9 || len(r.Episodes) != tr.episodes {
				t.Errorf("%d records, worst age %gs, %d episodes; want %+v", lines(r), worst, len(r.Episodes), tr)
			}
			for _, e := range r.Episodes {
				if want := tr.recovered == "yes"; e.Recovered != want {
					t.Errorf("recovered: %v, the index has %q", e.Recovered, tr.recovered)
				}
				// An excerpt of nothing but the first line of a kubelet is a start, also if its note has more.
				if want := tr.startup || tr.worst == 0; (e.Kind == Startup) != want {
					t.Errorf("kind %s, want start-up: %v", e.Kind, want)
				}
			}
			if t.Failed() {
				t.Log(briefs(r))
			}
		})
	}
}

// must ends a test or a benchmark that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
