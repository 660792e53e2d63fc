package render

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
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

func journalPage(t testing.TB, r *journal.Report) string {
	t.Helper()
	var b strings.Builder
	must(t, JournalHTML(&b, r))
	return b.String()
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
		{"midnight", "2026-11-20T20:00:00Z", "2026-11-21T04:00:00Z", 40, "20:00 22:00 Nov 21 02:00 04:00"},
		{"no length", "2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z", 60, ""},
		{"ages", "1026-11-21T08:00:00Z", "2026-11-21T08:00:00Z", 20, ""},
	} {
		from, to := instant(t, tt.from), instant(t, tt.to)
		c := calendarOf(&journal.Report{From: &from, To: &to, Zone: from.Location()})
		var labels []string
		for _, tick := range c.ticks(from, to, tt.width) {
			if tick.at.Before(from) || tick.at.After(to) {
				t.Errorf("%s: a tick at %v", tt.name, tick.at)
			}
			labels = append(labels, tick.label)
		}
		got := strings.Join(labels, " ")
		if got != tt.want && tt.name != "ages" || len(labels) > 400 {
			t.Errorf("%s: %d ticks %.400s, want %s", tt.name, len(labels), got, tt.want)
		}
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
}

// hung is a node with pods whose runtime has not answered for four minutes, and its log.
func hung(pods int) LoopView {
	now := time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const why = "PLEG is not healthy: pleg was last seen active 4m2s ago; threshold is 3m0s"
	s := syncloop.Snapshot{
		Node: "lab-1", Runtime: "containerd v2.1.4",
		Loop: syncloop.LoopState{
			Turns:         1234,
			LastTurn:      ago(time.Minute),
			SkippingSince: ago(time.Minute),
			Why:           why,
			Updates:       2,
		},
		PLEG: pleg.State{
			LastRelist: ago(242 * time.Second), InProgressSince: ago(4 * time.Minute), Relists: 1200, Failures: 3,
			Threshold: 3 * time.Minute,
		},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse},
			{
				Type:               v1.NodeReady,
				Status:             v1.ConditionFalse,
				Message:            why,
				LastTransitionTime: metav1.NewTime(ago(time.Minute)),
			},
		},
	}
	for i := range pods {
		uid, name := types.UID(fmt.Sprint("uid-", i)), fmt.Sprintf("web-%02d-lab-1", i)
		s.Pods = append(s.Pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: v1.PodStatus{Phase: v1.PodPending},
		})
		if i > 0 {
			s.Workers = append(s.Workers, podworkers.WorkerState{
				UID: uid, Name: "default/" + name, Step: "sync", WaitingInCache: true,
				Since: ago(time.Duration(i) * time.Second),
			})
		}
	}
	s.Workers = append(s.Workers, podworkers.WorkerState{
		UID: "x", Name: "default/old", Step: "terminating", Busy: true, Since: ago(239 * time.Second),
	})
	return LoopView{Now: now, Snapshot: s, Log: []string{
		"I0301 12:30:40.000001    4242 loop.go:161] \"SyncLoop ADD\"\n", "E0301 \"\x1b[31mError\"\n",
	}}
}

// stories are views of an incident that was recorded at 15x speed, by the step in which it is.
func stories(t *testing.T) map[string]LoopView {
	t.Helper()
	var doc ReproductionReport
	load(t, "testdata/reproduction.json", &doc)
	views := map[string]LoopView{}
	for name, last := range map[string]reproduce.What{"2-fault": reproduce.PodDied, "5-verdict": reproduce.CleanedUp} {
		v := hung(6)
		v.Story = &Story{Speed: doc.Speed}
		v.Story.Scenario, _ = reproduce.Find(doc.Scenario)
		end := slices.IndexFunc(doc.Events, func(e reproduce.Event) bool { return e.What == last })
		v.Story.Events = slices.Clone(doc.Events[:end+1])
		shift := v.Now.Sub(v.Story.Events[end].At.Add(time.Second)) // drawn a second later
		for i := range v.Story.Events {
			v.Story.Events[i].At = v.Story.Events[i].At.Add(shift)
		}
		if last == reproduce.CleanedUp {
			v.Story.Report = &doc
		}
		views[name] = v
	}
	return views
}

// TestDraw draws each view on a terminal of 80 columns and 24 lines, in colour, and in any size: no line may reach the
// last column or be below the screen.
func TestDraw(t *testing.T) {
	views := stories(t)
	views["syncloop"] = hung(2)
	for name, v := range views {
		t.Run(name, func(t *testing.T) {
			golden(t, "loop-"+name, strings.Join(v.Draw(80, 24, Options{}), "\n")+"\n")
		})
	}
	views["hung"], views["empty"] = hung(30), LoopView{}
	for name, v := range views {
		for width := 2; width < 200; width += 13 {
			for height := 1; height < 60; height += 7 {
				lines := v.Draw(width, height, Options{})
				long := func(line string) bool { return columns(line) >= width }
				if len(lines) > height || slices.ContainsFunc(lines, long) {
					t.Fatalf("%s does not fit %dx%d:\n%s", name, width, height, strings.Join(lines, "\n"))
				}
			}
		}
	}
}

// A terminal records what is written to it.
type terminal struct {
	mu     sync.Mutex
	writes []string
	block  chan struct{} // when not nil, writes wait for it
}

func (t *terminal) Write(b []byte) (int, error) {
	if t.block != nil {
		<-t.block
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, string(b))
	return len(b), nil
}

func (t *terminal) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.writes...)
}

func TestProgressLine(t *testing.T) {
	clean := gc.Progress{Total: 2000, Removed: 990, Skipped: 10, Failed: 1, TimeLeft: 10 * time.Second}
	for want, show := range map[string]func(p *Progress){
		"| waiting for shop/web-0 app: status calls 99/100": func(p *Progress) {
			stuck := plegbench.Inspection{Name: "app", Pod: crictl.Pod{Namespace: "shop", Name: "web-0"}}
			p.Update(plegbench.Progress{Phase: "inspect", Done: 99, Total: 100, Waiting: &stuck})
		},
		"| removing 1,001/2,000, 1 failed, 10s left": func(p *Progress) { p.Removing(clean) },
		`| removing 0/9, paused: slow\x1b`: func(p *Progress) {
			p.Removing(gc.Progress{Total: 9, Paused: "slow\x1b"})
		},
		"| reading x.journal, 333 MiB of 666 MiB, 12 found": func(p *Progress) {
			p.Reading("/var/log/x.journal", 333<<20, 666<<20, 12)
		},
	} {
		p := NewProgress(io.Discard, false, 80, false)
		show(p)
		testkit.Equal(t, "progress", want, p.line(0))
	}
}

// onTerminal runs a test in fake time with a progress line on a terminal of 40 columns.
func onTerminal(t *testing.T, name string, test func(t *testing.T, w *terminal, p *Progress)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w terminal
			test(t, &w, NewProgress(&w, true, 40, false))
		})
	})
}

func TestProgress(t *testing.T) {
	probe := plegbench.Progress{Phase: "probe"}
	onTerminal(t, "turns while everything hangs, and fits", func(t *testing.T, w *terminal, p *Progress) {
		p.Update(plegbench.Progress{Phase: "a phase\x1b[2J of a name that is far too long for it", Hung: 3})
		time.Sleep(2 * time.Second)
		p.Done()
		got := w.all()
		if len(got) < 4 || len(got) > 9 {
			t.Errorf("drawn %d times in two seconds: %q", len(got), got)
		}
		for _, s := range got {
			line := strings.TrimSuffix(strings.TrimPrefix(s, "\r"), "\x1b[K")
			if columns(line) > 39 || strings.Contains(line, "\x1b") {
				t.Errorf("a line of %d columns: %q", columns(line), line)
			}
		}
	})
	onTerminal(t, "from many goroutines, and nothing after Done", func(t *testing.T, w *terminal, p *Progress) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 200 {
					p.Update(plegbench.Progress{Phase: "relist", Done: j, Total: 200})
					p.Removing(gc.Progress{Removed: i * j})
					time.Sleep(3 * time.Millisecond)
				}
			})
		}
		time.Sleep(550 * time.Millisecond)
		p.Done()
		drawn := len(w.all())
		wg.Wait()
		time.Sleep(time.Second)
		if got := w.all(); drawn < 2 || len(got) != drawn || got[drawn-1] != "\r\x1b[K" {
			t.Errorf("drawn %d times, and after Done: %q", drawn, got[drawn:])
		}
	})
	onTerminal(t, "a terminal that is stopped", func(t *testing.T, w *terminal, p *Progress) {
		w.block = make(chan struct{})
		p.Update(probe)
		time.Sleep(time.Second)
		start := time.Now()
		p.Done()
		if got := time.Since(start); got != doneWithin {
			t.Errorf("Done took %s, want %s", got, doneWithin)
		}
		close(w.block)
	})
}
