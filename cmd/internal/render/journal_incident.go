package render

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// What text shows of one incident. JSON has all of it.
const (
	shownCulprits = 3
	shownCauses   = 3
	shownStalls   = 5
	shownEvents   = 14
	incidentLabel = 9 // columns
)

// incident writes what is known of one incident: how bad, since when, what happened, who and why.
// told holds what the incidents before it could not see either.
func (p *page) incident(r *journal.Report, e journal.Episode, c calendar, told map[string]bool) {
	for _, f := range p.incidentFacts(r, e, c, shownCulprits) {
		p.pair(f.Name, incidentLabel, f.Text)
	}
	p.happened(r, e, c)
	p.journalCauses(e.Causes, told)
}

// A fact is something known, with a label.
type fact struct{ Name, Text string }

// incidentFacts returns what is known of an incident itself, each with a label, and so many culprits. What does not
// apply has no text.
func (p *page) incidentFacts(r *journal.Report, e journal.Episode, c calendar, culprits int) []fact {
	flaps := ""
	if e.Flaps > 0 {
		flaps = "number " + units.Number(e.Flaps) + " of a series that returns at a regular interval"
	}
	facts := []fact{
		{"worst age", worstLine(e)},
		{"since", sinceLine(e, c)},
		{"ended", p.endedLine(e, r, c)},
		{"relists", stallsLine(e, c)},
		{"flapping", flaps},
		{"also said", briefLine{p.cleaner, maxWords}.cut(p.prose(strings.Join(e.Reasons, "; ")))},
		{"restarts", p.restartsLine(e, c)},
	}
	for i, who := range e.Culprits {
		f := fact{"", p.journalCulprit(who)}
		if i == 0 {
			f.Name = "culprits"
		}
		if i == culprits {
			return append(facts, fact{"", "and " + units.Number(len(e.Culprits)-i) + " more; -o json names them"})
		}
		facts = append(facts, f)
	}
	return facts
}

// incidentWhen returns from when to when the records of an incident go, how long that is, and how many they are.
func incidentWhen(e journal.Episode, c calendar) string {
	when := "without a time"
	if e.Start != nil {
		when = c.span(e.Start, e.End)
	}
	if e.Seconds > 0 {
		when += ", " + units.Seconds(e.Seconds)
	}
	return when + ", " + units.Count(e.Lines, "record")
}

func worstLine(e journal.Episode) string {
	switch {
	case e.Kind == journal.Failing:
		return ""
	case e.MaxLastSeenSeconds <= 0:
		return "no record states one"
	}
	text := age(e) + " since PLEG was last seen active"
	if e.ThresholdSeconds > 0 {
		text += "; from " + units.Seconds(e.ThresholdSeconds) + " on it is not healthy"
	}
	if e.ThresholdSeconds >= 600 { // kubelet.go: eventedPlegRelistThreshold; else it is 180
		text += " (EventedPLEG is on)"
	}
	return text
}

// sinceLine dates the beginning: the incident is older than its first record. What the age in a record
// counts from is the beginning of the last relist that was good; whether the next hung or failed is another question.
func sinceLine(e journal.Episode, c calendar) string {
	if e.Anchor == nil || e.Start == nil {
		return ""
	}
	text := c.stamp(e.Anchor) + ", when the last good relist began"
	if early := e.Start.Sub(*e.Anchor); early >= time.Second {
		text += "; " + units.Duration(early) + " before the first record"
	}
	return text
}

func (p *page) endedLine(e journal.Episode, r *journal.Report, c calendar) string {
	switch {
	case !e.Recovered && e.End == nil:
		return "not seen"
	case !e.Recovered && r.To != nil && r.To.Sub(*e.End) >= 10*time.Second:
		return "not seen: the last record is of " + c.stamp(e.End) + ", and the log goes on to " + c.stamp(r.To)
	case !e.Recovered:
		return "not seen: the log ends"
	}
	text := "recovered"
	if e.RecoveredAt != nil {
		text += " at " + c.stamp(e.RecoveredAt)
	}
	switch e.RecoveredBy {
	case "":
	case "PLEGNotHealthy":
		text += ", as the age in the next such record shows"
	case "SyncLoopActive":
		text += ", as the next record of the sync loop shows"
	default:
		text += ", as " + p.prose(e.RecoveredBy) + " shows"
	}
	if from, to, ok := e.Span(); ok && e.Anchor != nil && e.RecoveredAt != nil {
		text += "; in all " + units.Duration(to.Sub(from))
		if len(e.Stalls) > 1 {
			return text + " of trouble"
		}
		text += " without a good relist"
	}
	return text
}

// stallsLine is about relists that finish, but take too long: each has a beginning of its own.
func stallsLine(e journal.Episode, c calendar) string {
	if len(e.Stalls) < 2 {
		return ""
	}
	var parts []string
	for i, s := range e.Stalls {
		if i == shownStalls {
			parts = append(parts, "and "+units.Number(len(e.Stalls)-i)+" more")
			break
		}
		parts = append(parts, c.stamp(&s.Anchor)+" (up to "+units.Seconds(s.MaxLastSeenSeconds)+")")
	}
	return units.Number(len(e.Stalls)) + " that took too long: they finish, but slowly; begun at " +
		strings.Join(parts, ", ")
}

// journalCulprit names an object, and how often failing calls named it.
func (p *page) journalCulprit(who journal.Culprit) string {
	s := checks.Subject{
		Kind: who.Kind, ID: who.ID, Name: who.Name, Namespace: who.Namespace, Pod: who.Pod,
		PodUID: who.PodUID,
	}
	text := p.subject(s)
	if ids := p.subjectIDs(s); ids != "" && !strings.Contains(text, shortID(p.prose(s.ID))) {
		text += ", " + ids
	}
	text += ", in " + units.Count(who.Records, "record")
	if who.Example != "" {
		text += " (" + p.prose(who.Example) + ")"
	}
	return text
}

// A restart is one end and the start after it, however many records are about them.
type restart struct {
	who   string
	how   string // how it ended; empty where no record says
	rank  int    // of how, the best is the highest
	at    *time.Time
	up    *time.Time
	last  time.Time // of its records
	words string    // shown as they are
}

// endWords says how an event ends a daemon, and how well it says so; nothing for an event that is a start.
func endWords(code string) (how string, rank int) {
	switch code {
	case "WatchdogTimeout":
		return "killed by systemd's watchdog", 3
	case "UnitFailed":
		return "ended with a failure", 2
	case "UnitStopped", "RuntimeStopped":
		return "stopped", 1
	}
	return "", 0
}

// oneRestart is how far apart two records of one restart may be: systemd waits ten seconds before a kubelet's next
// start as its package sets RestartSec, and a runtime loads its state for some seconds.
const oneRestart = 30 * time.Second

// daemonOf returns whose event one is: kubelet, runtime, or another unit; and the best name for it.
func daemonOf(e journal.Event) (who, name string) {
	role := journal.UnitRole(e.Subject)
	first, _, _ := strings.Cut(strings.TrimSuffix(strings.ToLower(e.Subject), ".service"), " ")
	switch {
	case e.Lane == "kubelet" || role == journal.RoleKubelet:
		return "kubelet", "kubelet"
	case (e.Lane == "runtime" || role == journal.RoleRuntime) && journal.TaskRole(first) == journal.RoleRuntime:
		return "runtime", first
	case e.Lane == "runtime" || role == journal.RoleRuntime:
		return "runtime", "runtime"
	}
	return e.Subject, e.Subject
}

// restartsOf puts the records of restarts together: an end, systemd's decision, and the start are one.
func restartsOf(events []journal.Event) []*restart {
	var all []*restart
	open := map[string]*restart{}
	for _, e := range events {
		who, name := daemonOf(e)
		if e.Code == "KubeletStarted" && e.Marker == "restart" || e.At == nil {
			all = append(all, &restart{at: e.At, words: eventWords(e)})
			continue
		}
		r := open[who]
		how, rank := endWords(e.Code)
		if r == nil || e.At.Sub(r.last) > oneRestart || rank > 0 && r.up != nil {
			r = &restart{who: name, at: e.At}
			open[who] = r
			all = append(all, r)
		}
		r.last = *e.At
		if r.who == "runtime" {
			r.who = name
		}
		switch {
		case rank > r.rank:
			r.how, r.rank = how, rank
		case rank > 0:
		case e.Code == "UnitRestarted" && r.how == "":
			r.how = "restarted by systemd"
		case e.Code != "UnitRestarted":
			r.up = e.At // the last start: that of the process, after that of the unit
		}
	}
	return all
}

func (p *page) restartsLine(e journal.Episode, c calendar) string {
	var parts []string
	all := restartsOf(e.Restarts)
	for i, r := range all {
		if i == shownStalls {
			parts = append(parts, "and "+units.Number(len(all)-i)+" more")
			break
		}
		text := r.words
		switch {
		case text != "":
		case r.how == "":
			text = r.who + " started"
		default:
			text = r.who + " " + r.how
			if r.up != nil {
				text += ", up again " + c.stamp(r.up)
			}
		}
		parts = append(parts, c.stamp(r.at)+" "+p.prose(text))
	}
	return strings.Join(parts, "; ")
}

// happened lists what happened around an episode, by time.
func (p *page) happened(r *journal.Report, e journal.Episode, c calendar) {
	events := eventsAround(r, e)
	if len(events) == 0 {
		return
	}
	p.blank()
	p.put(plain("  "), span{"What happened", &p.ink.bold})
	var rows [][]span
	for _, ev := range thin(events, shownEvents) {
		rows = append(rows, []span{
			plain(c.stamp(ev.At)), plain(p.prose(ev.Lane)), p.eventSign(ev.Marker),
			plain(p.eventLine(ev, c)),
		})
	}
	p.table(table{indent: 2, align: "llll", rows: rows})
	if n := len(events) - len(rows); n > 0 {
		p.goesOn(n)
	}
}

// eventWords says what an event is: its words, else its code, and its subject.
func eventWords(e journal.Event) string {
	const anyone = "the kubelet or the runtime"
	text := e.What
	if text == "" {
		text = e.Code
	}
	switch {
	case e.Subject == "":
		return text
	case strings.Contains(text, anyone):
		return strings.Replace(text, anyone, e.Subject, 1)
	}
	return text + ": " + e.Subject
}

func (p *page) eventLine(e journal.Event, c calendar) string {
	text := shortIDs(p.prose(eventWords(e)))
	if e.Count > 1 {
		text += ", " + units.Number(e.Count) + " records"
		if e.Until != nil && e.At != nil && c.stamp(e.Until) != c.stamp(e.At) {
			text += " to " + c.stamp(e.Until)
		}
	}
	return text
}

// eventsAround returns the events from two minutes before an episode to two minutes after it. Errors and warnings of
// a kind are one event: when they began, how many they are, when they ended.
func eventsAround(r *journal.Report, e journal.Episode) []journal.Event {
	const around = 2 * time.Minute
	from, to, ok := e.Span()
	if !ok {
		return nil
	}
	type kind struct{ lane, code, marker, what string }
	var some []journal.Event
	at := map[kind]int{}
	for _, ev := range r.Events {
		if ev.At == nil || ev.At.After(to.Add(around)) || ev.End().Before(from.Add(-around)) {
			continue
		}
		k := kind{ev.Lane, ev.Code, ev.Marker, ev.What}
		if i, known := at[k]; known && (ev.Marker == "error" || ev.Marker == "warning") {
			some[i].Join(ev)
			continue
		}
		at[k] = len(some)
		some = append(some, ev)
	}
	return some
}

// thin reduces events to at most so many: what is only a warning goes first, then the later of the others.
func thin(events []journal.Event, most int) []journal.Event {
	warning := func(e journal.Event) bool { return e.Marker == "warning" }
	others := len(slices.DeleteFunc(slices.Clone(events), warning))
	room := max(0, most-others) // for warnings
	var kept []journal.Event
	for _, e := range events {
		if warning(e) {
			if room--; room < 0 {
				continue
			}
		}
		if len(kept) < most {
			kept = append(kept, e)
		}
	}
	return kept
}

// journalCauses writes the causes of an episode: the first with all evidence, the others in one line, with what they
// rest on most if they are likely too.
func (p *page) journalCauses(causes []journal.Cause, told map[string]bool) {
	if len(causes) > 0 {
		p.blank()
	}
	for i, cause := range causes {
		if i == shownCauses {
			p.flow([]span{plain("  ")}, 4, plain("and "+units.Number(len(causes)-i)+" less likely; -o json has them"))
			return
		}
		lead := []span{plain("  "), {p.prose(cause.Code), &p.ink.bold}, plain("  ")}
		p.flow(lead, 4, plain(confidence(cause.Confidence)+": "+p.prose(cause.Summary)))
		lines := evidenceLines(cause.Evidence, told, i == 0)
		if i > 0 {
			lines = lines[:min(len(lines), 1)]
		}
		for _, f := range lines {
			if i == 0 || cause.Confidence >= 0.5 && f.Name == "+" {
				p.item(4, plain(f.Name), shortIDs(p.prose(f.Text)))
			}
		}
	}
}

// hexID matches the ids of containers and sandboxes.
var hexID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// shortIDs shortens ids inside a sentence as far as the tools of the runtimes do.
func shortIDs(s string) string { return hexID.ReplaceAllStringFunc(s, shortID) }

// evidenceLines lists evidence with a sign: + for, - against, ? for what could not be seen, in one line without what
// was told already.
func evidenceLines(e journal.Evidence, told map[string]bool, missing bool) []fact {
	var out []fact
	for _, s := range e.For {
		out = append(out, fact{"+", s})
	}
	for _, s := range e.Against {
		out = append(out, fact{"-", s})
	}
	var fresh []string
	for _, s := range e.Missing {
		if missing && !told[s] {
			told[s] = true
			fresh = append(fresh, s)
		}
	}
	if len(fresh) > 0 {
		out = append(out, fact{"?", strings.Join(fresh, "; ")})
	}
	return out
}

// startups writes the starts of a kubelet in one line each.
func (p *page) startups(all []journal.Episode, c calendar) {
	if len(all) == 0 {
		return
	}
	p.heading("Kubelet starts: " + units.Number(startsIn(all)) + ", no incidents")
	for i, line := range startupLines(all, c) {
		if i == fullIncidents {
			p.goesOn(len(all) - i)
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

func startupLines(all []journal.Episode, c calendar) []string {
	var lines []string
	for _, e := range all {
		text := c.span(e.Start, e.End)
		if text == "" {
			text = "without a time"
		}
		if n := startsIn([]journal.Episode{e}); n > 1 {
			text += ", " + units.Count(n, "start")
		}
		text += ", " + units.Count(e.Lines, "record") + " before the first relist"
		if e.RecoveredAt != nil {
			text += "; ready at " + c.stamp(e.RecoveredAt)
		}
		lines = append(lines, text)
	}
	return lines
}
