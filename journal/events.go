package journal

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// maxEvents bounds the events of a report: a timeline can show, and a person can read, no more.
const maxEvents = 500

// event makes the report's form of a burst.
func (b *Burst) event(sig *signature.Signature) Event {
	e := Event{
		At: b.first.time(), Count: b.Count, Lane: string(sig.Lane), Code: b.Code, Marker: string(sig.Marker),
		What: sig.Title, Subject: Clean(b.Object().Label(), 120),
	}
	if signal := b.Call().Text; b.Code == signature.UnitSignalled && signal != "" {
		e.What = "systemd sent " + signal
	}
	if until := b.last.time(); until != nil && e.At != nil && until.After(*e.At) {
		e.Until = until
	}
	return e
}

// events lists the events beside the unhealthy records, by time, at most maxEvents. When there are more, the events of
// a kind become one event for a longer and longer time, in the end one of each signature.
func (h *history) events() []Event {
	all := []Event{}
	for i := range h.bursts {
		if b := &h.bursts[i]; b.Code != signature.SyncLoopActive {
			all = append(all, b.event(h.catalogue[b.Code]))
		}
	}
	for gap := 10 * time.Second; len(all) > maxEvents && gap < 1000*time.Hour; gap *= 4 {
		all = mergeEvents(all, gap)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return byTime(a.At, b.At, 0) })
	return all[:min(len(all), maxEvents)]
}

// mergeEvents joins events of one code and subject that follow each other within gap; of one code alone over minutes.
func mergeEvents(all []Event, gap time.Duration) []Event {
	open := map[[2]string]int{}
	kept := all[:0]
	for _, e := range all {
		k := [2]string{e.Code, e.Subject}
		if gap > time.Minute {
			k[1] = ""
		}
		i, ok := open[k]
		if !ok || e.At != nil && kept[i].At != nil && e.At.Sub(kept[i].End()) > gap {
			open[k] = len(kept)
			kept = append(kept, e)
			continue
		}
		kept[i].Join(e)
	}
	return kept
}

// End is when an event with a time ended.
func (e *Event) End() time.Time {
	if e.Until != nil {
		return *e.Until
	}
	return *e.At
}

// Join adds the records of another event of the same code.
func (e *Event) Join(o Event) {
	e.Count += o.Count
	if e.Subject != o.Subject {
		e.Subject = ""
	}
	if o.At != nil && e.At != nil && o.End().After(e.End()) {
		end := o.End()
		e.Until = &end
	}
}
