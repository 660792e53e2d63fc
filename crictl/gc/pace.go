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
	// jumpFactor is how slow a single probe must be to count at once. A runtime that collects its garbage after removals
	// makes everybody wait for some tens of milliseconds, whatever the pace.
	jumpFactor = 4
	// recentProbes is how many probes are looked at together, and slowProbes how many of them, beyond the slow ones of the
	// quiet runtime, make it slow. One alone is noise: every runtime collects garbage at times.
	recentProbes = 8
	slowProbes   = 3
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
	// gain is by how much more in flight must raise the rate to be worth it: what only waits in the runtime gains nothing.
	gain = 1.03
	// clearLoss is the share of the best rate below which a limit of the climb has lost by more than chance.
	clearLoss = 0.7
	// smoothing is the weight of the newest rate among those before it.
	smoothing = 0.5
	// holdWindows is how many windows go by before another limit is tried, and ceilingWindows how many before one at which
	// the runtime was slow is tried again.
	holdWindows    = 2
	ceilingWindows = 3
	// windowRemovals, windowRounds and windowTime are the least that a window of measurement holds: removals, removals by
	// the limit, and time.
	windowRemovals = 8
	windowRounds   = 3
	windowTime     = time.Second
	climbTime      = 100 * time.Millisecond // instead, on the way up
	// relistShare is the part of another client's relist by which the side probe may be late without harm to it: probes
	// that take less than that count as that much.
	relistShare = 3
)

// A pacer decides how many removals may run at a time. It is pure: it is told what happened and when.
//
// It climbs by doubling as long as the side probe stays quick, whatever the rate, since a runtime may do worse with two at
// a time than with one and better again with eight. Then it goes down as long as that costs nothing, and from time to time
// tries other limits.
type pacer struct {
	limits []int         // that may be, rising
	at     int           // index of limit in limits, unless it is 0
	limit  int           // removals at a time; 0 is a pause
	gap    time.Duration // between the starts of removals, with a limit of 1
	quiet  time.Duration // a slow answer of the quiet runtime to the side probe
	usual  time.Duration // the median one
	relist time.Duration // of the quiet runtime
	recent []time.Duration

	good        int             // answers in a row during a pause
	idle        []time.Duration // probes of the pause or calibration
	calibrating bool            // nothing is removed, to see how quick the runtime is without
	calibrated  time.Time       // the last time
	least       time.Duration   // the usual time is never taken for less than this
	failed      int             // removals of this window that the runtime refused
	reason      string          // of the pause
	climbing    bool
	rate        float64 // removals per second at the limit that is kept, smoothed
	home        int     // index of that limit, while another is tried or the climb goes on
	best        int     // index of the best limit of the climb, and its rate
	bestRate    float64
	lost        int // windows of the climb with a clear loss, in a row
	trying      bool
	trial       int // of trials: the one that is being tried, or comes next
	hold        int // windows until then
	ceiling     int // highest index that may be climbed to
	lifted      int // windows until the ceiling goes
	count       int // removals of this window
	since       time.Time
}

// newPacer starts with what the probes of the quiet runtime took, and a relist.
func newPacer(most int, quiet []time.Duration, relist time.Duration, now time.Time) *pacer {
	p := &pacer{relist: relist, least: max(leastQuiet, relist/relistShare)}
	for n := 1; n < most; n += max(1, n/4) {
		p.limits = append(p.limits, n)
	}
	p.limits = append(p.limits, most)
	p.learn(quiet)
	p.least = p.usual
	p.restart(now)
	return p
}

// cap begins anew with at most so many at a time.
func (p *pacer) cap(most int, now time.Time) {
	if i := slices.IndexFunc(p.limits, func(n int) bool { return n > most }); i > 0 {
		p.limits = p.limits[:i]
	}
	if p.limit > 0 {
		p.restart(now)
	}
	p.ceiling = min(p.ceiling, len(p.limits)-1)
}

// restart begins the climb anew.
func (p *pacer) restart(now time.Time) {
	p.at, p.home, p.limit, p.gap, p.rate = 0, 0, p.limits[0], 0, 0
	p.climbing, p.trying, p.trial, p.hold, p.ceiling = true, false, 0, 0, len(p.limits)-1
	p.best, p.bestRate, p.lost = 0, 0, 0
	p.window(now)
}

// learn takes the median of the samples and the slowest: answers have a long tail, of several times the median even on a
// quiet runtime, and the two are judged apart.
func (p *pacer) learn(samples []time.Duration) {
	p.usual = max(p.least, median(samples))
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

func (p *pacer) slow() time.Duration {
	return max(time.Duration(slowFactor*float64(p.quiet)), p.quiet+p.relist)
}

func (p *pacer) paused() bool { return p.limit == 0 && !p.calibrating }

// pause stops all removals until the probe has been answered well twice.
func (p *pacer) pause(reason string) {
	if !p.paused() {
		p.limit, p.gap, p.idle, p.calibrating = 0, 0, nil, false
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
	case took > p.jump():
		p.slacken(0.5, now)
	case p.slowCount() >= slowProbes, len(p.recent) == recentProbes && 1+p.late() > p.bearable():
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

func (p *pacer) jump() time.Duration {
	return max(jumpFactor*p.quiet, p.quiet+jumpFactor*p.relist)
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
	p.restart(now)
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
		p.reason, p.recent = "", p.recent[:0]
		p.restart(now)
	}
}

// slacken goes down to a share of the limit, by one step at least; below 1 the removals are spaced out, and in the end
// stopped.
func (p *pacer) slacken(share float64, now time.Time) {
	p.climbing, p.trying, p.rate, p.hold = false, false, 0, holdWindows
	p.recent = p.recent[:0]
	defer p.window(now)
	if p.at > 0 {
		p.ceiling, p.lifted = p.at-1, ceilingWindows
		aim := int(share * float64(p.limit))
		for p.at--; p.at > 0 && p.limits[p.at] > aim; {
			p.at--
		}
		p.home, p.limit = p.at, p.limits[p.at]
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
	if p.climbing || p.gap > 0 {
		least = climbTime
	}
	if p.count < need || took < least {
		return
	}
	rate := float64(p.count) / took.Seconds()
	p.window(now)
	if p.lifted--; p.lifted <= 0 {
		p.ceiling = len(p.limits) - 1
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

// trials are the limits that are tried beside the one that is kept, as factors, in this order. 0 and 1 stand for the next
// lower and higher one.
func trials() []float64 { return []float64{0.5, 2, 0, 1} }

// step decides after a window at ease.
func (p *pacer) step(rate float64) {
	switch {
	case p.climbing:
		p.climb(rate)
	case p.trying:
		p.trying = false
		if up := p.at > p.home; up && rate >= gain*p.rate || !up && gain*rate >= p.rate {
			p.keep(p.at, rate)
			return
		}
		p.trial = (p.trial + 1) % len(trials())
		p.hold = holdWindows
		p.move(p.home)
	case p.rate == 0 && rate < clearLoss*p.bestRate && p.best != p.at:
		p.keep(p.best, 0)
	case p.rate == 0:
		p.rate = rate
	default:
		p.rate += smoothing * (rate - p.rate)
		if p.hold--; p.hold <= 0 {
			p.try()
		}
	}
}

// climb goes on to twice the limit while the side probe bears it. Windows are short on the way, and one that a pause of the
// runtime fell into says nothing: only two bad ones in a row end the climb, and what it ends at is kept only if a long
// window does not show a clear loss either.
func (p *pacer) climb(rate float64) {
	p.lost++
	if rate >= clearLoss*p.bestRate {
		p.lost = 0
	}
	if rate >= p.bestRate {
		p.best, p.bestRate = p.at, rate
	}
	next := p.towards(2)
	switch {
	case p.lost >= 2:
		p.climbing = false
		p.keep(p.best, 0)
	case next == p.at || !p.bears(p.limits[next]):
		p.climbing = false
		p.keep(p.at, 0)
	default:
		p.move(next)
	}
}

// keep makes a limit the one that is kept. After that the same trial comes again, and soon: one that was worth it often is
// worth it twice.
func (p *pacer) keep(at int, rate float64) {
	p.home, p.rate, p.hold = at, rate, 1
	p.move(at)
}

// try moves to the limit that is to be tried next.
func (p *pacer) try() {
	to := p.towards(trials()[p.trial])
	if to == p.at || !p.bears(p.limits[to]) {
		p.trial = (p.trial + 1) % len(trials())
		p.hold = 1
		return
	}
	p.trying, p.home = true, p.at
	p.move(to)
}

// towards is the index of the limit at a factor of the present one, as in trials, between the lowest and the ceiling.
func (p *pacer) towards(factor float64) int {
	to := p.at
	switch aim := int(factor * float64(p.limit)); {
	case factor == 0:
		to--
	case factor == 1:
		to++
	case factor < 1:
		for to > 0 && p.limits[to] > aim {
			to--
		}
	default:
		for to < len(p.limits)-1 && p.limits[to] < aim {
			to++
		}
	}
	return max(0, min(to, p.ceiling))
}

func (p *pacer) move(to int) {
	if to != p.at {
		p.recent = p.recent[:0]
	}
	p.at, p.limit = to, p.limits[to]
}

// bears reports whether the side probe would stay quick enough at another limit, if what it lost at this one grows with
// the limit. Too few answers are not held against it.
func (p *pacer) bears(limit int) bool {
	return len(p.recent) < recentProbes/2 || 1+p.late()*float64(limit)/float64(p.limit) <= p.bearable()
}

// bearable is how many times slower the usual answer may get. Where a slow answer of the quiet runtime already takes several
// times as long as the usual one, a usual one like that leaves the slow ones of other clients where they were.
func (p *pacer) bearable() float64 {
	return max(slowFactor, float64(p.quiet)/float64(p.usual))
}

// late is by which share the usual answer has become slower.
func (p *pacer) late() float64 { return float64(median(p.recent))/float64(p.usual) - 1 }
