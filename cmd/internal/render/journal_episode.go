package render

import (
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
)

// What text shows of one incident. JSON has all of it.
const (
	shownCulprits = 3
	shownCauses   = 3
	shownStalls   = 5
	shownEvents   = 14
	episodeLabel  = 9 // columns
)

// eventedThreshold is how old a relist may be where the feature gate EventedPLEG is on, in seconds; else it is 180
// (kubelet.go: eventedPlegRelistThreshold, genericPlegRelistThreshold).
const eventedThreshold = 600

// incident writes what is known of one incident: how bad, since when, what happened, who and why.
// told holds what the incidents before it could not see either.
func (p *page) incident(r *journal.Report, e journal.Episode, c calendar, told map[string]bool) {
	for _, f := range p.incidentFacts(r, e, c) {
		p.pair(f.Name, episodeLabel, f.Text)
	}
	for n, who := range e.Culprits {
		if n == shownCulprits {
			p.pair("", episodeLabel, "and "+count(len(e.Culprits)-n)+" more; -o json names them")
			break
		}
		label := ""
		if n == 0 {
			label = "culprits"
		}
		p.pair(label, episodeLabel, p.journalCulprit(who))
	}
	p.course(r, e, c)
	p.journalCauses(e.Causes, told)
}

// A fact is something known, with a label.
type fact struct{ Name, Text string }

// incidentFacts returns what is known of an incident itself, each with a label. What does not apply has no text.
func (p *page) incidentFacts(r *journal.Report, e journal.Episode, c calendar) []fact {
	return []fact{
		{"worst age", worstLine(e)},
		{"since", sinceLine(e, c)},
		{"ended", endedLine(e, r, c)},
		{"relists", stallsLine(e, c)},
		{"flapping", flapsLine(e)},
		{"also said", p.reasonsLine(e)},
		{"restarts", p.restartsLine(e, c)},
	}
}

// incidentWhen says from when to when the records of an incident go, how long that is, and how many they are.
func incidentWhen(e journal.Episode, c calendar) string {
	when := "without a time"
	if e.Start != nil {
		when = c.span(e.Start, e.End)
	}
	if e.Seconds > 0 {
		when += ", " + duration(e.Seconds)
	}
	return when + ", " + plural(e.Lines, "record")
}

func (p *page) incidentHeading(e journal.Episode, n, of int, c calendar) {
	title := "Incident"
	if of > 1 {
		title += " #" + count(n) + " of " + count(of)
	}
	state, style := "recovered", &p.ink.good
	if !e.Recovered {
		state, style = "no recovery seen", &p.ink.bad
	}
	p.blank()
	lead := []span{{title, &p.ink.bold}, plain("  "), {state, style}, plain("  ")}
	p.flow(lead, 2, plain(incidentWhen(e, c)))
}

func worstLine(e journal.Episode) string {
	if e.Kind == journal.Failing {
		return ""
	}
	if e.MaxLastSeenSeconds <= 0 {
		return "no record states one"
	}
	text := duration(e.MaxLastSeenSeconds) + " since PLEG was last seen active"
	if e.ThresholdSeconds > 0 {
		text += "; from " + duration(e.ThresholdSeconds) + " on it is not healthy"
		if e.ThresholdSeconds >= eventedThreshold {
			text += " (EventedPLEG is on)"
		}
	}
	return text
}

// sinceLine dates the beginning: the trouble is older than the first record that tells of it. What the age in a record
// counts from is the beginning of the last relist that was good; whether the next hung or failed is another question.
func sinceLine(e journal.Episode, c calendar) string {
	if e.Anchor == nil || e.Start == nil {
		return ""
	}
	text := c.stamp(e.Anchor) + ", when the last good relist began"
	if early := e.Start.Sub(*e.Anchor); early >= time.Second {
		text += "; " + duration(early.Seconds()) + " before the first record"
	}
	return text
}

func endedLine(e journal.Episode, r *journal.Report, c calendar) string {
	if !e.Recovered {
		text := "not seen"
		if e.End == nil {
			return text
		}
		if r.To != nil && r.To.Sub(*e.End) >= 10*time.Second {
			return text + ": the last record is of " + c.stamp(e.End) + ", and the log goes on to " + c.stamp(r.To)
		}
		return text + ": the log ends"
	}
	text := "recovered"
	if e.RecoveredAt != nil {
		text += " at " + c.stamp(e.RecoveredAt)
	}
	if e.RecoveredBy != "" {
		text += ", as " + recoveryWords(r, e.RecoveredBy) + " shows"
	}
	if from, to, ok := trouble(e); ok && e.Anchor != nil && e.RecoveredAt != nil {
		text += "; in all " + duration(to.Sub(from).Seconds()) + " without a good relist"
		if len(e.Stalls) > 1 {
			text = strings.TrimSuffix(text, " without a good relist") + " of trouble"
		}
	}
	return text
}

// recoveryWords says in words what a signature is, as far as the report counts it.
func recoveryWords(r *journal.Report, code string) string {
	clean := cleaner{}
	if code == "PLEGNotHealthy" {
		return "the age in the next such record"
	}
	for _, s := range r.Signatures {
		if s.Code == code && s.Title != "" {
			return clean.prose(code + " (" + s.Title + ")")
		}
	}
	if code == "SyncLoopActive" { // too frequent to be counted
		return "the next record of the sync loop"
	}
	return clean.prose(code)
}

// stallsLine is about relists that finish, but take too long: each has a beginning of its own.
func stallsLine(e journal.Episode, c calendar) string {
	if len(e.Stalls) < 2 {
		return ""
	}
	text := count(len(e.Stalls)) + " that took too long: they finish, but slowly; begun at "
	var parts []string
	for i, s := range e.Stalls {
		if i == shownStalls {
			parts = append(parts, "and "+count(len(e.Stalls)-i)+" more")
			break
		}
		parts = append(parts, c.stamp(&s.Anchor)+" (up to "+duration(s.MaxLastSeenSeconds)+")")
	}
	return text + strings.Join(parts, ", ")
}

func flapsLine(e journal.Episode) string {
	if e.Flaps == 0 {
		return ""
	}
	return "number " + count(e.Flaps) + " of a series that returns at a regular interval"
}

func (p *page) reasonsLine(e journal.Episode) string {
	var parts []string
	for _, s := range e.Reasons {
		parts = append(parts, p.prose(s))
	}
	return room{p.cleaner, maxReasonLen}.cut(strings.Join(parts, "; "))
}

// journalCulprit names an object, and how often failing calls named it.
func (p *page) journalCulprit(who journal.Culprit) string {
	s := checks.Subject{
		Kind: who.Kind, ID: who.ID, Name: who.Name, Namespace: who.Namespace, Pod: who.Pod, PodUID: who.PodUID,
	}
	text := p.subject(s)
	if ids := p.subjectIDs(s); ids != "" && !strings.Contains(text, shortID(p.prose(s.ID))) {
		text += ", " + ids
	}
	text += ", in " + plural(who.Records, "record")
	if who.Example != "" {
		text += " (" + p.prose(who.Example) + ")"
	}
	return text
}

// course lists what happened around an episode, by time.
func (p *page) course(r *journal.Report, e journal.Episode, c calendar) {
	events := eventsAround(r, e)
	if len(events) == 0 {
		return
	}
	p.blank()
	p.put(plain("  "), span{"What happened", &p.ink.bold})
	rows := make([][]span, 0, len(events))
	for _, ev := range thin(events, shownEvents) {
		rows = append(rows, []span{
			plain(c.stamp(ev.At)),
			plain(p.prose(ev.Lane)),
			{string(newSceneGlyphs(p.ascii).mark(ev.Marker)), p.markStyle(ev.Marker)},
			plain(p.eventLine(ev, c)),
		})
	}
	p.table(table{indent: 2, align: "llll", rows: rows})
	if more := len(events) - len(rows); more > 0 {
		p.flow([]span{plain("  ")}, 2, plain("and "+count(more)+" more; -o json has all"))
	}
}

// mark returns the sign of a kind of mark; a space for what has none.
func (g sceneGlyphs) mark(kind string) rune {
	if r, ok := g.marks[kind]; ok {
		return r
	}
	return ' '
}

func (p *page) eventLine(e journal.Event, c calendar) string {
	text := shortIDs(p.prose(eventWords(e)))
	if e.Count > 1 {
		text += ", " + count(int(min(e.Count, math.MaxInt32))) + " records"
		if e.Until != nil && e.At != nil && c.stamp(e.Until) != c.stamp(e.At) {
			text += " to " + c.stamp(e.Until)
		}
	}
	return text
}

// eventsAround returns the events from two minutes before an episode's trouble to two minutes after it.
func eventsAround(r *journal.Report, e journal.Episode) []journal.Event {
	from, to, ok := trouble(e)
	if !ok {
		return nil
	}
	const around = 2 * time.Minute
	var some []journal.Event
	for _, ev := range r.Events {
		if ev.At == nil || ev.At.After(to.Add(around)) {
			continue
		}
		if last := cmpOr(ev.Until, ev.At); !last.Before(from.Add(-around)) {
			some = append(some, ev)
		}
	}
	return gather(some)
}

// gather makes one event of all errors and warnings of a kind: when they began, how many they are, when they ended. What
// starts, stops or recovers is told each time.
func gather(events []journal.Event) []journal.Event {
	type kind struct{ lane, code, marker, what string }
	var some []journal.Event
	at := map[kind]int{}
	for _, e := range events {
		k := kind{e.Lane, e.Code, e.Marker, e.What}
		i, known := at[k]
		if !known || e.Marker != "error" && e.Marker != "warning" {
			at[k] = len(some)
			some = append(some, e)
			continue
		}
		first := &some[i]
		first.Count += e.Count
		if last := cmpOr(e.Until, e.At); last.After(*cmpOr(first.Until, first.At)) {
			first.Until = last
		}
		if first.Subject != e.Subject {
			first.Subject = ""
		}
	}
	return some
}

// cmpOr returns the first of two times that is there.
func cmpOr(a, b *time.Time) *time.Time {
	if a != nil {
		return a
	}
	return b
}

// thin reduces events to at most so many: what is only a warning goes first, then the later of the others.
func thin(events []journal.Event, most int) []journal.Event {
	if len(events) <= most {
		return events
	}
	warnings := 0
	for _, e := range events {
		if e.Marker == "warning" {
			warnings++
		}
	}
	kept, room := make([]journal.Event, 0, most), max(0, most-(len(events)-warnings))
	for _, e := range events {
		if e.Marker == "warning" {
			if room == 0 {
				continue
			}
			room--
		}
		if len(kept) < most {
			kept = append(kept, e)
		}
	}
	return kept
}

// journalCauses writes the causes of an episode: the first with all evidence, the others in one line.
func (p *page) journalCauses(causes []journal.Cause, told map[string]bool) {
	if len(causes) == 0 {
		return
	}
	p.blank()
	for i, cause := range causes {
		if i == shownCauses {
			p.flow([]span{plain("  ")}, 4, plain("and "+count(len(causes)-i)+" less likely; -o json has them"))
			return
		}
		lead := []span{plain("  "), {p.prose(cause.Code), &p.ink.bold}, plain("  ")}
		p.flow(lead, 4, plain(confidence(cause.Confidence)+": "+p.prose(cause.Summary)))
		switch e := cause.Evidence; {
		case i == 0:
			p.indented(e, told)
		case cause.Confidence >= worthEvidence && len(e.For) > 0:
			p.item(4, plain("+"), shortIDs(p.prose(e.For[0])))
		}
	}
}

// worthEvidence is the confidence from which a cause that is not the first shows what it rests on most.
const worthEvidence = 0.5

// hexID matches the ids of containers and sandboxes.
var hexID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// shortIDs shortens ids inside a sentence as far as the tools of the runtimes do.
func shortIDs(s string) string { return hexID.ReplaceAllStringFunc(s, shortID) }

// indented writes evidence below a cause that is itself indented. What could not be seen is one line: it limits the
// answer, and is none.
func (p *page) indented(e journal.Evidence, told map[string]bool) {
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"+", e.For}, {"-", e.Against}, {"?", missingLine(e, told)}} {
		for _, s := range side.lines {
			p.item(4, plain(side.sign), shortIDs(p.prose(s)))
		}
	}
}

// missingLine puts into one line what could not be seen, without what was told already.
func missingLine(e journal.Evidence, told map[string]bool) []string {
	var fresh []string
	for _, s := range e.Missing {
		if !told[s] {
			told[s] = true
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return []string{strings.Join(fresh, "; ")}
}

// startups writes the episodes that are no trouble in one line each.
func (p *page) startups(all []journal.Episode, c calendar) {
	if len(all) == 0 {
		return
	}
	p.heading("Kubelet starts: " + count(startsIn(all)) + ", no incidents")
	for i, line := range p.startupLines(all, c) {
		if i == fullIncidents {
			p.flow([]span{plain("  ")}, 2, plain("and "+count(len(all)-i)+" more; -o json has all"))
			return
		}
		p.item(2, plain("-"), line)
	}
}

// startsIn counts the starts of the kubelet in episodes of its start-up: of one that does not stay up, an episode holds
// several.
func startsIn(all []journal.Episode) int {
	n := 0
	for _, e := range all {
		n++
		for _, r := range e.Restarts {
			if r.Code == "KubeletStarted" {
				n++
			}
		}
	}
	return n
}

func (p *page) startupLines(all []journal.Episode, c calendar) []string {
	lines := make([]string, 0, len(all))
	for _, e := range all {
		text := c.span(e.Start, e.End)
		if text == "" {
			text = "without a time"
		}
		if n := startsIn([]journal.Episode{e}); n > 1 {
			text += ", " + plural(n, "start")
		}
		text += ", " + plural(e.Lines, "record") + " before the first relist"
		if e.RecoveredAt != nil {
			text += "; ready at " + c.stamp(e.RecoveredAt)
		}
		lines = append(lines, text)
	}
	return lines
}
