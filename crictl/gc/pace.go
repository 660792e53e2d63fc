package gc

import (
	"slices"
	"time"
)

// The pace of removal. The aim is the most removals per second at which another client of the runtime, such as the
// kubelet with its relist, still gets its lists in less than twice the usual time.
const (
	// slowFactor is how much slower than quiet the side probe may get before the pace slackens: below the bound of 2, so
	// that there is time to react.
	slowFactor = 1.7
	// jumpFactor is how slow a single probe must be to count at once.
	jumpFactor = 4
	// recentProbes is how many probes are looked at together, and slowProbes how many of them, beyond the slow ones of the
	// quiet runtime, make it slow. One alone is noise: every runtime collects garbage at times.
	recentProbes = 5
	slowProbes   = 2
	// tailFactor bounds a slow answer of the quiet runtime by its median one, in case of an outlier.
	tailFactor = 10
	// freshProbes is how many probes must have come in since the last step before the next.
	freshProbes = 2
	// leastQuiet stands for what is quicker: at that speed the scheduler's noise is larger than the answer.
	leastQuiet = time.Millisecond
	// stallFactor and leastStall say how late the probe must be for the runtime to count as frozen.
	stallFactor = 10
	leastStall  = 500 * time.Millisecond
	// firstGap and largestGap bound the pause between removals one at a time. A runtime that is slow even then is left
	// alone until it has recovered.
	firstGap   = 20 * time.Millisecond
	largestGap = time.Second
	// recovered is how many good probes in a row end a pause.
	recovered = 2
	// calibration is how many probes, without any removal in flight, tell whether it is this run that slows the runtime, or
	// something else; calibrateEvery is how often that may be asked. It is asked before removals one at a time are spaced out.
	calibration    = 5
	calibrateEvery = 5 * time.Second
	// relearn is how many probes during a pause, when nothing is being removed, make a new quiet value: whatever slows
	// the runtime then, it is not this run.
	relearn = 10
	// gainDouble is by how much a doubling of the limit must raise the rate to stay. gainUp is the same for one more at a
	// time, and gainDown for one less. Rates of such short windows differ by chance, so up to the cheap limit only a clear
	// loss turns a step back; the side probe, not the limit, guards other clients. Beyond it a step must show a gain: a
	// runtime keeps its records in one database, and more at a time mostly wait there.
	gainDouble = 0.9
	gainUp     = 0.93
	gainDown   = 1.0
	cheapLimit = 8
	gainDear   = 1.03
	// holdWindows is how many windows go by before a limit that was found to be the best is doubted, and ceilingWindows
	// how many before one at which the runtime was slow is tried again.
	holdWindows    = 3
	ceilingWindows = 6
	// windowRemovals, windowRounds and windowTime are the least that a window of measurement holds: removals, removals by
	// the limit, and time.
	windowRemovals = 8
	windowRounds   = 3
	windowTime     = 250 * time.Millisecond
	doublingTime   = 100 * time.Millisecond // instead, as long as the limit doubles
)

// A pacer decides how many removals may run at a time. It is pure: it is told what happened and when.
type pacer struct {
	most   int
	limit  int           // removals at a time; 0 is a pause
	gap    time.Duration // between the starts of removals, with a limit of 1
	quiet  time.Duration // a slow answer of the quiet runtime to the side probe
	usual  time.Duration // the median one
	recent []time.Duration

	good        int             // answers in a row during a pause
	idle        []time.Duration // probes of the pause or calibration
	calibrating bool            // nothing is removed, to see how quick the runtime is without
	calibrated  time.Time       // the last time
	least       time.Duration   // the usual time is never taken for less than it was at first
	failed      int             // removals of this window that the runtime refused
	reason      string          // of the pause
	doubling    bool
	from        int     // the limit before the step that is being tried; 0 when none is
	fromRate    float64 // removals per second then
	down        bool    // the next step to try is one less
	hold        int     // windows
	ceiling     int     // the limit may not be raised beyond this
	lifted      int     // windows until the ceiling goes
	count       int     // removals of this window
	since       time.Time
}

// newPacer starts with what the probes of the quiet runtime took.
func newPacer(most int, quiet []time.Duration, now time.Time) *pacer {
	p := &pacer{most: most, limit: 1, ceiling: most, doubling: true, since: now}
	p.learn(quiet)
	p.least = p.usual
	return p
}

// learn takes the median of the samples and the slowest: answers have a long tail, of several times the median even on a
// quiet runtime, and the two are judged apart.
func (p *pacer) learn(samples []time.Duration) {
	p.usual = max(leastQuiet, median(samples))
	p.quiet = p.usual
	if len(samples) > 0 {
		p.quiet = min(max(p.usual, slices.Max(samples)), tailFactor*p.usual)
	}
}

func median(samples []time.Duration) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}

// stall is how long the probe may stay unanswered.
func (p *pacer) stall() time.Duration { return max(leastStall, stallFactor*p.quiet) }

func (p *pacer) slow() time.Duration { return time.Duration(slowFactor * float64(p.quiet)) }

func (p *pacer) paused() bool { return p.limit == 0 && !p.calibrating }

// pause stops all removals until the probe has been answered well twice.
func (p *pacer) pause(reason string) {
	if !p.paused() {
		p.limit, p.gap, p.from, p.idle, p.calibrating = 0, 0, 0, nil, false
		p.recent = p.recent[:0]
	}
	p.reason, p.good = reason, 0
}

// probed takes the answer to a side probe; ok is false for an error or no answer.
func (p *pacer) probed(took time.Duration, ok bool, now time.Time) {
	if !ok {
		p.pause("the runtime does not answer")
		return
	}
	switch {
	case p.calibrating:
		p.calibrate(took, now)
		return
	case p.paused():
		p.recover(took, now)
		return
	}
	p.recent = append(p.recent, took)
	if len(p.recent) > recentProbes {
		p.recent = p.recent[1:]
	}
	switch {
	case took > p.stall():
		p.pause("the runtime answers too slowly")
	case took > jumpFactor*p.quiet:
		p.slacken(0.5, now)
	case p.slowCount() >= slowProbes, len(p.recent) == recentProbes && 1+p.lost() > p.bearable():
		p.slacken(0.85, now)
	}
}

func (p *pacer) slowCount() int {
	n := 0
	for _, d := range p.recent {
		if d > p.slow() {
			n++
		}
	}
	return n
}

// calibrate takes the answer to a probe with which nothing else of this run was in flight. When enough are in, the runtime
// counts as slow only beyond what they took.
func (p *pacer) calibrate(took time.Duration, now time.Time) {
	if took > p.stall() {
		p.pause("the runtime answers too slowly")
		return
	}
	if now.Add(-took).Before(p.since) {
		return // asked while removals were in flight
	}
	p.idle = append(p.idle, took)
	if len(p.idle) < calibration {
		return
	}
	tail := float64(p.quiet) / float64(p.usual)
	p.usual = max(p.least, median(p.idle))
	p.quiet = max(time.Duration(tail*float64(p.usual)), min(slices.Max(p.idle), tailFactor*p.usual))
	p.idle, p.calibrating, p.calibrated = nil, false, now
	p.limit, p.gap, p.doubling, p.down, p.hold, p.ceiling = 1, 0, true, false, 0, p.most
	p.window(now)
}

// recover takes a probe's answer during a pause.
func (p *pacer) recover(took time.Duration, now time.Time) {
	p.idle = append(p.idle, took)
	if len(p.idle) >= relearn {
		p.learn(p.idle)
		p.idle = nil
	}
	if took > p.slow() {
		p.good = 0
		return
	}
	if p.good++; p.good >= recovered {
		p.limit, p.doubling, p.down, p.hold, p.reason = 1, true, false, 0, ""
		p.recent = p.recent[:0]
		p.window(now)
	}
}

// slacken goes down to a share of the limit, by one at least; below 1 the removals are spaced out, and in the end stopped.
func (p *pacer) slacken(share float64, now time.Time) {
	p.doubling, p.from, p.hold, p.down = false, 0, holdWindows, false
	p.recent = p.recent[:0]
	defer p.window(now)
	if p.limit > 1 {
		p.ceiling, p.lifted = p.limit-1, ceilingWindows
		p.limit = max(1, min(p.limit-1, int(share*float64(p.limit))))
		return
	}
	if p.calibrated.IsZero() || now.Sub(p.calibrated) >= calibrateEvery {
		p.limit, p.gap, p.idle, p.calibrating = 0, 0, nil, true
		return
	}
	if p.gap = max(firstGap, 2*p.gap); p.gap > largestGap {
		p.pause("the runtime stays slow even with one removal at a time")
	}
}

func (p *pacer) window(now time.Time) { p.count, p.failed, p.since = 0, 0, now }

// An ending is how a removal ended, as far as the pace is concerned.
type ending uint8

const (
	endedWell  ending = iota
	endedBadly        // the runtime answered with an error; its own reasons are more likely than the pace
	endedLost         // no answer in time
)

// finished takes the end of a removal. An answer that does not come slackens the pace at once; errors do when most of a
// window failed, but never beyond one at a time: one pod that cannot be removed must not hold up the rest.
func (p *pacer) finished(how ending, now time.Time) {
	switch {
	case p.limit == 0:
		return
	case how == endedLost:
		p.slacken(0.5, now)
		return
	case how == endedBadly:
		if p.failed++; p.failed >= windowRemovals && p.failed > p.count && p.limit > 1 {
			p.slacken(0.5, now)
		}
		return
	}
	p.count++
	took := now.Sub(p.since)
	need := max(windowRemovals, windowRounds*p.limit)
	if p.gap > 0 {
		need = freshProbes // rates mean nothing then; the next probes decide
	}
	least := windowTime
	if p.doubling {
		least = doublingTime
	}
	if p.count < need || took < least {
		return
	}
	rate := float64(p.count) / took.Seconds()
	p.window(now)
	if p.lifted--; p.lifted <= 0 {
		p.ceiling = p.most
	}
	if p.slowCount() > 0 || len(p.recent) < freshProbes {
		return // not at ease, or not known yet: neither up nor down
	}
	if p.gap > 0 {
		if p.gap /= 2; p.gap < firstGap {
			p.gap = 0
		}
		return
	}
	p.step(rate)
}

// step decides after a window at ease: it weighs the step that is being tried, if any, and tries the next. It climbs to
// the best rate and then doubts it from time to time, on either side.
func (p *pacer) step(rate float64) {
	switch {
	case p.from == 0 && p.hold > 0:
		p.hold--
		return
	case p.from != 0 && !p.better(rate/p.fromRate):
		p.limit, p.from = p.from, 0
		p.recent = p.recent[:0]
		p.doubling, p.hold = false, 0
		if p.down = !p.down; !p.down {
			p.hold = holdWindows // both sides were tried
		}
		return
	}
	next := p.limit + 1
	switch {
	case p.doubling && p.bears(2*p.limit):
		next = 2 * p.limit
	case p.down:
		next = p.limit - 1
	}
	if next = min(next, p.ceiling); next < 1 || next == p.limit || next < p.limit && !p.down || next > p.limit && !p.bears(next) {
		p.from, p.doubling, p.hold, p.down = 0, false, holdWindows, !p.down
		return
	}
	p.from, p.fromRate, p.limit = p.limit, rate, next
	p.recent = p.recent[:0]
}

// bears reports whether the side probe would stay quick enough at another limit, if what it lost at this one grows with
// the limit.
func (p *pacer) bears(limit int) bool {
	return 1+p.lost()*float64(limit)/float64(p.limit) <= p.bearable()
}

// bearable is how many times slower the usual answer may get. Where a slow answer of the quiet runtime already takes several
// times as long as the usual one, a usual one like that leaves the slow ones of other clients where they were.
func (p *pacer) bearable() float64 {
	return max(slowFactor, float64(p.quiet)/float64(p.usual))
}

// lost is by which share the usual answer has become slower.
func (p *pacer) lost() float64 { return float64(median(p.recent))/float64(p.usual) - 1 }

// better reports whether a step with this gain stays. A doubling that gained little is the last.
func (p *pacer) better(gain float64) bool {
	switch {
	case p.down && p.limit >= cheapLimit:
		return gain >= 1/gainDear
	case p.down:
		return gain >= gainDown
	case p.limit > cheapLimit:
		p.doubling = p.doubling && gain >= gainDear
		return gain >= gainDear
	case p.doubling:
		return gain >= gainDouble
	}
	return gain >= gainUp
}
