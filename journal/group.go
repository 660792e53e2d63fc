package journal

import (
	"slices"
	"time"
)

// anchorTolerance is how far, in µs, the anchors of one stall may lie apart from record to record. On a quiet node they
// agree to a tenth of a millisecond; a starved one writes a line late. Relists start at least the kubelet's relist
// period of 1 s apart (pkg/kubelet/kubelet.go), so different stalls cannot come this near.
const (
	anchorTolerance       = 250_000
	anchorToleranceCoarse = 1_200_000 // where stamps count whole seconds
)

// The sync loop's back-off between skip lines: it doubles from the first to the last of these (syncLoop in
// pkg/kubelet/kubelet.go).
const (
	backoffFirst = int64(100 * time.Millisecond)
	backoffMost  = int64(5 * time.Second)
	backoffSlack = int64(3 * time.Millisecond)
)

// relistThreshold is the age, in ns, from which PLEG is unhealthy, unless the records say otherwise.
const relistThreshold = int64(3 * time.Minute)

// episodeGap is how far apart, in µs, unhealthy records of one episode may lie. The kubelet writes one every 5 s at
// least; a relist that succeeds for a moment does not end an incident for the person who has it.
const episodeGap = 2 * minute

// limit returns the threshold that a record states, in ns.
func (h *unhealthy) limit() int64 {
	if h.threshold != 0 {
		return int64(h.threshold) * 1e9
	}
	return relistThreshold
}

// fresh reports whether a record can be the first of a stall: its age is over the threshold by no more than the longest
// pause between two looks.
func (h *unhealthy) fresh() bool {
	return h.kind&hasAge != 0 && h.age <= h.limit()+backoffMost+int64(500*time.Millisecond)
}

// A stallBuilder gathers the records of one stall.
type stallBuilder struct {
	recs     []*unhealthy
	episode  *episodeBuilder
	anchor   int64 // latest, on the clock
	wall     int64 // latest, on the wall clock
	min, max int64 // of wall anchors
	coarse   bool
	timed    bool
	skipAge  int64 // age on the latest skip line; 0: none yet
	skipStep int64 // by how much it had grown then; 0: unknown
	maxAge   int64
}

// matches reports whether a record has the stall's anchor.
func (s *stallBuilder) matches(r *unhealthy) bool {
	if r.kind&hasAge == 0 || !r.timed || !s.timed {
		return false
	}
	tolerance := int64(anchorTolerance)
	if s.coarse || r.kind&coarse != 0 {
		tolerance = anchorToleranceCoarse
	}
	return abs(r.anchor(r.clock)-s.anchor) <= tolerance || abs(r.anchor(r.inner)-s.wall) <= tolerance
}

// add puts a record into the stall.
func (s *stallBuilder) add(r *unhealthy) {
	s.recs = append(s.recs, r)
	if r.kind&hasAge == 0 {
		return
	}
	if r.timed {
		a := r.anchor(r.inner)
		if !s.timed {
			s.min, s.max = a, a
		}
		s.anchor, s.wall, s.timed = r.anchor(r.clock), a, true
		s.min, s.max = min(s.min, a), max(s.max, a)
	}
	s.coarse = s.coarse || r.kind&coarse != 0
	s.maxAge = max(s.maxAge, r.age)
	if r.kind&condition == 0 {
		if s.skipStep = 0; s.skipAge != 0 {
			s.skipStep = r.age - s.skipAge
		}
		s.skipAge = r.age
	}
}

// continues reports whether a record goes on with the stall although its anchor differs, because the wall clock was set
// in between: the age, which the kubelet measures on the monotonic clock, goes on growing as the back-off wants it.
func (s *stallBuilder) continues(prev, r *unhealthy) bool {
	if r.kind&prev.kind&hasAge == 0 || r.source != prev.source || r.mono != 0 && prev.mono != 0 ||
		r.pid != prev.pid || r.age <= prev.age || s.skipAge == 0 {
		return false
	}
	grown := r.age - s.skipAge
	next := backoffFirst // what the loop sleeps after the latest skip line
	if s.skipStep != 0 {
		next = min(2*s.skipStep, backoffMost)
	}
	late := prev.age >= r.limit()+int64(10*time.Second) // far beyond where a new stall could begin
	if late {
		next = backoffMost
	}
	switch {
	case late && r.timed && prev.timed && r.inner < prev.inner && grown <= int64(time.Hour):
		return true
	case r.kind&condition != 0: // written by another loop, any time before the next skip line
		return grown <= next+backoffSlack
	case !late:
		return abs(grown-next) <= backoffSlack+next/200
	}
	for k := int64(1); k <= 3; k++ { // up to two lines may be missing
		if abs(grown-k*next) <= k*int64(100*time.Millisecond) {
			return true
		}
	}
	return false
}

// A grouping is the unhealthy records of one host, put into stalls and episodes.
type grouping struct {
	stalls   []*stallBuilder
	episodes []*episodeBuilder
}

// An episodeBuilder is an episode in the making.
type episodeBuilder struct {
	recs    []*unhealthy
	stalls  []*stallBuilder
	startup bool
	next    *unhealthy // the first unhealthy record after it with a time; nil without one
}

// group puts the records of one host, in order, into stalls and episodes. ended reports whether a mark of recovery lies
// between two readings of the clock.
func group(all []*unhealthy, ended func(from, to int64) bool) *grouping {
	g := &grouping{}
	owner := map[*unhealthy]*stallBuilder{}
	for i, r := range all {
		var s *stallBuilder
		var e *episodeBuilder
		if s = g.sameAnchor(r); s != nil {
			e = s.episode
		} else if i > 0 {
			prev := all[i-1]
			before := owner[prev]
			switch {
			case before.continues(prev, r), untimedSame(prev, r), prev.kind&r.kind&never != 0 && prev.pid == r.pid &&
				joins(prev, r):
				s, e = before, before.episode
			case joins(prev, r):
				e = before.episode
			}
		}
		if e == nil {
			e = &episodeBuilder{}
			g.episodes = append(g.episodes, e)
		}
		if s == nil {
			s = &stallBuilder{episode: e}
			g.stalls, e.stalls = append(g.stalls, s), append(e.stalls, s)
		}
		s.add(r)
		owner[r] = s
		e.recs = append(e.recs, r)
	}
	g.settle(ended)
	g.follow(all)
	return g
}

// sameAnchor looks for a stall with the record's anchor among the latest ones.
func (g *grouping) sameAnchor(r *unhealthy) *stallBuilder {
	const look = 64
	for _, s := range slices.Backward(g.stalls[max(0, len(g.stalls)-look):]) {
		if s.matches(r) {
			return s
		}
	}
	return nil
}

// untimedSame reports whether two records without a time, which follow each other in the text, are of one stall: the
// age rises.
func untimedSame(prev, r *unhealthy) bool {
	return (!r.timed || !prev.timed) && prev.kind&r.kind&hasAge != 0 && r.age >= prev.age && r.source == prev.source
}

// joins reports whether two records that follow each other belong to one episode though not to one stall.
func joins(prev, r *unhealthy) bool {
	switch {
	case !prev.timed || !r.timed: // the ages fall, or there are none
		return r.kind&never == 0 && !r.fresh() || r.kind&prev.kind&hasAge == 0
	case prev.source == r.source && prev.step != r.step:
		// The clock was set in between, so how much time passed is unknown. A record whose age is well over the
		// threshold shows that the loop had been skipping before it.
		return r.kind&hasAge != 0 && !r.fresh()
	}
	return r.clock-prev.clock <= episodeGap
}

// follow finds the record after each episode.
func (g *grouping) follow(all []*unhealthy) {
	place := make(map[*unhealthy]int, len(all))
	for i, r := range all {
		place[r] = i
	}
	for _, e := range g.episodes {
		end := e.interval().clockEnd
		for _, r := range all[place[e.recs[len(e.recs)-1]]+1:] {
			if r.timed && r.clock > end {
				e.next = r
				break
			}
		}
	}
}

// startupLasts is for how long, in µs, a kubelet may say "yet to be successful" and still be one that just starts. The
// kubelet grants a relist that once worked this time before it calls it unhealthy (genericPlegRelistThreshold in
// pkg/kubelet/kubelet.go); a first relist that takes longer is as broken. The 30 s that it waits for the runtime's
// status (maxWaitForContainerRuntime) are no measure: a runtime that loads a node full of containers takes longer.
const startupLasts = 3 * minute

// startupInside is how long, in µs, after the last unhealthy record a kubelet's restart still belongs to an incident
// that nothing has ended: systemd stops a service for up to 90 s, and starts it again after its RestartSec.
const startupInside = 5 * minute

// settle decides which episodes of one host are a kubelet's start, and puts a start that stands inside an incident
// into it.
func (g *grouping) settle(ended func(from, to int64) bool) {
	var out []*episodeBuilder
	var last *episodeBuilder // the last incident
	for _, e := range g.episodes {
		in := e.interval()
		if in.neverOnly && last != nil && in.timed {
			was := last.interval()
			gap := in.clockStart - was.clockEnd
			if was.timed && gap >= 0 && gap <= startupInside && e.recs[0].pid != last.recs[len(last.recs)-1].pid &&
				!ended(was.clockEnd, in.clockStart) {
				for _, s := range e.stalls {
					s.episode = last
				}
				last.stalls, last.recs = append(last.stalls, e.stalls...), append(last.recs, e.recs...)
				continue
			}
		}
		if e.startup = in.neverOnly && (!in.timed || in.clockEnd-in.clockStart < startupLasts); e.startup {
			out = append(out, e.splitByProcess()...)
			continue
		}
		last = e
		out = append(out, e)
	}
	g.episodes = out
}

// splitByProcess makes an episode of each kubelet process that starts within one, because each is a start of its own.
// What names no process stays with the record before it.
func (e *episodeBuilder) splitByProcess() []*episodeBuilder {
	var out []*episodeBuilder
	home := map[int32]*episodeBuilder{}
	owner := map[*unhealthy]*stallBuilder{}
	for _, s := range e.stalls {
		for _, r := range s.recs {
			owner[r] = s
		}
	}
	to := &episodeBuilder{startup: true}
	out = append(out, to)
	for _, r := range e.recs {
		if r.pid != 0 {
			if home[r.pid] == nil && len(home) > 0 {
				home[r.pid] = &episodeBuilder{startup: true}
				out = append(out, home[r.pid])
			} else if home[r.pid] == nil {
				home[r.pid] = to
			}
			to = home[r.pid]
		}
		to.recs = append(to.recs, r)
		if s := owner[r]; s.episode == e {
			s.episode = to
			to.stalls = append(to.stalls, s)
		}
	}
	return out
}

// An interval is what an episode covers on the clock of the sequence and on the wall.
type interval struct {
	start, end           int64
	clockStart, clockEnd int64
	timed                bool
	anchor               int64 // wall; first known
	anchored             bool
	lines                int
	maxAge, minAge       int64 // ns; of the records that state one
	threshold            int64
	neverOnly            bool
}

// interval measures an episode.
func (e *episodeBuilder) interval() interval {
	in := interval{neverOnly: true}
	for _, r := range e.recs {
		in.lines += int(max(1, r.lines))
		in.threshold = max(in.threshold, int64(r.threshold))
		in.neverOnly = in.neverOnly && r.kind&never != 0
		if r.kind&hasAge != 0 {
			in.maxAge = max(in.maxAge, r.age)
			if in.minAge == 0 || r.age < in.minAge {
				in.minAge = r.age
			}
			if r.timed && !in.anchored {
				in.anchor, in.anchored = r.anchor(r.inner), true
			}
		}
		if !r.timed {
			continue
		}
		if !in.timed {
			in.start, in.clockStart, in.timed = r.inner, r.clock, true
		}
		in.end, in.clockEnd = r.inner, r.clock
	}
	return in
}

// clockStepSeconds is how far apart the anchors of one stall must lie for the wall clock to have been set meanwhile.
const clockStepSeconds = 30

// stepped reports whether the wall clock was set during an episode of one stall. The ages in its records were not
// touched by that: the kubelet measures them by a clock that runs evenly.
func stepped(e *Episode) bool {
	return len(e.Stalls) == 1 && e.Stalls[0].SpreadSeconds >= clockStepSeconds
}

// episode makes the report's form of an episode, without recovery and restarts.
func (e *episodeBuilder) episode(in interval) Episode {
	out := Episode{
		Kind: Incident, Lines: in.lines, MaxLastSeenSeconds: time.Duration(in.maxAge).Seconds(),
		ThresholdSeconds: float64(in.threshold), Stalls: e.stallList(), Causes: []Cause{},
	}
	if e.startup {
		out.Kind = Startup
	}
	if in.timed {
		out.Start, out.End = timeOf(in.start), timeOf(in.end)
		out.Seconds = float64(in.clockEnd-in.clockStart) / 1e6
	}
	if in.anchored {
		out.Anchor = timeOf(in.anchor)
	}
	if stepped(&out) && in.timed {
		out.Seconds = float64(in.maxAge-in.minAge) / 1e9
		if out.End.Before(*out.Start) {
			out.End = timeOf(in.start + (in.maxAge-in.minAge)/1000)
		}
	}
	return out
}

// stallList lists the stalls of an episode, if there is more than one with an anchor.
func (e *episodeBuilder) stallList() []Stall {
	var out []Stall
	for _, s := range e.stalls {
		if !s.timed {
			continue
		}
		lines := 0
		for _, r := range s.recs {
			lines += int(max(1, r.lines))
		}
		first, last := s.recs[0], s.recs[len(s.recs)-1]
		out = append(out, Stall{
			Anchor: *timeOf(first.anchor(first.inner)), First: *timeOf(first.inner), Last: *timeOf(last.inner),
			Lines:              lines,
			MaxLastSeenSeconds: time.Duration(s.maxAge).Seconds(), SpreadSeconds: float64(s.max-s.min) / 1e6,
		})
	}
	// One stall needs no list, unless a step of the clock shows in it.
	if len(out) == 1 && out[0].SpreadSeconds < 1 {
		return nil
	}
	slices.SortStableFunc(out, func(a, b Stall) int { return a.First.Compare(b.First) })
	return out
}
