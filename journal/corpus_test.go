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
	if err != nil {
		t.Fatal(err)
	}
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

// worst returns the worst age of all episodes.
func worst(r *Report) float64 {
	w := 0.0
	for _, e := range r.Episodes {
		w = max(w, e.MaxLastSeenSeconds)
	}
	return w
}

// brief words the episodes for a failed test.
func brief(r *Report) string {
	var b strings.Builder
	for _, e := range r.Episodes {
		fmt.Fprintf(&b, "\n  %s %v..%v lines=%d worst=%gs recovered=%v by %q stalls=%d flaps=%d", e.Kind, e.Start,
			e.End, e.Lines, e.MaxLastSeenSeconds, e.Recovered, e.RecoveredBy, len(e.Stalls), e.Flaps)
	}
	return b.String()
}

func TestCorpus(t *testing.T) {
	for _, tr := range corpus(t) {
		t.Run(filepath.Base(tr.file), func(t *testing.T) {
			r := readFile(t, tr.file)
			if got := lines(r); got != tr.lines {
				t.Errorf("%d records say that PLEG is not healthy, want %d", got, tr.lines)
			}
			if got := worst(r); math.Abs(got-tr.worst.Seconds()) > 1e-9 {
				t.Errorf("worst age %gs, want %gs", got, tr.worst.Seconds())
			}
			if len(r.Episodes) != tr.episodes {
				t.Errorf("%d episodes, want %d", len(r.Episodes), tr.episodes)
			}
			for _, e := range r.Episodes {
				if want := tr.recovered == "yes"; e.Recovered != want {
					t.Errorf("recovered: %v, the index says %q", e.Recovered, tr.recovered)
				}
				// An excerpt that shows nothing but the first line of a kubelet is a start, also where its note knows
				// more.
				if want := tr.startup || tr.worst == 0; (e.Kind == Startup) != want {
					t.Errorf("kind %s, want start-up: %v", e.Kind, want)
				}
			}
			if t.Failed() {
				t.Log(brief(r))
			}
		})
	}
}
