package render

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// History prints the answer of kdiag history.
func History(w io.Writer, h *checks.History, o Options) error {
	return write(w, o, h, func(p *page) { p.history(h) }, o.brief().history(h))
}

// HistoryHTML writes a history as one page of HTML that needs nothing else.
func HistoryHTML(w io.Writer, h *checks.History) error {
	return writePage(w, h.Header, func(page *htmlPage) {
		d := historyOf(h, page, page.cleaner, true)
		d.top()
		d.body(fold{unwrapped, unwrapped, unwrapped})
	})
}

// history prints a history on one screen, or with all details.
func (p *page) history(h *checks.History) {
	d, begin := historyOf(h, p, p.cleaner, p.details), p.rows
	if !p.details {
		d.room = max(p.wrap-2-columns(d.stamp(&h.To))-2-len("confirmed")-2, leastSummary)
	}
	d.top()
	p.fit(begin, func(f fold) {
		d.body(f)
		if p.details {
			return
		}
		rest := []string{p.rerun}
		if d.main != nil {
			rest = append(rest, "kdiag explain "+p.prose(d.main.Cause))
		}
		p.blank()
		p.moreOf(rest)
	})
}

// A historyDoc is the answer of kdiag history on its way to a view.
type historyDoc struct {
	storyView
	cleaner
	calendar
	*checks.History

	full   bool             // all incidents, not only the main one
	room   int              // columns for an event
	main   *checks.Incident // that the headline is about: the last critical one, else the last; nil without any
	spells []spell
}

func historyOf(h *checks.History, v storyView, c cleaner, full bool) *historyDoc {
	d := &historyDoc{v, c, newCalendar(h.From.Location(), h.From, h.To), h, full, unwrapped, nil, spellsOf(h)}
	for i := range h.Incidents {
		if d.main == nil || h.Incidents[i].Severity == checks.Critical || d.main.Severity != checks.Critical {
			d.main = &h.Incidents[i]
		}
	}
	return d
}

// A spell is a time in which a cause was there.
type spell struct {
	checks.Transition // that it began with
	to                time.Time
	open              bool
}

// spellsOf returns the spells of all causes, also of roots that began before the first record.
func spellsOf(h *checks.History) (all []spell) {
	for _, i := range h.Incidents {
		if i.From.Before(h.From) {
			all = append(all, spell{checks.Transition{
				At: i.From, Incident: i.Began, Cause: i.Cause, Severity: i.Severity, Summary: i.Summary,
			}, h.To, true})
		}
	}
	for _, t := range h.Transitions {
		n := slices.IndexFunc(all, func(s spell) bool { return s.open && s.Cause == t.Cause })
		switch {
		case t.To == checks.CauseClear && n >= 0:
			all[n].to, all[n].open = t.At, false
		case t.To != checks.CauseClear && n < 0:
			all = append(all, spell{t, h.To, true})
		case t.From == t.To:
			all[n].Severity = t.Severity
		}
	}
	return all
}

// state is in a word how the history ends.
func (d *historyDoc) state() span {
	word := d.verdict(d.Status)
	if d.main != nil && !d.main.Open && d.Status == checks.Healthy {
		word.text = checks.LogRecovered
	}
	return word
}

// top writes the headline: what happened, from when to when, what hung first, and how long relists take else.
func (d *historyDoc) top() {
	what := "nothing found from " + d.calendar.full(d.From, d.To) + " (" + lasted(d.From, d.To) + ")"
	if i := d.main; i != nil {
		what = d.prose(i.Cause) + " from " + d.calendar.full(i.From, i.To) + " (" + lasted(i.From, i.To) + ")"
		if i.Open {
			what += ", not over at the last record"
		}
		if i.Hung != nil {
			what += "; first hung call: " + d.first(i)
		}
		if n := len(d.Incidents) - 1; n > 0 {
			what += "; and " + units.Count(n, "other incident")
		}
	}
	var well []float64
	for _, s := range d.Samples {
		if v := took(s); v != nil && s.Status == checks.Healthy {
			well = append(well, *v)
		}
	}
	if slices.Sort(well); len(well) > 0 {
		what += "; usual relist " + units.Seconds(well[len(well)/2])
	}
	d.headline(d.state(), d.Host, what)
}

func lasted(from, to time.Time) string { return units.Duration(to.Sub(from)) }

// took is how long a relist takes by a look; nil where that was not measured.
func took(s checks.LookSample) *float64 { return cmp.Or(s.ProjectedSeconds, s.ListSeconds) }

// first names what hung first: payments/ledger-db-0 ledger, else the call; else it is the cause's summary.
func (d *historyDoc) first(i *checks.Incident) string {
	if i.Hung == nil {
		return d.prose(i.Summary)
	}
	return d.prose(cmp.Or(i.Hung.Name, i.Hung.Object, i.Hung.Method))
}

// body writes the pictures, the transitions, the gaps and the captures.
func (d *historyDoc) body(f fold) {
	var begin, end time.Time
	if d.main != nil {
		begin, end = d.main.Began, d.main.To
	}
	pictures := zoomed(d.From, d.To, begin, end, d.timeline)
	most := f.supports + f.steps - 1
	switch {
	case d.full:
	case most > 2:
		pictures = pictures[len(pictures)-1:]
	default: // of the folds the last: there is no room for it
		pictures, most = nil, 10
	}
	scale := " (relist " + d.sign("level0").text + " 10ms to " + d.sign("level7").text + " 10s)"
	for i, t := range pictures {
		d.heading([]string{"Timeline", "Zoom"}[i], plain(d.calendar.full(t.from, t.to)+scale))
		d.picture(t, d.calendar)
	}
	d.happened(most)
	d.list("Missing", plain("?"), d.Problems, f.supports)
	all, shown := len(d.NextSteps), min(len(d.NextSteps), f.others)
	if all > 0 {
		count := units.Count(all, "archive")
		if shown < all {
			count = "the newest of " + count
		}
		d.heading("Captures", plain(count))
	}
	for n, s := range d.NextSteps[:shown] {
		d.step(n+1, s)
	}
}

// An event is a line of what happened.
type event struct {
	rank int // events of the highest rank are left out first, of rank 0 never
	at   time.Time
	what span
	text string
}

// happened lists what happened, by time.
func (d *historyDoc) happened(most int) {
	events := d.events()
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	t, all := table{indent: 2, align: "lll"}, len(events)
	for rank := 3; rank > 0; rank-- {
		for n := len(events) - 1; n >= 0 && len(events) > most; n-- {
			if events[n].rank == rank {
				events = slices.Delete(events, n, n+1)
			}
		}
	}
	for _, e := range events {
		text := briefLine{d.cleaner, d.room}.cut(d.prose(e.text))
		t.rows = append(t.rows, []span{plain(d.stamp(&e.at)), e.what, plain(text)})
	}
	d.section("What happened", t, all)
}

func (d *historyDoc) events() (all []event) {
	add := func(rank int, at time.Time, what string, as ink, text string) {
		all = append(all, event{rank, at, span{what, as}, text})
	}
	for _, i := range d.Incidents {
		if i.Hung != nil {
			add(2, i.Hung.Since, "hung", bad, "first: "+i.Hung.Method+" "+cmp.Or(i.Hung.Name, i.Hung.Object))
		}
	}
	for _, s := range d.spells {
		rank, text := 1, s.Cause
		if d.main != nil && s.Cause == d.main.Cause && s.Incident.Equal(d.main.Began) {
			rank = 0
		}
		if !s.open {
			after := lasted(s.At, s.to)
			add(3, s.to, "gone", good, s.Cause+", after "+after)
			text += " (" + after + ")"
		}
		if s.CausedBy != "" {
			text += ", because of " + s.CausedBy
		}
		add(rank, s.At, "onset", severityInk(s.Severity), text+": "+s.Summary)
	}
	for _, t := range d.Transitions {
		switch {
		case t.From == t.To:
			add(2, t.At, "critical", severityInk(t.Severity), t.Cause+": "+t.Summary)
		case t.From == checks.CauseOnset && t.To == checks.CauseConfirmed:
			add(3, t.Noticed, "confirmed", severityInk(t.Severity), t.Cause)
		}
	}
	for _, c := range d.Captures {
		if c.Error != "" {
			add(2, c.At, "capture", warn, c.Cause+": "+c.Error)
		} else {
			add(3, c.At, "capture", info, c.Cause+", "+units.Size(c.Bytes))
		}
	}
	for _, g := range d.Gaps {
		text := g.Why
		switch long := g.To.Sub(g.From); {
		case long < 0:
			text += " by " + units.Duration(-long)
		case long > 0:
			text += "; no records for " + units.Duration(long)
		}
		if g.Restarted {
			add(0, g.From, "restart", warn, text)
		} else {
			add(2, g.From, "gap", unknown, text)
		}
	}
	return all
}

// history puts a history into one line.
func (c cleaner) history(h *checks.History) string {
	d := historyOf(h, nil, c, false)
	i := d.main
	if i == nil {
		return d.state().text + " for " + lasted(h.From, h.To) + " until " + d.short(h.To)
	}
	line := d.state().text + " " + c.prose(i.Cause) + ", " + d.short(i.From) + " for " + lasted(i.From, i.To)
	return line + ", " + d.first(i)
}

// levels is how many heights a sparkline has.
const levels = 8

// levelLimits are the longest relists of the levels but the highest, in seconds.
func levelLimits() []float64 { return []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10} }

// historySigns are the signs of a history: a hung call hides a slow look, which hides a quicker one.
func historySigns() []sign {
	all := []sign{
		{"capture", '■', 'C', info, "capture", 0},
		{"gap", '·', '.', unknown, "no records", 1},
		{"hung", '×', 'X', bad, "call hangs", 0},
		{"critical", '█', '#', bad, "critical", 0},
		{"warned", '▓', '%', warn, "warning", 0},
		{"level7", '█', '@', info, "", levels},
	}
	for i := levels - 2; i >= 0; i-- {
		char, ascii := []rune("▁▂▃▄▅▆▇")[i], rune("_.:-=+*"[i])
		all = append(all, sign{"level" + units.Number(i), char, ascii, info, "", i + 1})
	}
	return all
}

// laneRelist is the lane of the sparkline; each other lane has a cause.
const laneRelist = "relist"

// timeline returns the picture of a part of a history: how long relists took, and when each cause was there.
func (d *historyDoc) timeline(from, to time.Time) timeline {
	t := timeline{from: from, to: to, logFrom: &d.From, logTo: &d.To, lanes: []string{laneRelist}, marked: true}
	run, worst := mark{}, 0.0 // looks that found the same, and the longest relist of theirs
	for i, s := range d.Samples {
		name, v := "error", took(s)
		if v != nil {
			n, _ := slices.BinarySearch(levelLimits(), *v)
			name = "level" + units.Number(n)
		}
		if len(s.Hung) > 0 {
			name, v = "hung", nil
		}
		if name != run.sign.name {
			t.add(run)
			run, worst = mark{lane: laneRelist, sign: signOf(name), from: s.At, broad: true}, 0
			run.title = run.sign.text
		}
		if v != nil && *v >= worst {
			worst, run.title = *v, "relist "+units.Seconds(*v)
		}
		run.to = d.Samples[min(i+1, len(d.Samples)-1)].At
	}
	t.add(run)
	laneOf := func(cause string) string { return middle(d.prose(cause), mostName) }
	for _, s := range d.spells {
		lane, name := laneOf(s.Cause), "critical"
		if s.Severity != checks.Critical {
			name = "warned"
		}
		if !slices.Contains(t.lanes, lane) && (d.full || d.main != nil && s.Cause == d.main.Cause) {
			t.lanes = append(t.lanes, lane)
		}
		t.add(mark{lane: lane, sign: signOf(name), from: s.At, to: s.to, title: s.Summary, broad: true})
	}
	for _, c := range d.Captures {
		t.add(mark{lane: laneOf(c.Cause), sign: signOf("capture"), from: c.At, to: c.At, title: c.Path})
	}
	for _, g := range d.Gaps {
		t.add(mark{lane: laneRelist, sign: signOf("gap"), from: g.From, to: g.To, title: g.Why, broad: true})
		if g.Restarted {
			t.add(mark{lane: laneRelist, sign: signOf("restart"), from: g.To, to: g.To, title: g.Why})
		}
	}
	t.rank()
	return t
}
