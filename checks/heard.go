package checks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// How old the newest record of a kind may be for the thing to be still going on, seen from the moment at which the
// journal was read.
const (
	// While there is a runtime error, the kubelet's loop says so every 5 s (syncLoop in pkg/kubelet/kubelet.go): six
	// lines that are not there are an end, or a kubelet that stands still itself.
	skipFresh = 30 * time.Second
	// Lease and node status are each tried every 10 s, and a try may itself wait for 10 s.
	apiFresh = time.Minute
	// Stamps may lie ahead of our clock by so much before they are taken for another clock's.
	aheadOfClock = time.Minute
)

// hears reports whether there is a journal to be asked.
func (f *Facts) hears() bool { return f.Journal != nil }

// hearsKubelet reports whether what the kubelet says in the journal is about the runtime that was asked: not when that is
// kdiag's own, or another socket than the kubelet's.
func (f *Facts) hearsKubelet() bool { return f.hears() && !f.simulated() && !f.otherEndpoint() }

// missingJournal notes that the kubelet's side was not heard.
func (f *Facts) missingJournal(e *Evidence) {
	if f.Journal == nil && f.JournalProblem != "" && !f.simulated() {
		addf(&e.Missing, "the kubelet's own log was not read: %s", clean(f.JournalProblem))
	}
}

// journalAt is the moment up to which the journal was read; the measurement goes on after it.
func (f *Facts) journalAt() time.Time {
	if f.Journal == nil || f.Journal.GeneratedAt.IsZero() || f.Journal.GeneratedAt.After(f.Now) {
		return f.Now
	}
	return f.Journal.GeneratedAt
}

// journalFrom is the moment from which on the journal was read: of its first record where that is known, since more may have
// been read than was asked for, and a journal that was rotated holds less.
func (f *Facts) journalFrom() time.Time {
	if f.Journal != nil && f.Journal.From != nil && f.Journal.From.Before(f.journalAt()) {
		return *f.Journal.From
	}
	window := f.Limits.JournalWindow
	if window <= 0 {
		window = DefaultLimits().JournalWindow
	}
	return f.journalAt().Add(-window)
}

// journalWindow is how far back the journal was read, in whole minutes.
func (f *Facts) journalWindow() time.Duration {
	return max(f.journalAt().Sub(f.journalFrom()).Round(time.Minute), time.Minute)
}

// fresh reports whether a moment is at most so long ago that what happened then is taken for going on.
func (f *Facts) fresh(t *time.Time, within time.Duration) bool {
	if t == nil {
		return false
	}
	age := f.journalAt().Sub(*t)
	return age <= within && age >= -aheadOfClock
}

// clock writes the time of day in the zone of the report.
func (f *Facts) clock(t time.Time) string { return t.In(f.Now.Location()).Format(time.TimeOnly) }

// since says from when on something has been going on; what began before the window is not dated.
func (f *Facts) since(t time.Time) string {
	const edge = 15 * time.Second
	if t.Before(f.journalFrom().Add(edge)) {
		return "for all of the last " + units.Duration(f.journalWindow())
	}
	return "since " + f.clock(t)
}

// logged returns what the journal counted of a signature; nil when it holds none.
func (f *Facts) logged(code string) *journal.Count {
	if !f.hears() {
		return nil
	}
	for i := range f.Journal.Signatures {
		if c := &f.Journal.Signatures[i]; c.Code == code && c.Count > 0 {
			return c
		}
	}
	return nil
}

// lastOf returns the time of the newest record of any of the signatures; nil without any.
func (f *Facts) lastOf(codes ...string) *time.Time {
	var last *time.Time
	for _, code := range codes {
		if c := f.logged(code); c != nil && c.Last != nil && (last == nil || c.Last.After(*last)) {
			last = c.Last
		}
	}
	return last
}

// firstExample returns the first record of the first of the signatures that the journal holds, safe to print.
func (f *Facts) firstExample(codes ...string) string {
	for _, code := range codes {
		if c := f.logged(code); c != nil && c.Example != "" {
			return f.quote(c.Example)
		}
	}
	return ""
}

// quote makes a record safe to print and short enough for a line of evidence. Its beginning says what failed and its end
// why, so what is left out is in the middle.
func (f *Facts) quote(record string) string {
	const first, last = 100, 80
	s := []rune(strings.TrimSpace(record))
	if len(s) > first+last {
		return clean(strings.TrimSpace(string(s[:first])) + " ... " + strings.TrimSpace(string(s[len(s)-last:])))
	}
	return clean(string(s))
}

// eventsOf returns the events of the signatures that have a time, by time.
func (f *Facts) eventsOf(codes ...string) []journal.Event {
	if !f.hears() {
		return nil
	}
	var some []journal.Event
	for _, e := range f.Journal.Events {
		if e.At != nil && slices.Contains(codes, e.Code) {
			some = append(some, e)
		}
	}
	slices.SortStableFunc(some, func(a, b journal.Event) int { return a.At.Compare(*b.At) })
	return some
}

// until is the end of an event.
func until(e journal.Event) time.Time {
	if e.Until != nil && e.Until.After(*e.At) {
		return *e.Until
	}
	return *e.At
}

// A spell is a time in which records of some kind came without a long pause.
type spell struct {
	From, To time.Time
	Records  int64
}

// spells returns the times in which records of the signatures came with no pause longer than gap, by time. They are made
// of the events of the timeline; of a signature that has none there, first, last and number of its records must do.
func (f *Facts) spells(gap time.Duration, codes ...string) []spell {
	var parts []spell
	for _, code := range codes {
		c := f.logged(code)
		if c == nil {
			continue
		}
		events := f.eventsOf(code)
		var told time.Time
		for _, e := range events {
			parts = append(parts, spell{*e.At, until(e), max(e.Count, 1)})
			if until(e).After(told) {
				told = until(e)
			}
		}
		if c.Last == nil {
			continue
		}
		if len(events) == 0 {
			parts = append(parts, spread(*c, gap))
		} else if c.Last.After(told) {
			parts = append(parts, spell{*c.Last, *c.Last, 1}) // the timeline is bounded, counts are not
		}
	}
	slices.SortStableFunc(parts, func(a, b spell) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	var out []spell
	for _, p := range parts {
		if n := len(out); n > 0 && p.From.Sub(out[n-1].To) <= gap {
			if p.To.After(out[n-1].To) {
				out[n-1].To = p.To
			}
			out[n-1].Records += p.Records
			continue
		}
		out = append(out, p)
	}
	return out
}

// occasions counts how often records of a signature came, those within pause of each other once. Without a timeline each
// record counts.
func (f *Facts) occasions(pause time.Duration, code string) int {
	if len(f.eventsOf(code)) > 0 {
		return len(f.spells(pause, code))
	}
	if c := f.logged(code); c != nil {
		return int(c.Count)
	}
	return 0
}

// spread makes a spell of first, last and number: of the last record alone when they are too few to lie within gap.
func spread(c journal.Count, gap time.Duration) spell {
	if c.First == nil || c.Count < 2 || c.Last.Sub(*c.First) > time.Duration(c.Count-1)*gap {
		return spell{*c.Last, *c.Last, 1}
	}
	return spell{*c.First, *c.Last, c.Count}
}

// ongoing returns the newest spell of the signatures if it lasts until now: its last record is no older than gap.
func (f *Facts) ongoing(gap time.Duration, codes ...string) (spell, bool) {
	all := f.spells(gap, codes...)
	if len(all) == 0 || !f.fresh(&all[len(all)-1].To, gap) {
		return spell{}, false
	}
	return all[len(all)-1], true
}
