package recorder

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// recorded returns a folder of records.
func recorded(t *testing.T, write func(*Recorder)) string {
	t.Helper()
	dir := t.TempDir()
	r := appender(t, dir)
	write(r)
	if finish(t, r); r.Lost() > 0 {
		t.Fatalf("%d records lost", r.Lost())
	}
	return dir
}

// history returns the history since a time.
func history(t *testing.T, dir string, since time.Time) *checks.History {
	t.Helper()
	h, err := History(t.Context(), dir, since, time.Time{})
	must(t, err)
	return h
}

// TestGaps has records as words: the seconds of a look, with a j where it finds that the clock jumped; A or B for the
// start of an agent after that boot, a for one with an interval of 5 seconds; ! for its stop.
func TestGaps(t *testing.T) {
	for _, tt := range []struct {
		records, want string
		since         int // seconds
	}{
		{"A 0 30 60 90 180", "", 0},
		{"0 90 181", "90-181 nothing was written", 0}, // the start is no longer there: each 30 s
		{"a 0 5 50", "", 0},                           // each 5 s, and calls hang
		{"a 0 5 51", "5-51 nothing was written", 0},
		{"A 0 30 ! A 130", "30-130 the agent was stopped", 0},
		{"A 0 30 !", "30-30 the agent was stopped; no record since", 0},
		{"A 0 30 A 130", "30-130 the agent ended without being stopped", 0},
		{"A 0 30 ! B 40", "30-40 reboot the node was shut down", 0},
		{"A 0 30 B 400", "30-400 reboot the node restarted without", 0},
		{"A 0 30 4000j 4030", "30-4000 the clock was set forward", 0},
		{"A 4000 4030 60 90", "4030-60 the clock was set back", 0},
		{"A 0 30 B 400 430", "30-400 reboot the node restarted without", 300},
		{"A 0 30 400 430 550", "430-550 nothing was written", 420},
	} {
		dir := recorded(t, func(r *Recorder) {
			at := noon
			for word := range strings.FieldsSeq(tt.records) {
				n, err := strconv.Atoi(strings.TrimSuffix(word, "j"))
				switch {
				case word == "!":
					r.Append(at.Add(time.Second), KindStop, nil)
				case err != nil:
					start := Start{BootID: word, IntervalSeconds: 30}
					if word == "a" {
						start.IntervalSeconds = 5
					}
					r.Append(at.Add(2*time.Second), KindStart, start)
				default:
					at = noon.Add(time.Duration(n) * time.Second)
					s := checks.LookSample{At: at, Status: checks.Healthy}
					if strings.HasSuffix(word, "j") {
						s.Causes = []checks.LookCause{{Code: "ClockJumped"}}
					}
					r.Append(at, KindSample, s)
				}
			}
		})
		var got []string
		for _, g := range history(t, dir, noon.Add(time.Duration(tt.since)*time.Second)).Gaps {
			seconds := func(at time.Time) string { return strconv.Itoa(int(at.Sub(noon).Seconds())) }
			why := " "
			if g.Restarted {
				why = " reboot "
			}
			got = append(got, seconds(g.From)+"-"+seconds(g.To)+why+g.Why)
		}
		text := strings.Join(got, ", ")
		if !strings.HasPrefix(text, tt.want) || tt.want == "" && text != "" || len(got) > 1 {
			t.Errorf("%s since %d: %q, want %q", tt.records, tt.since, text, tt.want)
		}
	}
}

// TestThinned wants few samples of many, and among them all where something changed.
func TestThinned(t *testing.T) {
	all := make([]checks.LookSample, 5*mostSamples)
	for i := range all {
		all[i] = checks.LookSample{At: noon.Add(time.Duration(i) * time.Minute), Status: checks.Healthy}
		if i == 7 || i == 3001 || i == 3002 {
			all[i].Status, all[i].Hung = checks.Unhealthy, []checks.HungCall{{Method: "Status", Since: all[i].At}}
		}
	}
	got := thin(all)
	if n := len(got); n < mostSamples*3/4 || n > mostSamples {
		t.Errorf("%d samples of %d", n, len(all))
	}
	for _, i := range []int{0, 6, 7, 8, 3000, 3001, 3002, 3003, len(all) - 1} {
		if !slices.ContainsFunc(got, func(s checks.LookSample) bool { return s.At.Equal(all[i].At) }) {
			t.Errorf("sample %d is missing", i)
		}
	}
}

// TestOpenIncident has a runtime that hangs until the last record, archives that are there, gone, and elsewhere, and a
// record of another version. What TestHistory of the commands tells is not here.
func TestOpenIncident(t *testing.T) {
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	dir := recorded(t, func(r *Recorder) {
		r.Append(at(0), KindSample, checks.LookSample{At: at(0), Status: checks.Healthy})
		r.Append(at(30), KindTransition, checks.Transition{
			At: at(30), Noticed: at(30), From: checks.CauseClear, To: checks.CauseOnset, Cause: "ListHang",
			Severity: checks.Critical, Incident: at(30), Summary: "ListHang!",
		})
		r.Append(at(31), KindSample, checks.LookSample{
			At: at(31), Status: checks.Unhealthy, Hung: []checks.HungCall{{Method: "ListContainers", Since: at(30)}},
		})
		r.Append(at(32), KindSample, "no sample")
		for _, path := range []string{"captures/kept", "captures/dropped", "../../etc/hostname"} {
			r.Append(at(32), KindCapture, checks.TakenCapture{At: at(32), Cause: "ListHang", Path: path})
		}
	})
	kept := filepath.Join(dir, CapturesDir, "kept")
	must(t, os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600))
	h := history(t, dir, time.Time{})
	want := []checks.Incident{{
		Began: at(30), From: at(30), To: at(31), Open: true, Cause: "ListHang", Severity: checks.Critical,
		Summary: "ListHang!", Hung: &checks.HungCall{Method: "ListContainers", Since: at(30)},
	}}
	equal(t, "incidents", want, h.Incidents)
	if len(h.Problems) != 1 || !strings.Contains(h.Problems[0], "this version") {
		t.Errorf("problems %q, want one about the version", h.Problems)
	}
	var paths []string
	for _, c := range h.Captures {
		paths = append(paths, strings.TrimPrefix(c.Path, dir)+" "+strings.Split(c.Error+":", ":")[0])
	}
	wantPaths := []string{"/captures/kept ", "/captures/dropped no longer there", "/etc/hostname no longer there"}
	equal(t, "captures", wantPaths, paths)
	clock := func(at time.Time) string { return at.Format(time.TimeOnly) }
	equal(t, "Since", "hung since 12:30:00, first ListContainers", Since(h, clock))
	h.Incidents[0].SlowSince, h.Incidents[0].Hung.Name = new(at(2)), "payments/ledger-db-0 ledger"
	const since = "slow since 12:02:00, hung since 12:30:00, first payments/ledger-db-0 ledger"
	equal(t, "Since", since, Since(h, clock))
}

// TestDamagedHistory has the reason of a gap where records were written that cannot be read.
func TestDamagedHistory(t *testing.T) {
	dir := recorded(t, func(r *Recorder) {
		for i := range 20 {
			s := checks.LookSample{At: noon.Add(time.Duration(i) * 30 * time.Second), Status: checks.Healthy}
			r.Append(s.At, KindSample, s)
		}
	})
	text := []byte(testkit.Read(t, segmentPath(dir, 1)))
	clear(text[len(text)/3 : len(text)*2/3])
	must(t, os.WriteFile(segmentPath(dir, 1), text, 0o600), os.Mkdir(segmentPath(dir, 2), 0o700))
	h := history(t, dir, time.Time{})
	if len(h.Gaps) != 1 || !strings.HasPrefix(h.Gaps[0].Why, "records are missing: ") || len(h.Problems) != 2 ||
		!strings.Contains(h.Problems[1], "00000002.zst: is not a regular file") {
		t.Errorf("gaps %+v, problems %q", h.Gaps, h.Problems)
	}
}
