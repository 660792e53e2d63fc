package render

import (
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// JournalReport prints the answer of kdiag journal: text on one screen, or with all details.
func JournalReport(w io.Writer, r *journal.Report, o Options) error {
	return write(w, o, r, func(p *page) {
		if o.Details {
			textOf(p, r).write()
		} else {
			p.journal(r)
		}
	}, o.brief().journal(r))
}

// journal prints a journal's answer on one screen. The picture is left to the details where there is no room for it.
func (p *page) journal(r *journal.Report) {
	j := textOf(p, r)
	j.top()
	j.rows = 2
	start := p.out.Len()
	for _, pictures := range [][]timeline{timelinesOf(r), nil} {
		p.out.Truncate(start)
		if last := len(pictures) - 1; last >= 0 {
			t := pictures[last]
			t.marked = true
			j.heading("Timeline", plain(j.calendar.full(t.from, t.to)))
			j.picture(t, j.calendar)
		}
		j.outline()
		p.blank()
		p.text(0, "More: --details, --html FILE, -o json")
		if bytes.Count(p.out.Bytes(), []byte("\n")) <= screen {
			return
		}
	}
}

// outline writes the evidence for the likeliest cause, what was not read, and the next steps.
func (j *journalDoc) outline() {
	if e := j.Headline(); e != nil && len(e.Causes) > 0 {
		c := e.Causes[0]
		j.heading("Evidence", plain(certainty(c.Confidence)))
		j.list("", plain("+"), c.Evidence.For[:min(len(c.Evidence.For), 3)], 3)
		j.list("", plain("-"), c.Evidence.Against[:min(len(c.Evidence.Against), 1)], 1)
	}
	j.goroutines(1)
	j.notRead()
	notes := only(j.Notes, func(n string) bool { // not how stamps were understood
		return !strings.Contains(n, ": year ") && !strings.Contains(n, ": time zone ")
	})
	for _, n := range notes[max(0, len(notes)-j.rows):] {
		j.heading("Note", plain(j.prose(n)))
	}
	j.next()
}

// goroutines lists what dumps in the logs show.
func (j *journalDoc) goroutines(most int) {
	j.list("Goroutines that a daemon wrote into its log", plain("-"), j.Goroutines, most)
}

// notRead lists what was not read, unless the headline has it.
func (j *journalDoc) notRead() {
	if j.Verdict != checks.LogUnknown || len(j.Sources) != 1 {
		j.list("Not read", plain("?"), j.unreadLines(), j.rows)
	}
}

// next writes the next steps.
func (j *journalDoc) next() {
	if len(j.NextSteps) > 0 {
		j.heading("Next", plain("(these only read)"))
	}
	for i, s := range j.NextSteps {
		j.step(i+1, checks.NextStep{Why: s.Why, Command: s.Command})
	}
}

// JournalHeadline prints only the first lines of a report in text: how it is now.
func JournalHeadline(w io.Writer, r *journal.Report, o Options) error {
	o.Format = Text
	return write(w, o, nil, func(p *page) { textOf(p, r).top() }, "")
}

// A storyView shows the parts of what happened over time: a page of text, or of HTML.
type storyView interface {
	headline(word span, host string, sentences ...string)
	heading(title string, more ...span)
	pair(label, text string)
	list(title string, sign span, lines []string, most int)
	section(title string, t table, all int)
	picture(t timeline, c calendar)
	step(n int, s checks.NextStep)
	sign(name string) span
}

// A journalDoc is the answer of kdiag journal on its way to a view.
type journalDoc struct {
	storyView
	cleaner
	calendar
	*journal.Report

	full   int // the most incidents that are shown in full
	events int // the most events of an incident
	rows   int // the most lines of a list

	examples bool // show the first record of each signature
}

// textOf returns the answer as text. JSON and the page that --html writes have more of it, also with details: lists of
// a log may be long.
func textOf(p *page, r *journal.Report) *journalDoc {
	p.details = false
	return &journalDoc{p, p.cleaner, calendarOf(r), r, 3, 14, 5, false}
}

// write writes all.
func (j *journalDoc) write() {
	j.top()
	for i, t := range timelinesOf(j.Report) {
		j.heading([]string{"Timeline", "Zoom"}[i], plain(j.calendar.full(t.from, t.to)))
		j.picture(t, j.calendar)
	}
	if j.Failing != nil {
		j.incident("Failing", *j.Failing, true)
	}
	j.incidents()
	starts := j.ofKind(journal.Startup)
	var lines []string
	for _, e := range starts {
		line := j.when(e) + " before the first relist"
		if e.StartedBy != "" {
			line += "; " + j.prose(e.StartedBy)
		}
		lines = append(lines, line)
	}
	j.list("Kubelet starts: "+units.Number(startsIn(starts))+", no incidents", plain("-"), lines, j.rows)
	j.goroutines(j.rows)
	j.notRead()
	j.signatures()
	j.list("Read: "+units.Count(j.Lines, "record")+", "+units.Size(j.Bytes), plain("-"), j.sources(), j.rows)
	notes := j.Notes
	if len(j.Sources) == 1 {
		notes = each(notes, func(n string) string { return strings.TrimPrefix(n, j.Sources[0].Name+": ") })
	}
	j.list("Notes", plain("-"), notes, j.rows)
	j.next()
}

// top writes the first lines: how it is, what happened, and why.
func (j *journalDoc) top() {
	sentences := []string{j.summary()}
	if e := j.Headline(); e != nil && len(e.Causes) > 0 {
		c := e.Causes[0]
		sentences = append(sentences, j.prose(c.Code+": "+c.Summary))
	}
	word := span{j.Verdict, verdictInk(checks.Verdict(j.Status))}
	if j.Verdict == checks.LogBroken {
		word.text += ", but"
	}
	j.headline(word, j.Host, sentences...)
	j.list("", j.sign("error"), each(j.Findings, j.finding), j.rows)
}

// ofKind returns the episodes of a kind.
func (j *journalDoc) ofKind(kind string) []journal.Episode {
	return only(j.Episodes, func(e journal.Episode) bool { return e.Kind == kind })
}

// startsIn counts the starts of the kubelet in episodes of its start-up: of one that does not stay up, an episode holds
// several.
func startsIn(all []journal.Episode) int {
	n := len(all)
	for _, e := range all {
		n += len(only(e.Restarts, func(r journal.Event) bool { return r.Code == "KubeletStarted" }))
	}
	return n
}

// incidents writes few incidents in full; of many a list, and in full the one that matters most.
func (j *journalDoc) incidents() {
	const listed = 20
	all := j.Incidents()
	if len(all) > j.full {
		t := table{indent: 2, align: "rlrrll", head: []string{"", "from", "lasted", "worst age", "", "likely cause"}}
		for i, e := range all {
			cause := "-"
			if len(e.Causes) > 0 {
				cause = j.prose(e.Causes[0].Code)
			}
			t.add("#"+units.Number(i+1), j.stamp(e.Start), units.Seconds(e.Seconds), age(e), state(e).text, cause)
		}
		t.rows = t.rows[max(0, len(t.rows)-listed):]
		j.section("Incidents", t, len(all))
	}
	for i, e := range all {
		main := i == journal.MainIncident(all)
		if len(all) > j.full && !main {
			continue
		}
		title := "Incident"
		if len(all) > 1 {
			title += " #" + units.Number(i+1) + " of " + units.Number(len(all))
		}
		j.incident(title, e, main)
	}
}

// state reports in a word whether an incident has ended.
func state(e journal.Episode) span {
	if e.Recovered {
		return span{"recovered", good}
	}
	return span{"not over", bad}
}

// incident writes what is known of one incident: how bad, since when, what happened, who and why. What could not be
// seen is shown of the main one only: it is the same in all.
func (j *journalDoc) incident(title string, e journal.Episode, main bool) {
	j.heading(title, state(e), plain(j.when(e)))
	if e.MaxLastSeenSeconds > 0 {
		text := age(e) + " since PLEG was last seen active"
		if e.ThresholdSeconds > 0 {
			text += "; limit " + units.Seconds(e.ThresholdSeconds)
		}
		j.pair("worst age", text)
	}
	if e.Anchor != nil {
		j.pair("since", j.stamp(e.Anchor)+", when the last good relist began")
	}
	switch from, to, ok := e.Span(); {
	case e.RecoveredAt != nil:
		text := "recovered at " + j.stamp(e.RecoveredAt)
		if ok && e.Anchor != nil {
			text += "; in all " + units.Duration(to.Sub(from))
		}
		j.pair("ended", text)
	case e.End != nil && j.To != nil && !e.Recovered:
		j.pair("ended", "not over; last record "+j.stamp(e.End)+", end of the log "+j.stamp(j.To))
	}
	if n := len(e.Stalls); n > 1 {
		j.pair("relists", units.Number(n)+" took too long: they finish, but slowly")
	}
	j.pair("also reported", briefLine{j.cleaner, mostWords}.cut(j.prose(strings.Join(e.Reasons, "; "))))
	label := "culprits"
	for _, who := range e.Culprits[:min(len(e.Culprits), j.full)] {
		s := checks.Subject{
			Kind: who.Kind, ID: who.ID, Name: who.Name, Namespace: who.Namespace, Pod: who.Pod, PodUID: who.PodUID,
		}
		j.pair(label, j.subjectLine(s)+", in "+units.Count(who.Records, "record")+" ("+j.prose(who.Example)+")")
		label = ""
	}
	j.happened(e)
	j.causes(e.Causes, main)
}

// when returns from when to when the records of an episode go, how long that is, and how many they are.
func (j *journalDoc) when(e journal.Episode) string {
	when := "without a time"
	if e.Start != nil {
		when = j.span(e.Start, e.End)
	}
	if e.Seconds > 0 {
		when += ", " + units.Seconds(e.Seconds)
	}
	return when + ", " + units.Count(e.Lines, "record")
}

// happened lists what began from half a minute before an episode to half a minute after it, by time. Errors and
// warnings of a kind are one event: when they began, how many they are, when they ended.
func (j *journalDoc) happened(e journal.Episode) {
	const around = 30 * time.Second
	from, to, _ := e.Span()
	type kind struct{ lane, code, marker, what string }
	var events []journal.Event
	at := map[kind]int{}
	for _, ev := range j.Events {
		if ev.At == nil || ev.At.After(to.Add(around)) || ev.At.Before(from.Add(-around)) {
			continue
		}
		k := kind{ev.Lane, ev.Code, ev.Marker, ev.What}
		if i, known := at[k]; known && (ev.Marker == "error" || ev.Marker == "warning") {
			events[i].Join(ev)
			continue
		}
		at[k] = len(events)
		events = append(events, ev)
	}
	t := table{indent: 2, align: "llll"}
	for _, ev := range events[:min(len(events), j.events)] {
		t.rows = append(t.rows, []span{
			plain(j.stamp(ev.At)), plain(j.prose(ev.Lane)), j.sign(ev.Marker), plain(j.eventLine(ev)),
		})
	}
	j.section("What happened", t, len(events))
}

// causes writes the first cause of an episode with its evidence, and the others in one line.
func (j *journalDoc) causes(causes []journal.Cause, missing bool) {
	if len(causes) == 0 {
		return
	}
	c := causes[0]
	j.heading(j.prose(c.Code), plain(confidence(c.Confidence)+": "+j.prose(c.Summary)))
	j.list("", plain("+"), c.Evidence.For, j.rows)
	j.list("", plain("-"), c.Evidence.Against, j.rows)
	if missing {
		j.list("", plain("?"), c.Evidence.Missing, j.rows)
	}
	others := each(causes[1:], func(c journal.Cause) string { return j.prose(c.Code) + ", " + confidence(c.Confidence) })
	j.pair("or", strings.Join(others, "; "))
}

// unread returns the sources that were not read, or not to their end.
func unread(r *journal.Report) []journal.Source {
	return only(r.Sources, func(s journal.Source) bool { return s.Problem != "" })
}

// unreadLines lists what was not read, and where.
func (j *journalDoc) unreadLines() []string {
	var lines []string
	if j.Unparsed > 0 {
		lines = append(lines, units.Count(j.Unparsed, "record")+" in a form that kdiag does not know")
	}
	problem := func(s journal.Source) string { return s.Name + ": " + s.Problem }
	lines = append(lines, each(unread(j.Report), problem)...)
	for _, u := range j.Unreadable {
		where := units.Count(u.Bytes, "byte") + " at offset " + units.Number(u.Offset)
		lines = append(lines, u.Source+": "+where+": "+u.Why)
	}
	return lines
}

// signatures writes which records were recognised: how many, when, and what they mean.
func (j *journalDoc) signatures() {
	t := table{indent: 2, align: "lrll", head: []string{"", "records", "first to last", "means"}}
	for _, s := range j.Signatures {
		title := j.prose(s.Title)
		if j.examples {
			title += "; first record: " + j.prose(s.Example)
		}
		t.add(j.prose(s.Code), units.Number(s.Count), j.span(s.First, s.Last), title)
	}
	j.section("Signatures", t, len(t.rows))
}

// sources describes what was read.
func (j *journalDoc) sources() []string {
	var lines []string
	for _, s := range j.Sources {
		if s.Lines == 0 && s.Problem != "" {
			continue
		}
		form := strings.TrimSpace(s.Compressed + " " + s.Format)
		line := s.Name + ": " + form + ", " + units.Count(s.Lines, "record") + ", " + units.Size(s.Bytes)
		if when := j.span(s.From, s.To); when != "" {
			line += ", " + when
		}
		lines = append(lines, line)
	}
	return lines
}
