package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// incidents returns the episodes of the journal in which PLEG was unhealthy and whose time is known, the newest last.
// Start-up is none: a kubelet that has just started has not relisted yet.
func (f *Facts) incidents() []journal.Episode {
	if !f.hears() {
		return nil
	}
	var some []journal.Episode
	for _, e := range f.Journal.Episodes {
		if e.Kind == journal.Incident && e.Start != nil && e.End != nil {
			some = append(some, e)
		}
	}
	slices.SortStableFunc(some, func(a, b journal.Episode) int { return a.End.Compare(*b.End) })
	return some
}

// plegNow returns the incident that is going on: the kubelet said so within its own cadence, and nothing has shown since
// that its loop runs again.
func (f *Facts) plegNow() *journal.Episode {
	all := f.incidents()
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	if last.Recovered || !f.fresh(last.End, skipFresh) {
		return nil
	}
	return &last
}

// longest returns the worst age of PLEG that the incidents state, 0 when none states one.
func longest(incidents []journal.Episode) time.Duration {
	var worst time.Duration
	for _, e := range incidents {
		worst = max(worst, units.ToDuration(e.MaxLastSeenSeconds))
	}
	return worst
}

// plegLine says what the kubelet itself says of PLEG in the journal; empty when it says nothing. Of several incidents it
// says how many, of one that goes on since when.
func (f *Facts) plegLine() string {
	all := f.incidents()
	if len(all) == 0 {
		return ""
	}
	age := ""
	if d := longest(all); d > 0 {
		age = ", at most " + units.Duration(d) + " since its last good relist"
	}
	if now := f.plegNow(); now != nil {
		line := "the kubelet itself says that PLEG is not healthy, " + f.since(*now.Start)
		if now.Anchor != nil && len(now.Stalls) < 2 {
			line += fmt.Sprintf("; its last good relist began at %s", f.clock(*now.Anchor))
		} else {
			line += age
		}
		if len(all) > 1 {
			line += fmt.Sprintf("; before, it was so %s in the last %s", units.Times(len(all)-1), units.Duration(f.journalWindow()))
		}
		return line
	}
	last := all[len(all)-1]
	if len(all) == 1 {
		return fmt.Sprintf("the kubelet said that PLEG was not healthy from %s to %s%s", f.clock(*last.Start), f.clock(*last.End), age)
	}
	return fmt.Sprintf("the kubelet said %s in the last %s that PLEG was not healthy, last until %s%s",
		units.Times(len(all)), units.Duration(f.journalWindow()), f.clock(*last.End), age)
}

// hearPLEG adds what the kubelet says of PLEG, in its metrics and in its log, and reports whether it calls it unhealthy now.
func (f *Facts) hearPLEG(e *Evidence) bool {
	late := false
	if age, known := f.plegAge(); known && !f.otherEndpoint() && age > f.threshold() {
		late = true
		addf(&e.For, "the kubelet's own metric: its last good relist began %s ago; the threshold is %s", units.Duration(age), units.Duration(f.threshold()))
	}
	if !f.hearsKubelet() {
		return late
	}
	if line := f.plegLine(); line != "" {
		e.For = append(e.For, line)
	}
	return late || f.plegNow() != nil
}

// hearCalm adds evidence against trouble that stops a relist: the kubelet's loop was at work a moment ago, and its log
// tells of nothing. While PLEG or Status fail the loop skips, and while a list hangs it stands still at its housekeeping
// (every 2 s), so its lines cannot come then. That no line came proves nothing and is not asked.
func (f *Facts) hearCalm(e *Evidence) {
	if !f.hearsKubelet() {
		return
	}
	active := f.lastOf(signature.SyncLoopActive)
	trouble := f.lastOf(signature.PLEGNotHealthy, signature.RuntimeIsDown, signature.RelistFailed, signature.ListFailed, signature.SanityCheckFailed)
	if !f.fresh(active, skipFresh) || f.fresh(trouble, skipFresh) || trouble != nil && trouble.After(*active) {
		return
	}
	addf(&e.Against, "the kubelet's loop was at work at %s, and its log tells of no trouble now: this began only then, or is over for the kubelet", f.clock(*active))
}
