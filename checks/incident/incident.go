// Package incident turns the causes of looks that follow one another into states: onset, confirmed, gone. It is pure.
package incident

import (
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

// sameIncident is the time after its end within which a cause comes back into the incident that it was of.
const sameIncident = 10 * time.Minute

// A Dating returns when a cause began, zero where nothing dates it. notBefore is the last look without the cause, zero
// where there was none.
type Dating func(c *checks.Cause, notBefore time.Time) time.Time

// A Tracker follows the causes of one node, each by its code, since the subject of a cause may change from one report
// to the next. The times are the reports' times, and may go back.
type Tracker struct {
	last   time.Time // of the latest report
	causes []*state  // there, or gone not long ago; in the order of the latest report that has them
}

// A state is the state of one cause.
type state struct {
	checks.Transition // to its begin, with the words of the latest report that has it, and with the present state
	// The first report without it, and the last with it; zero where the latest report has it.
	cleared, seen time.Time
	critical      bool // a transition since it began has this severity
}

// New returns a tracker of a node without causes.
func New() *Tracker { return &Tracker{} }

// Resume puts the tracker into the state that the last transitions of a recorder lead to, the latest last: an agent was
// restarted.
func (t *Tracker) Resume(past []checks.Transition) {
	for _, p := range past {
		s, noticed := t.state(p.Cause), p.Noticed
		if s.cleared = (time.Time{}); p.To == checks.CauseClear {
			s.cleared = p.At
		}
		if s.To != checks.CauseClear {
			p.At, p.NotBefore, p.Noticed, p.From = s.At, s.NotBefore, s.Noticed, s.From
		}
		s.Transition, t.last = p, noticed
		s.critical = p.To != checks.CauseClear && (s.critical || p.Severity == checks.Critical)
	}
}

// state returns the state of a cause, which is clear where there was none.
func (t *Tracker) state(code string) *state {
	i := slices.IndexFunc(t.causes, func(s *state) bool { return s.Cause == code })
	if i < 0 {
		i = len(t.causes)
		t.causes = append(t.causes, &state{Transition: checks.Transition{Cause: code, To: checks.CauseClear}})
	}
	return t.causes[i]
}

// Update takes the report of one look and returns what changed by it, causes before their consequences. Two looks in a
// row confirm a cause, or end it. One that is certain of it (checks.Certain) confirms it, without an onset before. A
// warning that becomes critical is confirmed once more. A report of status unknown changes nothing.
func (t *Tracker) Update(r *checks.Report, began Dating) (changed []checks.Transition) {
	now, before := r.GeneratedAt, t.last
	if r.Status == checks.Unknown {
		return nil
	}
	if t.last = now; before.After(now) { // the clock was set back
		before = time.Time{}
	}
	var all []*state
	for _, c := range r.Causes {
		s := t.state(c.Code)
		s.Severity, s.Subject, s.Summary, s.CausedBy = c.Severity, c.Subject.Label(), c.Summary, c.CausedBy
		all = append(all, s)
	}
	for i, c := range r.Causes {
		s, to := all[i], checks.CauseOnset
		if c.Confidence >= checks.Certain || s.To == checks.CauseOnset && s.cleared.IsZero() {
			to = checks.CauseConfirmed
		}
		switch {
		case s.To == checks.CauseClear:
			at := start(r.Causes[i:], began, before, now)
			s.Incident = t.incident(s, at)
			s.Transition = s.become(to, at, before, now)
			changed = append(changed, s.Transition)
		case s.To == checks.CauseOnset && to == checks.CauseConfirmed,
			s.To == checks.CauseConfirmed && s.Severity == checks.Critical && !s.critical:
			to = checks.CauseConfirmed
			changed = append(changed, s.become(to, now, before, now))
		}
		s.cleared = time.Time{}
	}
	for _, s := range t.causes {
		switch {
		case slices.Contains(all, s), s.To == checks.CauseClear && now.Sub(s.cleared) > sameIncident:
			continue
		case s.cleared.IsZero(), now.Before(s.cleared):
			s.cleared, s.seen = now, before
		case s.To != checks.CauseClear:
			changed = append(changed, s.become(checks.CauseClear, s.cleared, s.seen, now))
		}
		all = append(all, s)
	}
	t.causes = all
	return changed
}

// become changes the state and returns the transition.
func (s *state) become(to string, at, notBefore, noticed time.Time) checks.Transition {
	changed := s.Transition
	changed.From, changed.To, changed.At, changed.NotBefore, changed.Noticed = s.To, to, at, nil, noticed
	s.critical = to != checks.CauseClear && (s.critical || s.Severity == checks.Critical)
	if s.To = to; !notBefore.IsZero() {
		changed.NotBefore = &notBefore
	}
	return changed
}

// start returns when the first of some causes began: no later than its consequences, which come behind it, as far as
// the last look without it allows that.
func start(causes []checks.Cause, began Dating, before, now time.Time) time.Time {
	at := began(&causes[0], before)
	if at.IsZero() || at.After(now) {
		at = now
	}
	for i := 1; i < len(causes); i++ {
		if causes[i].CausedBy == causes[0].Code {
			if date := start(causes[i:], began, before, now); date.Before(at) && !date.Before(before) {
				at = date
			}
		}
	}
	return at
}

// incident returns the begin of the incident to which a cause belongs that began at a time: its incident before; else
// the incident of a cause that was there then and explains it, is explained by it or is critical; else its own begin.
func (t *Tracker) incident(s *state, at time.Time) time.Time {
	for _, o := range slices.Concat([]*state{s}, t.causes) {
		related := o == s || o.Cause == s.CausedBy || o.CausedBy == s.Cause || o.Severity == checks.Critical
		over := at.Sub(o.cleared)
		if related && !o.Incident.IsZero() && (o.cleared.IsZero() || over <= 0 || o == s && over <= sameIncident) {
			return o.Incident
		}
	}
	return at
}

// Active returns the causes that are there now, with the transition that began each. To, severity, subject and summary
// are up to date.
func (t *Tracker) Active() (active []checks.Transition) {
	for _, s := range t.causes {
		if s.To != checks.CauseClear {
			active = append(active, s.Transition)
		}
	}
	return active
}

// tolerance is the most by which a cause may have begun before the last look without it: that look takes a moment, and
// the last good relist of the kubelet begins up to a second before what stops the next (relistPeriod in
// pkg/kubelet/kubelet.go).
const tolerance = 3 * time.Second

// Began dates the causes that were found in the facts: by the oldest call without an answer that a cause is about, and
// where it stops relists by the last good one. What lies before notBefore counts only where there is nothing else, or
// where the look of then could not see the cause.
func Began(in *facts.Input) Dating {
	all := sync.OnceValue(func() *facts.Facts { return facts.New(in) })
	return func(c *checks.Cause, notBefore time.Time) time.Time {
		var dates []time.Time
		d, _ := causes.Lookup(c.Code)
		for call := range facts.EveryCall(all()) {
			if call.Hung() && d.Hangs(call.Method) {
				dates = append(dates, call.Start)
			}
		}
		if d.SeenLate {
			// PLEG is late for minutes before it is unhealthy, and an object is asked about once in this time.
			notBefore = notBefore.Add(-5 * time.Minute)
		}
		if d.StopsRelists {
			dates = append(dates, lastRelist(all(), c.Code == causes.PLEGUnhealthy)...)
		}
		slices.SortFunc(dates, time.Time.Compare)
		i := slices.IndexFunc(dates, func(at time.Time) bool { return !at.Before(notBefore.Add(-tolerance)) })
		return append(dates, time.Time{})[max(i, 0)]
	}
}

// lastRelist returns when the last good relist of the kubelet began, by its log or else by its metric, as far as it is
// known; or that before the latest incident, which may be over.
func lastRelist(f *facts.Facts, over bool) []time.Time {
	switch all := f.Log.Incidents; {
	case f.Target.OtherEndpoint || f.Target.Simulated:
	case len(all) > 0 && all[len(all)-1].Anchor != nil && (over || f.Log.PLEGNow != nil):
		return []time.Time{*all[len(all)-1].Anchor}
	case f.KubeletState.PLEGKnown:
		return []time.Time{f.Now.Add(-f.KubeletState.PLEGAge)}
	}
	return nil
}
