package journal

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// One excerpt in every form that journalctl can print and others wrap it in: 16 records, three flaps.
func TestDerived(t *testing.T) {
	names, err := filepath.Glob("testdata/derived/d*")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	want := []string{
		"2023-07-03T11:59:01Z 2023-07-03T11:59:16Z",
		"2023-07-03T12:02:25Z 2023-07-03T12:02:28Z",
		"2023-07-03T12:06:26Z 2023-07-03T12:06:30Z",
	}
	names = append(names, smallJournal(t))
	for _, n := range names {
		t.Run(filepath.Base(n), func(t *testing.T) {
			r := readFile(t, n)
			if got := lines(r); got != 16 {
				t.Errorf("%d unhealthy records, want 16", got)
			}
			if w := worst(r); math.Abs(w-231.464916622) > 1e-9 {
				t.Errorf("worst age %g, want 231.464916622", w)
			}
			if len(r.Episodes) != len(want) {
				t.Fatalf("%d episodes, want 3%s", len(r.Episodes), brief(r))
			}
			for i, e := range r.Episodes {
				got := ""
				if e.Start != nil {
					got = e.Start.Truncate(time.Second).Format(time.RFC3339) + " " +
						e.End.Truncate(time.Second).Format(time.RFC3339)
				}
				if got != want[i] || e.Flaps != i+1 || e.Kind != Incident {
					t.Errorf("episode %d: %s, flap %d, want %s", i, got, e.Flaps, want[i])
				}
			}
			if r.Episodes[2].Recovered {
				t.Error("nothing shows that the last flap ended")
			}
		})
	}
}

// smallJournal unpacks the journal file that the other forms were made of.
func smallJournal(t *testing.T) string {
	t.Helper()
	packed, err := os.ReadFile("journalfile/testdata/d00-small.journal.zst")
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, "d00-small.journal", string(b))
}

// A real kubelet whose containerd was frozen for seven minutes.
func TestReal(t *testing.T) {
	names, err := filepath.Glob("testdata/real/*frozen.log*")
	if err != nil || len(names) != 1 {
		t.Fatalf("%v: %v", names, err)
	}
	r := readFile(t, names[0])
	if len(r.Episodes) != 2 || r.Episodes[0].Kind != Startup || r.Episodes[1].Kind != Incident {
		t.Fatalf("want a start and an incident%s", brief(r))
	}
	e := r.Episodes[1]
	const clock = "01-02 15:04:05"
	if got := e.Start.Format(clock) + " " + e.End.Format(clock); got != "11-21 00:52:12 11-21 00:56:07" {
		t.Errorf("from, to: %s", got)
	}
	if !r.Episodes[0].Recovered || !e.Recovered || e.MaxLastSeenSeconds != 418.98149847 || len(e.Stalls) != 0 {
		t.Errorf("want worst age 418.98149847, recovered, of one stall%s", brief(r))
	}
	if got := e.Anchor.Format("15:04:05.000"); got != "00:49:08.541" {
		t.Errorf("the relist that got stuck began at %s, want 00:49:08.541", got)
	}
}

// BenchmarkGenerated reads the large generated journal below $KDIAG_JOURNAL and holds the report against its truth,
// the file $KDIAG_JOURNAL_TRUTH.
func BenchmarkGenerated(t *testing.B) {
	dir, truthFile := os.Getenv("KDIAG_JOURNAL"), os.Getenv("KDIAG_JOURNAL_TRUTH")
	if dir == "" || truthFile == "" {
		t.Skip("KDIAG_JOURNAL and KDIAG_JOURNAL_TRUTH name no journal and no truth")
	}
	b, err := os.ReadFile(truthFile)
	if err != nil {
		t.Fatal(err)
	}
	var truth struct {
		Entries  int64 `json:"entries"`
		Lines    int64 `json:"pleg_lines"`
		Episodes []struct {
			Start int64  `json:"start_us"`
			End   int64  `json:"end_us"`
			Lines int    `json:"lines"`
			Worst string `json:"worst_age"`
		} `json:"episodes"`
	}
	if err := json.Unmarshal(b, &truth); err != nil {
		t.Fatal(err)
	}
	var r *Report
	for t.Loop() {
		r = readFile(t, dir)
	}
	if r.Lines != truth.Entries || lines(r) != truth.Lines || len(r.Episodes) != len(truth.Episodes) {
		t.Fatalf("%d entries, %d lines, %d episodes; want %d, %d, %d%s", r.Lines, lines(r), len(r.Episodes),
			truth.Entries, truth.Lines, len(truth.Episodes), brief(r))
	}
	for i, want := range truth.Episodes {
		e := r.Episodes[i]
		age, _ := time.ParseDuration(want.Worst)
		if e.Start.UnixMicro() != want.Start || e.End.UnixMicro() != want.End || e.Lines != want.Lines ||
			math.Abs(e.MaxLastSeenSeconds-age.Seconds()) > 1e-9 {
			t.Errorf("episode %d: %+v, want %+v", i, e, want)
		}
	}
	if strings.Contains(brief(r), Startup) {
		t.Error("no start is in the truth")
	}
}
