package gc

import (
	"slices"
	"time"
)

const (
	// slowFactor is how much slower than quiet a probe may get: below 2, the most that another client such as the
	// kubelet should have to wait longer, because the pace reacts after the fact.
	slowFactor = 1.7
	// tailFactor bounds the slowest probe of the quiet runtime by the median, in case of an outlier.
	tailFactor = 10
	// climbWindow and probeWindow are how many probes decide together, by their median, before the first slow ones and
	// after: a runtime that collects its garbage makes single probes slow at any pace.
	climbWindow = 3
	probeWindow = 5
	// Probes faster than leastUsual count as leastUsual, because scheduler noise exceeds them.
	// relistShare is the part of another client's relist by which a probe may be late without harm.
	leastUsual  = time.Millisecond
	relistShare = 3
	// stallFactor and leastStall set how late a probe must be for the runtime to count as hung.
	stallFactor = 10
	leastStall  = 500 * time.Millisecond
)

// A pace decides how many removals may run at a time. It doubles the width until the side probe becomes slow, halves it
// whenever that happens, and else lets it grow by half. One at a time, as the kubelet removes, is always allowed while
// the runtime answers.
type pace struct {
	most   int
	width  int
	slowed bool          // the width was halved before
	slow   time.Duration // a probe that takes longer is slow
	recent []time.Duration
	paused bool // the runtime does not answer: nothing is removed
	pauses int  // so far
}

// newPace starts with the durations of probes and of a relist of the quiet runtime. A probe is slow beyond slowFactor
// times the median, and beyond the slowest probe of the quiet runtime, since answers have a long tail.
func newPace(most int, quiet []time.Duration, relist time.Duration) *pace {
	p := &pace{most: most, width: 1}
	usual := max(leastUsual, relist/relistShare, median(quiet))
	p.slow = max(time.Duration(slowFactor*float64(usual)), min(slices.Max(quiet), tailFactor*usual))
	return p
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// stall is how long a probe may stay unanswered.
func (p *pace) stall() time.Duration { return max(leastStall, stallFactor*p.slow) }

// pause stops all removals until a probe is answered.
func (p *pace) pause() {
	if !p.paused {
		p.paused, p.pauses = true, p.pauses+1
	}
}

// probed takes the duration of a side probe; ok is false for an error or no answer.
func (p *pace) probed(took time.Duration, ok bool) {
	switch {
	case !ok:
		p.pause()
		return
	case p.paused:
		p.paused, p.slowed, p.width, p.recent = false, true, 1, p.recent[:0]
		return
	}
	p.recent = append(p.recent, took)
	if len(p.recent) < climbWindow || p.slowed && len(p.recent) < probeWindow {
		return
	}
	switch slow := median(p.recent) > p.slow; {
	case slow:
		p.width, p.slowed = max(1, p.width/2), true
	case p.slowed:
		p.width = min(p.most, p.width+(p.width+1)/2)
	default:
		p.width = min(p.most, 2*p.width)
	}
	p.recent = p.recent[:0]
}
