package render

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// readLog reads and judges logs of package journal; until may be empty.
func readLog(t testing.TB, name, until string) *journal.Report {
	t.Helper()
	opts := journal.Options{
		Inputs: []journal.Input{{Path: "../../../journal/testdata/" + name}}, Year: 2026, Local: time.UTC,
		Now: func() time.Time { return time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC) },
	}
	if until != "" {
		opts.Until = instant(t, until)
	}
	r, err := journal.Read(t.Context(), opts)
	if err != nil && len(r.Sources) == 0 {
		t.Fatal(err)
	}
	for i := range r.Sources { // so that the text does not depend on the length of a path
		r.Sources[i].Name = name
		r.Sources[i].Problem = strings.ReplaceAll(r.Sources[i].Problem, opts.Inputs[0].Path, name)
	}
	for i := range r.Notes {
		r.Notes[i] = strings.ReplaceAll(r.Notes[i], opts.Inputs[0].Path, name)
	}
	judge.Journal(r)
	return r
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	must(t, err)
	return at
}

// journalReports are one incident; three that return; relists that fail at the end; none; nothing read; records
// without a time; a broken node without an incident.
func journalReports(t testing.TB) map[string]*journal.Report {
	return map[string]*journal.Report{
		"journal-frozen":   readLog(t, "real/kubelet-1.36-containerd-frozen.log.zst", ""),
		"journal-flapping": readLog(t, "derived/d01-short.log", ""),
		"journal-failing":  readLog(t, "kubelet/unsupported.log", "2026-11-22T01:23:24Z"),
		"journal-clear":    readLog(t, "corpus/007-k8s45419-zihaoyu-decoy-ignoring-events.log", ""),
		"journal-denied":   readLog(t, "no-such.log", ""),
		"journal-timeless": readLog(t, "corpus/025-containerd5274-bare.log", ""),
		"journal-broken":   readLog(t, "corpus/033-ghfile14970692672-cgroup-fatal.log", ""),
	}
}

func journalPage(t testing.TB, r *journal.Report) string {
	t.Helper()
	var b strings.Builder
	must(t, JournalHTML(&b, r))
	return b.String()
}

// TestJournalHTML checks that the page of each report is sound and has all that text has.
func TestJournalHTML(t *testing.T) {
	for name, r := range journalReports(t) {
		page := journalPage(t, r)
		checkPage(t, page)
		for _, c := range r.Signatures {
			if !strings.Contains(page, ">"+c.Code+"<") {
				t.Errorf("%s: no signature %s on the page", name, c.Code)
			}
			if !strings.Contains(page, ` title="records">`+units.Number(c.Count)+"<") {
				t.Errorf("%s: a narrow screen does not show what %d is", name, c.Count)
			}
		}
		for _, e := range r.Incidents() {
			if n := strings.Count(page, "<rect class=\"bad\""); e.Seconds > 0 && n == 0 {
				t.Errorf("%s: an incident is not drawn", name)
			}
		}
	}
}

// TestHistoryHTML checks that the page of a history is sound and has its hung calls, causes, gaps and archives.
func TestHistoryHTML(t *testing.T) {
	told, out := new(checks.History), new(strings.Builder)
	load(t, "testdata/history.json", told)
	must(t, HistoryHTML(out, told))
	page := out.String()
	checkPage(t, page)
	page = strings.ReplaceAll(page, glue, " ")
	for _, want := range []string{
		"<title>kdiag history: node-7</title>", "RuntimeHung from 2026-11-23 14:05:12 UTC to 14:10:40 (5m28s)",
		"<h2>Zoom", `<rect class="bad"`, "<title>call hangs, 14:05:20 to 14:10:40</title>",
		"<title>relist 15.4s, 14:04:10", "because of RuntimeHung", "<td class=\"warn\">restart</td>",
		`<svg class="narrow" viewBox="0 0 360`, `<span class="swatch bad"></span> call hangs`,
		`<span class="swatch info"></span> a relist: the higher, the longer`,
		"<pre>kdiag node --from /var/lib/kdiag/captures/20261123T140530Z-RuntimeHung.tar.zst</pre>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// checkPage checks that a page needs nothing else, that its tags are balanced, that nothing acts on a terminal, and
// that it suits a narrow screen without breaking names.
func checkPage(t *testing.T, page string) {
	t.Helper()
	for _, style := range []string{"break-all", "anywhere"} {
		if strings.Contains(journalHead, style) {
			t.Errorf("%s breaks names in the middle", style)
		}
	}
	for _, style := range []string{"width=device-width", "@media (max-width"} {
		if !strings.Contains(page, style) {
			t.Errorf("no %s: a narrow screen cannot show the page", style)
		}
	}
	for _, outside := range []string{"http:", "https:", "src=", "<script", "@import", "<link", "javascript:"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page holds %q", outside)
		}
	}
	checkHarmless(t, strings.ReplaceAll(page, glue, " "), false)
	dec := xml.NewDecoder(strings.NewReader(page))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []string
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is no markup: %v", err)
		}
		switch tag := token.(type) {
		case xml.StartElement:
			open = append(open, tag.Name.Local)
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != tag.Name.Local {
				t.Fatalf("</%s> closes %v", tag.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("not closed: %v", open)
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to string
		width    int
		want     string
	}{
		{"seconds", "2026-11-21T00:00:03Z", "2026-11-21T00:00:33Z", 68, "00:00:10 00:00:20 00:00:30"},
		{"minutes", "2026-11-21T00:49:10Z", "2026-11-21T00:58:10Z", 68, "00:50 00:52 00:54 00:56 00:58"},
		{"midnight", "2026-11-20T20:00:00Z", "2026-11-21T04:00:00Z", 40, "20:00 22:00 Nov 21 02:00 04:00"},
		{
			"a zone of half hours", "2026-11-21T08:00:00+05:30", "2026-11-21T14:00:00+05:30", 60,
			"08:00 09:00 10:00 11:00 12:00 13:00 14:00",
		},
		{"no length", "2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z", 60, ""},
		{"ages", "1026-11-21T08:00:00Z", "2026-11-21T08:00:00Z", 20, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to := instant(t, tt.from), instant(t, tt.to)
			c := calendarOf(&journal.Report{From: &from, To: &to, Zone: from.Location()})
			var labels []string
			for _, tick := range c.ticks(from, to, tt.width) {
				if tick.at.Before(from) || tick.at.After(to) {
					t.Errorf("a tick at %v", tick.at)
				}
				labels = append(labels, tick.label)
			}
			got := strings.Join(labels, " ")
			if got != tt.want && tt.name != "ages" || len(labels) > 400 {
				t.Errorf("%d ticks %.400s, want %s", len(labels), got, tt.want)
			}
		})
	}
}

// TestJournalFollower replays one incident as it would be seen live.
func TestJournalFollower(t *testing.T) {
	full := readLog(t, "real/kubelet-1.36-containerd-frozen.log.zst", "")
	var b strings.Builder
	f := NewJournalFollower(&b, Options{Width: 80})
	update := func(r *journal.Report, e journal.Event) {
		t.Helper()
		must(t, f.Update(r, e))
	}
	incident := full.Incidents()[0]
	at := func(age float64, recovered bool) *journal.Report {
		e := incident
		end := e.Anchor.Add(time.Duration(age * float64(time.Second)))
		e.MaxLastSeenSeconds, e.Recovered, e.Lines, e.End = age, recovered, int(age/5), &end
		e.Seconds = end.Sub(*e.Start).Seconds()
		return &journal.Report{From: full.From, To: full.To, Episodes: []journal.Episode{e}}
	}
	quiet := &journal.Report{From: full.From, To: full.To}
	update(&journal.Report{From: full.From, To: full.To, Lines: 412, Sources: full.Sources, Verdict: checks.LogClear},
		journal.Event{})
	update(quiet, full.Events[0])
	update(quiet, full.Events[2])
	update(at(183.6, false), journal.Event{Code: plegNotHealthy, At: incident.Start, Lane: "kubelet", Count: 1})
	update(at(190, false), journal.Event{Code: plegNotHealthy, At: incident.Start, Lane: "kubelet", Count: 1})
	update(at(241, false), full.Events[3])
	update(at(419, false), journal.Event{})
	update(at(419, true), full.Events[5])
	update(at(419, true), journal.Event{})
	golden(t, "journal-follow", b.String())
	closed := NewJournalFollower(&terminal{err: io.ErrClosedPipe}, Options{})
	if err := closed.Update(full, journal.Event{}); err == nil {
		t.Error("no error from a writer that is closed")
	}
}
