package journal

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// anchorTolerance is how far, in µs, the anchors of one stall may lie apart from record to record. On a quiet node
// they agree to a tenth of a millisecond; a starved one writes a line late. Relists start at least the kubelet's
// relist period of 1 s apart (pkg/kubelet/kubelet.go), so different stalls cannot come this near.
const (
	anchorTolerance       = 250_000
	anchorToleranceCoarse = 1_200_000 // where stamps count whole seconds
)

// The sync loop's back-off between skip lines, in ns: it doubles from the first to the last of these (syncLoop in
// pkg/kubelet/kubelet.go).
const (
	backoffFirst = int64(100 * time.Millisecond)
	backoffMost  = int64(5 * time.Second)
	backoffSlack = int64(3 * time.Millisecond)
)

// relistThreshold is the age, in ns, from which PLEG is unhealthy, unless the records state another.
const relistThreshold = int64(3 * time.Minute)

// episodeGap is how far apart, in µs, unhealthy records of one episode may lie. The kubelet writes one every 5 s at
// least; a relist that succeeds for a moment does not end an incident for the person who has it.
const episodeGap = 2 * minute

// limit returns the threshold that a record states, in ns.
func (u *unhealthyRecord) limit() int64 { return cmp.Or(int64(u.threshold)*1e6, relistThreshold) }

// scaled returns a period of a kubelet, shortened as much as the threshold of the record: kdiag reproduce shortens all.
func (u *unhealthyRecord) scaled(d int64) int64 {
	return int64(float64(d) * float64(min(u.limit(), relistThreshold)) / float64(relistThreshold))
}

// fresh reports whether a record can be the first of a stall: its age is over the threshold by no more than the longest
// pause between two looks.
func (u *unhealthyRecord) fresh() bool {
	return u.kind&hasAge != 0 && u.age <= u.limit()+u.scaled(backoffMost)+int64(500*time.Millisecond)
}

// A stallBuilder gathers the records of one stall.
type stallBuilder struct {
	recs     []*unhealthyRecord
	lines    int
	episode  *episodeBuilder
	anchor   int64 // latest, on the clock
	wall     int64 // latest, on the wall clock
	min, max int64 // of wall anchors
	timed    bool
	coarse   bool
	skipAge  int64 // age on the latest skip line; 0: none yet
	skipStep int64 // by how much it had grown then; 0: unknown
	maxAge   int64
	relists  *[]time.Duration // of its chain; set by chain
}

// matches reports whether a record has the stall's anchor.
func (s *stallBuilder) matches(u *unhealthyRecord) bool {
	tolerance := int64(anchorTolerance)
	if s.coarse || u.kind&coarse != 0 {
		tolerance = anchorToleranceCoarse
	}
	return u.kind&hasAge != 0 && u.known && s.timed &&
		(abs(u.anchor(u.clock)-s.anchor) <= tolerance || abs(u.anchor(u.at)-s.wall) <= tolerance)
}

// add puts a record into the stall.
func (s *stallBuilder) add(u *unhealthyRecord) {
	s.recs = append(s.recs, u)
	s.lines += 1 + int(u.folded)
	if u.kind&hasAge == 0 {
		return
	}
	if u.known {
		wall := u.anchor(u.at)
		if !s.timed {
			s.min, s.max = wall, wall
		}
		s.anchor, s.wall, s.timed = u.anchor(u.clock), wall, true
		s.min, s.max = min(s.min, wall), max(s.max, wall)
	}
	s.coarse = s.coarse || u.kind&coarse != 0
	s.maxAge = max(s.maxAge, u.age)
	if u.kind&condition == 0 {
		if s.skipStep = 0; s.skipAge != 0 {
			s.skipStep = u.age - s.skipAge
		}
		s.skipAge = u.age
	}
}

// continues reports whether a record goes on with the stall although its anchor differs, because the wall clock was set
// in between: the age, which the kubelet measures on the monotonic clock, goes on growing by the back-off.
func (s *stallBuilder) continues(prev, u *unhealthyRecord) bool {
	if u.kind&prev.kind&hasAge == 0 || u.source != prev.source || u.pid != prev.pid || u.age <= prev.age ||
		s.skipAge == 0 {
		return false
	}
	grown := u.age - s.skipAge
	next := backoffFirst // the loop's sleep after the latest skip line
	if s.skipStep != 0 {
		next = min(2*s.skipStep, backoffMost)
	}
	switch {
	case prev.age >= u.limit()+int64(10*time.Second): // far beyond where a new stall could begin; lines may be missing
		return grown <= 3*(backoffMost+int64(100*time.Millisecond)) || u.known && prev.known && u.at < prev.at
	case u.kind&condition != 0: // written by another loop, any time before the next skip line
		return grown <= next+backoffSlack
	}
	return abs(grown-next) <= backoffSlack+next/200
}

// startOf reports whether the stall is a kubelet's start, which a record states again.
func (s *stallBuilder) startOf(u *unhealthyRecord) bool {
	first, last := s.recs[0], s.recs[len(s.recs)-1]
	return last.kind&u.kind&never != 0 && (u.pid == first.pid || u.pid == 0 || first.pid == 0) && joins(last, u)
}

// A grouping is the unhealthy records of one host, put into stalls and episodes.
type grouping struct {
	stalls   []*stallBuilder
	episodes []*episodeBuilder
	timed    []*unhealthyRecord // that have a time, by the clock
}

// group puts the records of one host, in order, into stalls and episodes. ended reports whether a mark of recovery lies
// between two readings of the clock.
func group(all []*unhealthyRecord, ended func(from, to int64) bool) *grouping {
	const look = 64
	g := &grouping{}
	var prev *unhealthyRecord
	var before *stallBuilder // of prev
	for _, u := range all {
		if u.known {
			g.timed = append(g.timed, u)
		}
		var s *stallBuilder
		var e *episodeBuilder
		for _, o := range slices.Backward(g.stalls[max(0, len(g.stalls)-look):]) {
			if o.matches(u) || o.startOf(u) {
				s = o
				break
			}
		}
		switch {
		case s != nil:
		case prev != nil && (before.continues(prev, u) || untimedSame(prev, u)):
			s = before
		case prev != nil && joins(prev, u) && prev.kind&u.kind&never == 0:
			e = before.episode
		}
		if s == nil {
			if e == nil {
				e = &episodeBuilder{neverOnly: true}
				g.episodes = append(g.episodes, e)
			}
			s = &stallBuilder{episode: e}
			g.stalls, e.stalls = append(g.stalls, s), append(e.stalls, s)
		}
		s.add(u)
		s.episode.add(u)
		prev, before = u, s
	}
	g.settle(ended)
	return g
}

// untimedSame reports whether two records without a time, which follow each other in the text, are of one stall: the
// age rises.
func untimedSame(prev, u *unhealthyRecord) bool {
	return (!u.known || !prev.known) && prev.kind&u.kind&hasAge != 0 && u.age >= prev.age && u.source == prev.source
}

// joins reports whether two records that follow each other belong to one episode though not to one stall.
func joins(prev, u *unhealthyRecord) bool {
	switch {
	case !prev.known || !u.known: // the ages fall, or there are none
		return u.kind&never == 0 && !u.fresh() || u.kind&prev.kind&hasAge == 0
	case prev.source == u.source && prev.step != u.step:
		// The clock was set in between, so how much time passed is unknown. A record whose age is well over the
		// threshold shows that the loop had been skipping before it.
		return u.kind&hasAge != 0 && !u.fresh()
	}
	return u.clock-prev.clock <= max(u.scaled(episodeGap), second)
}

// startupLasts is for how long, in µs, a kubelet may log "yet to be successful" and still be one that just starts. The
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
		if last != nil && e.neverOnly && e.timed && last.timed && e.recs[0].pid != last.recs[len(last.recs)-1].pid {
			if gap := e.clockStart - last.clockEnd; gap >= 0 && gap <= startupInside &&
				!ended(last.clockEnd, e.clockStart) {
				last.stalls = append(last.stalls, e.stalls...)
				for _, u := range e.recs {
					last.add(u)
				}
				continue
			}
		}
		e.startup = e.neverOnly && !e.midway() && (!e.timed || e.clockEnd-e.clockStart < startupLasts)
		if !e.startup {
			last = e
		}
		out = append(out, e)
	}
	g.episodes = out
}

// midway reports whether a log begins in the middle of an episode: the pauses after its first records are the longest
// of the loop's back-off, so the kubelet had started before.
func (e *episodeBuilder) midway() bool {
	first := e.recs[:min(len(e.recs), 3)]
	for i, u := range first[1:] {
		if prev := first[i]; !u.known || !prev.known || u.clock-prev.clock < backoffMost/1000-second {
			return false
		}
	}
	return len(first) > 1
}

// next returns the first unhealthy record after an episode; nil without one.
func (g *grouping) next(e *episodeBuilder) *unhealthyRecord {
	i := sort.Search(len(g.timed), func(i int) bool { return g.timed[i].clock > e.clockEnd })
	if i == len(g.timed) {
		return nil
	}
	return g.timed[i]
}

// An episodeBuilder gathers the records of an episode, with its bounds on the wall clock and on the sequence's clock.
type episodeBuilder struct {
	recs                 []*unhealthyRecord
	stalls               []*stallBuilder
	startup              bool
	start, end           int64
	clockStart, clockEnd int64
	timed                bool
	anchor               int64 // wall; first known
	anchored             bool
	lines                int
	maxAge, minAge       int64 // ns; of the records that state one
	threshold            int64
	neverOnly            bool

	// Of a streak, which has no unhealthy records.
	code   string // of its first record
	source uint16 // of its last record
}

func (e *episodeBuilder) add(u *unhealthyRecord) {
	e.recs = append(e.recs, u)
	e.lines += 1 + int(u.folded)
	e.threshold = max(e.threshold, int64(u.threshold))
	e.neverOnly = e.neverOnly && u.kind&never != 0
	if u.kind&hasAge != 0 {
		e.maxAge, e.minAge = max(e.maxAge, u.age), min(cmp.Or(e.minAge, u.age), u.age)
		if u.known && !e.anchored {
			e.anchor, e.anchored = u.anchor(u.at), true
		}
	}
	if !u.known {
		return
	}
	if !e.timed {
		e.start, e.clockStart, e.timed = u.at, u.clock, true
	}
	e.end, e.clockEnd = u.at, u.clock
}

// clockStepSeconds is how far apart the anchors of one stall must lie for the wall clock to have been set meanwhile.
const clockStepSeconds = 30

// stepped reports whether the wall clock was set during an episode of one stall. The ages in its records were not
// touched by that: the kubelet measures them by a clock that runs evenly.
func stepped(e *Episode) bool {
	return len(e.Stalls) == 1 && e.Stalls[0].SpreadSeconds >= clockStepSeconds
}

// episode makes the report's form of an episode, without recovery and restarts.
func (e *episodeBuilder) episode() Episode {
	out := Episode{
		Kind: Incident, Lines: e.lines, MaxLastSeenSeconds: time.Duration(e.maxAge).Seconds(),
		ThresholdSeconds: float64(e.threshold) / 1000, Stalls: e.stallList(), Causes: []Cause{},
	}
	if e.startup {
		out.Kind = Startup
	}
	if e.timed {
		out.Start, out.End = timeOf(e.start), timeOf(e.end)
		out.Seconds = float64(e.clockEnd-e.clockStart) / 1e6
	}
	if e.anchored {
		out.Anchor = timeOf(e.anchor)
	}
	if stepped(&out) && e.timed {
		out.Seconds = float64(e.maxAge-e.minAge) / 1e9
		if out.End.Before(*out.Start) {
			out.End = timeOf(e.start + (e.maxAge-e.minAge)/1000)
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
		first, last := s.recs[0], s.recs[len(s.recs)-1]
		out = append(out, Stall{
			Anchor: *timeOf(first.anchor(first.at)), First: *timeOf(first.at), Last: *timeOf(last.at),
			Lines:              s.lines,
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
