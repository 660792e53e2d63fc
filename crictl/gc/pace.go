package gc

import (
	"slices"
	"time"
)

const (
	// slowFactor is how much slower than quiet a probe may get: below 2, the most that another client such as the kubelet
	// should have to wait longer, because the pace reacts after the fact.
	slowFactor = 1.7
	// tailFactor bounds the slowest probe of the quiet runtime by the median, in case of an outlier.
	tailFactor = 10
	// climbWindow and probeWindow are how many probes decide together, by their median, before the first slow ones and
	// after: a runtime that collects its garbage makes single probes slow whatever the pace.
	climbWindow = 3
	probeWindow = 5
	// leastUsual stands for what is quicker: below it the noise of the scheduler is larger than the probe. relistShare is
	// the part of another client's relist by which a probe may be late without harm.
	leastUsual  = time.Millisecond
	relistShare = 3
	// stallFactor and leastStall set how late a probe must be for the runtime to count as hung.
	stallFactor = 10
	leastStall  = 500 * time.Millisecond
	// recovered is how many quick probes in a row end a pause.
	recovered = 2
	// relearn is how many slow probes in a row, while nothing is being removed, become the new measure: then it is not
	// this run that slows the runtime.
	relearn = 10
)

// A pace decides how many removals may run at a time. It doubles the width until the side probe becomes slow, halves it
// whenever that happens, and else lets it grow by half. At a width of 1, slow probes pause all removals.
type pace struct {
	most   int
	width  int           // removals at a time; 0 is a pause
	slowed bool          // the width was halved before
	least  time.Duration // the usual time is never taken to be less than this
	slow   time.Duration // a probe that takes longer is slow
	recent []time.Duration
	reason string // of the pause
	pauses int    // so far
}

// newPace starts with the durations of probes and of a relist of the quiet runtime.
func newPace(most int, quiet []time.Duration, relist time.Duration) *pace {
	p := &pace{most: most, width: 1, least: max(leastUsual, relist/relistShare)}
	p.learn(quiet)
	return p
}

// learn derives from probes what is slow: beyond slowFactor times the median, and beyond what the quiet runtime took at
// most, since answers have a long tail.
func (p *pace) learn(probes []time.Duration) {
	usual := max(p.least, median(probes))
	p.slow = time.Duration(slowFactor * float64(usual))
	if len(probes) > 0 {
		p.slow = max(p.slow, min(slices.Max(probes), tailFactor*usual))
	}
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// stall is how long a probe may stay unanswered.
func (p *pace) stall() time.Duration { return max(leastStall, stallFactor*p.slow) }

func (p *pace) paused() bool { return p.width == 0 }

// pause stops all removals until the probe has been quick twice.
func (p *pace) pause(reason string) {
	if !p.paused() {
		p.pauses++
		p.recent = p.recent[:0]
	}
	p.width, p.slowed, p.reason = 0, true, reason
}

func (p *pace) halve() {
	if !p.paused() {
		p.width, p.slowed, p.recent = max(1, p.width/2), true, p.recent[:0]
	}
}

// probed takes the duration of a side probe; ok is false for an error or no answer, idle true when no removal was
// running.
func (p *pace) probed(took time.Duration, ok, idle bool) {
	if !ok {
		p.pause("the runtime does not answer")
		return
	}
	p.recent = append(p.recent, took)
	if p.paused() {
		p.recover(idle)
		return
	}
	if len(p.recent) < climbWindow || p.slowed && len(p.recent) < probeWindow {
		return
	}
	slow := median(p.recent) > p.slow
	p.recent = p.recent[:0]
	switch {
	case slow && p.width == 1:
		p.pause("the runtime is slow even with one removal at a time")
	case slow:
		p.halve()
	case p.slowed:
		p.width = min(p.most, p.width+(p.width+1)/2)
	default:
		p.width = min(p.most, 2*p.width)
	}
}

// recover ends a pause when the last probes were quick.
func (p *pace) recover(idle bool) {
	quick := p.recent[max(0, len(p.recent)-recovered):]
	if len(quick) == recovered && slices.Max(quick) <= p.slow {
		p.width, p.reason, p.recent = 1, "", p.recent[:0]
		return
	}
	if !idle {
		p.recent = quick
	} else if len(p.recent) >= relearn {
		p.learn(p.recent)
		p.recent = p.recent[:0]
	}
}
