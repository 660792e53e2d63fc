package journal

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// maxEvents bounds the events of a report: what a timeline can show, and a person can read.
const maxEvents = 500

// event makes the report's form of a burst.
func (f *facts) event(b *burst) Event {
	code := f.code(b)
	sig := f.catalogue[code]
	e := Event{
		At: b.first.instant(), Count: int64(b.count), Lane: string(sig.Lane), Code: code, Marker: string(sig.Marker),
		What: sig.Title, Subject: clean(f.pool.subjectOf(b.subject).label(), 120),
	}
	if until := b.last.instant(); until != nil && e.At != nil && until.After(*e.At) {
		e.Until = until
	}
	return e
}

// events lists what happened beside the unhealthy records, by time, at most maxEvents. When there are more, the same
// thing is told once for a longer time, and what lies far from every episode and marks nothing goes first.
func (f *facts) events(episodes []Episode) []Event {
	var all []Event
	for i := range f.bursts {
		code := f.code(&f.bursts[i])
		if code != signature.SyncLoopActive && code != signature.PLEGNotHealthy {
			all = append(all, f.event(&f.bursts[i]))
		}
	}
	for gap := 10 * time.Second; len(all) > maxEvents && gap < 1000*time.Hour; gap *= 4 {
		all = mergeEvents(all, gap, gap > time.Minute)
	}
	if len(all) > maxEvents {
		slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(weight(b, episodes), weight(a, episodes)) })
		all = all[:maxEvents]
	}
	sortEvents(all)
	if all == nil {
		all = []Event{}
	}
	return all
}

// mergeEvents joins events of one code and subject that follow each other within gap; of one code alone if loose.
func mergeEvents(all []Event, gap time.Duration, loose bool) []Event {
	type key struct{ code, subject string }
	open := map[key]int{}
	kept := all[:0]
	for _, e := range all {
		k := key{code: e.Code, subject: e.Subject}
		if loose {
			k.subject = ""
		}
		i, ok := open[k]
		if !ok || e.At != nil && kept[i].At != nil && e.At.Sub(kept[i].end()) > gap {
			open[k] = len(kept)
			kept = append(kept, e)
			continue
		}
		p := &kept[i]
		p.Count += e.Count
		if p.Subject != e.Subject {
			p.Subject = ""
		}
		if e.At != nil && p.At != nil {
			if end := e.end(); end.After(p.end()) {
				p.Until = &end
			}
		}
	}
	return kept
}

func (e *Event) end() time.Time {
	if e.Until != nil {
		return *e.Until
	}
	return *e.At
}

// weight is how much an event matters: its marker, and how near it is to an episode.
func weight(e Event, episodes []Episode) int {
	w := 0
	switch signature.Marker(e.Marker) {
	case signature.Start, signature.Stop, signature.Restart, signature.Recovery:
		w += 40
	case signature.Error:
		w += 20
	}
	near := time.Duration(math.MaxInt64)
	for i := range episodes {
		if ep := &episodes[i]; ep.Start != nil && e.At != nil {
			d := max(ep.Start.Sub(e.end()), e.At.Sub(*ep.End), 0)
			near = min(near, d)
		}
	}
	switch {
	case near <= 10*time.Minute:
		w += 50
	case near <= time.Hour:
		w += 15
	}
	return w
}

func sortEvents(all []Event) {
	slices.SortStableFunc(all, func(a, b Event) int {
		switch {
		case a.At == nil && b.At == nil:
			return 0
		case a.At == nil:
			return 1
		case b.At == nil:
			return -1
		}
		return cmp.Or(a.At.Compare(*b.At), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
}
