package journal

import (
	"cmp"
	"slices"
)

// How far, in µs, time must go backwards in a text to be a step of the clock, and not lines that changed places.
const (
	stepBack     = 90 * second // between any two records: split streams and interleaved writers differ by seconds
	stepBackSame = 2 * second  // between unhealthy records of one process, which klog writes one after the other
)

// A timedRecord is the time of an unhealthy record or of a mark, in the order of its host's log.
type timedRecord struct {
	timestamp
	pid  int32
	mark bool // no unhealthy record

	// clock is the time in µs with the steps back of the wall clock taken out. step numbers the stretches of a text
	// between such steps: the time that really passed at a step is unknown. Both are set by sequence.
	clock int64
	step  int32
}

// A recoveryMark is a record that can end an episode: proof that the sync loop runs, or that the node is ready.
type recoveryMark struct {
	timedRecord
	code string
}

// sequence gives the unhealthy records of one host, and the marks, their clock and sorts them by it. descending reports
// which sources are newest first.
func sequence(all []*unhealthyRecord, marks []recoveryMark, descending func(source uint16) bool) []*unhealthyRecord {
	var items []*timedRecord
	for _, u := range all {
		items = append(items, &u.timedRecord)
	}
	for i := range marks {
		items = append(items, &marks[i].timedRecord)
	}
	slices.SortStableFunc(items, func(a, b *timedRecord) int {
		bySeq := cmp.Compare(a.seq, b.seq)
		if descending(a.source) {
			bySeq = -bySeq
		}
		return cmp.Or(cmp.Compare(a.source, b.source), bySeq)
	})
	var w stepRemover
	for i, it := range items {
		if i == 0 || it.source != items[i-1].source {
			w = stepRemover{step: w.step}
		}
		if it.clock = it.at; it.known {
			it.clock = w.clock(items[i:])
		}
		it.step = w.step
	}
	slices.SortStableFunc(marks, func(a, b recoveryMark) int { return cmp.Compare(a.clock, b.clock) })
	slices.SortStableFunc(all, func(a, b *unhealthyRecord) int {
		if !a.known || !b.known {
			return 0
		}
		return cmp.Compare(a.clock, b.clock)
	})
	return all
}

// A stepRemover takes the steps back out of the wall clock of one source.
type stepRemover struct {
	shift, high int64 // the amount added to the wall clock; the highest clock so far
	seen        bool
	latest      int64 // clock of the latest unhealthy record
	pid         int32 // its process
	step        int32
}

// clock returns the clock of the first of the items that remain.
func (w *stepRemover) clock(rest []*timedRecord) int64 {
	t, pid, u := rest[0].at, rest[0].pid, !rest[0].mark
	back := w.seen && t+w.shift < w.high-stepBack && w.stays(rest[1:])
	back = back || u && w.pid != 0 && pid == w.pid && t+w.shift < w.latest-stepBackSame
	if back {
		w.shift = w.high + 1 - t // later than all before, by how much is unknown
		w.step++
	}
	if !w.seen || t+w.shift > w.high {
		w.high, w.seen = t+w.shift, true
	}
	if u {
		w.latest, w.pid = t+w.shift, pid
	}
	return t + w.shift
}

// stays reports whether the next records agree that time went back.
func (w *stepRemover) stays(next []*timedRecord) bool {
	n := 0
	for _, it := range next {
		if n == 3 || it.source != next[0].source {
			break
		}
		if it.known {
			n++
			if it.at+w.shift >= w.high-stepBack {
				return false
			}
		}
	}
	return true
}
