package recorder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
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

// history returns the history between two times, the second of which can be left out.
func history(t *testing.T, dir string, between ...time.Time) *checks.History {
	t.Helper()
	between = append(between, time.Time{})
	h, err := History(t.Context(), dir, between[0], between[1])
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
		{"A 0 30 121", "30-121 nothing was written", 0},
		{"0 90 181", "90-181 nothing was written", 0}, // the start is no longer there: each 30 s
		{"a 0 5 50", "", 0},                           // each 5 s, and calls hang
		{"a 0 5 51", "5-51 nothing was written", 0},
		{"A 0 30 ! A 130", "30-130 the agent was stopped", 0},
		{"A 0 30 ! A 40", "", 0},
		{"A 0 30 !", "30-30 the agent was stopped; no record since", 0},
		{"A 0 30 A 130", "30-130 the agent ended without being stopped", 0},
		{"A 0 30 ! B 40", "30-40 reboot the node was shut down", 0},
		{"A 0 30 B 400", "30-400 reboot the node restarted without", 0},
		{"A 0 30 4000j 4030", "30-4000 the clock was set forward", 0},
		{"A 4000 4030 60 90", "4030-60 the clock was set back", 0},
		{"A 0 30 B 400 430", "30-400 reboot the node restarted without", 300},
		{"A 0 30 400 430 550", "430-550 nothing was written", 420},
		{"B 400 430", "", 0},
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
	if few := thin(all[:100]); len(few) != 100 {
		t.Errorf("%d of 100 samples", len(few))
	}
}

// TestIncidents has a runtime that is slow, hangs, and is well again, and hangs once more until the last record.
func TestIncidents(t *testing.T) {
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	const clear, onset = checks.CauseClear, checks.CauseOnset
	dir := recorded(t, func(r *Recorder) {
		change := func(minute int, to, cause string, severity checks.Severity, by string, incident int) {
			from := map[string]string{clear: onset, onset: clear}[to]
			r.Append(at(minute), KindTransition, checks.Transition{
				At: at(minute), Noticed: at(minute), From: from, To: to, Cause: cause, Severity: severity, CausedBy: by,
				Incident: at(incident), Summary: cause + "!",
			})
		}
		look := func(minute int, calls ...checks.HungCall) {
			s := checks.LookSample{At: at(minute), Status: checks.Healthy, Hung: calls}
			if len(calls) > 0 {
				s.Status = checks.Unhealthy
			}
			r.Append(at(minute), KindSample, s)
		}
		look(0)
		change(2, onset, "RuntimeSlow", checks.Warning, "", 2)
		change(5, onset, "PLEGUnhealthy", checks.Critical, "RuntimeHung", 2)
		change(5, onset, "RuntimeHung", checks.Critical, "", 2)
		change(5, clear, "RuntimeSlow", checks.Warning, "", 2)
		look(6, checks.HungCall{
			Method: "ContainerStatus", Object: "17", Name: "payments/ledger-db-0 ledger", Since: at(5),
		}, checks.HungCall{Method: "Status", Since: at(6)})
		look(7, checks.HungCall{Method: "Status", Since: at(6)})
		change(10, clear, "RuntimeHung", checks.Critical, "", 2)
		change(11, clear, "PLEGUnhealthy", checks.Critical, "RuntimeHung", 2)
		look(12)
		change(30, onset, "ListHang", checks.Critical, "", 30)
		look(31, checks.HungCall{Method: "ListContainers", Since: at(30)})
		r.Append(at(32), KindSample, "no sample")
		for _, path := range []string{"captures/kept", "captures/dropped", "../../etc/hostname"} {
			r.Append(at(32), KindCapture, checks.TakenCapture{At: at(32), Cause: "ListHang", Path: path})
		}
	})
	kept := filepath.Join(dir, CapturesDir, "kept")
	must(t, os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600))
	h := history(t, dir, time.Time{})
	want := []checks.Incident{
		{
			Began: at(2), From: at(5), To: at(10), Cause: "RuntimeHung", Severity: checks.Critical,
			Summary: "RuntimeHung!", SlowSince: new(at(2)), Hung: &checks.HungCall{
				Method: "ContainerStatus", Object: "17", Name: "payments/ledger-db-0 ledger", Since: at(5),
			},
		},
		{
			Began: at(30), From: at(30), To: at(31), Open: true, Cause: "ListHang", Severity: checks.Critical,
			Summary: "ListHang!", Hung: &checks.HungCall{Method: "ListContainers", Since: at(30)},
		},
	}
	if diff := cmp.Diff(want, h.Incidents); diff != "" {
		t.Errorf("incidents (-want +got):\n%s", diff)
	}
	if len(h.Problems) != 1 || !strings.Contains(h.Problems[0], "this version") {
		t.Errorf("problems %q, want one about the version", h.Problems)
	}
	var paths []string
	for _, c := range h.Captures {
		paths = append(paths, strings.TrimPrefix(c.Path, dir)+" "+strings.Split(c.Error+":", ":")[0])
	}
	wantPaths := []string{"/captures/kept ", "/captures/dropped no longer there", "/etc/hostname no longer there"}
	if diff := cmp.Diff(wantPaths, paths); diff != "" {
		t.Errorf("captures (-want +got):\n%s", diff)
	}
	clock := func(at time.Time) string { return at.Format(time.TimeOnly) }
	if got := Since(h, clock); got != "hung since 12:30:00, first ListContainers" {
		t.Errorf("Since: %q", got)
	}

	late := history(t, dir, at(20))
	if diff := cmp.Diff(want[1:], late.Incidents); diff != "" || len(late.Transitions) != 1 {
		t.Errorf("of the last minutes: %d transitions, incidents (-want +got):\n%s", len(late.Transitions), diff)
	}
	during := history(t, dir, at(6), at(8))
	want[0].Open, want[0].To = true, at(7) // the last record
	if diff := cmp.Diff(want[:1], during.Incidents); diff != "" {
		t.Errorf("of the minutes of the hang: incidents (-want +got):\n%s", diff)
	}
	const since = "slow since 12:02:00, hung since 12:05:00, first payments/ledger-db-0 ledger"
	if got := Since(during, clock); got != since {
		t.Errorf("Since: %q", got)
	}
	if _, err := History(t.Context(), dir, at(100), time.Time{}); !errors.Is(err, ErrNoRecords) {
		t.Errorf("after the last record: %v", err)
	}
}

// TestDamagedHistory has the reason of a gap where records were written that cannot be read.
func TestDamagedHistory(t *testing.T) {
	dir := recorded(t, func(r *Recorder) {
		for i := range 20 {
			s := checks.LookSample{At: noon.Add(time.Duration(i) * 30 * time.Second), Status: checks.Healthy}
			r.Append(s.At, KindSample, s)
		}
	})
	text, err := os.ReadFile(segmentPath(dir, 1))
	must(t, err)
	clear(text[len(text)/3 : len(text)*2/3])
	must(t, os.WriteFile(segmentPath(dir, 1), text, 0o600), os.Mkdir(segmentPath(dir, 2), 0o700))
	h := history(t, dir, time.Time{})
	if len(h.Gaps) != 1 || !strings.HasPrefix(h.Gaps[0].Why, "records are missing: ") || len(h.Problems) != 2 ||
		!strings.Contains(h.Problems[1], "00000002.zst: is not a regular file") {
		t.Errorf("gaps %+v, problems %q", h.Gaps, h.Problems)
	}
}
