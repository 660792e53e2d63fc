package journal

import (
	"cmp"
	"slices"
	"time"
)

// episodeGap is how far apart, in µs, unhealthy records of one episode may lie. The kubelet writes one every 5 s at
// least; a relist that succeeds for a moment does not end an incident for the person who has it.
const episodeGap = 2 * minute

// A run is an episode in the making.
type run struct {
	recs   []int // indices into the sequence, in its order
	stalls []int // indices into the list of stalls
}

// A grouping is the unhealthy records of one host, put into stalls and episodes.
type grouping struct {
	recs   []rec
	stalls []stallRun
	runs   []run
	owner  []int // stall of each record
}

// group puts the records of one host, in order, into stalls and episodes.
func group(recs []rec) *grouping {
	g := &grouping{recs: recs, owner: make([]int, len(recs))}
	for i := range recs {
		g.place(i)
	}
	g.runs = slices.DeleteFunc(g.runs, func(r run) bool { return len(r.recs) == 0 })
	return g
}

// place finds the stall and the episode of one record.
func (g *grouping) place(i int) {
	r := &g.recs[i]
	if s, ok := g.sameAnchor(r); ok {
		g.put(i, s, g.stalls[s].episode)
		return
	}
	if i == 0 {
		g.put(i, g.newStall(), g.newRun())
		return
	}
	prev := &g.recs[i-1]
	s := g.owner[i-1]
	st := &g.stalls[s]
	switch {
	case st.continues(prev, r), g.untimedSame(prev, r), prev.kind&r.kind&never != 0 && prev.pid == r.pid && joins(prev, r):
		g.put(i, s, st.episode)
	case joins(prev, r):
		g.put(i, g.newStall(), st.episode)
	default:
		g.put(i, g.newStall(), g.newRun())
	}
}

// sameAnchor looks for a stall with the record's anchor among the latest ones.
func (g *grouping) sameAnchor(r *rec) (int, bool) {
	const look = 64
	for s := len(g.stalls) - 1; s >= 0 && s >= len(g.stalls)-look; s-- {
		if g.stalls[s].matches(r) {
			return s, true
		}
	}
	return 0, false
}

// untimedSame reports whether two records without a time, which follow each other in the text, are of one stall: the age rises.
func (g *grouping) untimedSame(prev, r *rec) bool {
	return (!r.timed || !prev.timed) && prev.kind&r.kind&hasAge != 0 && r.age >= prev.age && r.source == prev.source
}

// joins reports whether two records that follow each other belong to one episode though not to one stall.
func joins(prev, r *rec) bool {
	switch {
	case !prev.timed || !r.timed: // the ages fall, or there are none
		return r.kind&never == 0 && !r.fresh() || r.kind&hasAge == 0 || prev.kind&hasAge == 0
	case prev.source == r.source && prev.step != r.step:
		// The clock was set in between, so how much time passed is unknown. A record whose age is well over the
		// threshold says that the loop had been skipping before it.
		return r.kind&hasAge != 0 && !r.fresh()
	}
	return r.clock-prev.clock <= episodeGap
}

func (g *grouping) newStall() int {
	g.stalls = append(g.stalls, stallRun{episode: -1})
	return len(g.stalls) - 1
}

func (g *grouping) newRun() int {
	g.runs = append(g.runs, run{})
	return len(g.runs) - 1
}

func (g *grouping) put(i, s, e int) {
	st := &g.stalls[s]
	if st.episode < 0 {
		st.episode = e
		g.runs[e].stalls = append(g.runs[e].stalls, s)
	}
	st.add(i, &g.recs[i])
	g.owner[i] = s
	g.runs[e].recs = append(g.runs[e].recs, i)
}

// join puts the later episode into the earlier one.
func (g *grouping) join(into, from int) {
	for _, s := range g.runs[from].stalls {
		g.stalls[s].episode = into
	}
	g.runs[into].stalls = append(g.runs[into].stalls, g.runs[from].stalls...)
	g.runs[into].recs = append(g.runs[into].recs, g.runs[from].recs...)
	g.runs[from] = run{}
}

// A span is what an episode covers on the clock of the sequence and on the wall.
type span struct {
	first, last           *rec // in the order of the sequence
	start, end            int64
	clockStart, clockEnd  int64
	timed                 bool
	anchor                int64 // wall; first known
	anchored              bool
	lines                 int
	maxAge, minAge        int64 // ns; of the records that state one
	threshold             int64
	neverOnly, anyPending bool
}

// span measures an episode.
func (g *grouping) span(r *run) span {
	s := span{neverOnly: true}
	for n, i := range r.recs {
		rec := &g.recs[i]
		if n == 0 {
			s.first = rec
		}
		s.last = rec
		s.lines += int(max(1, rec.lines))
		s.anyPending = s.anyPending || rec.kind&pending != 0
		if rec.threshold != 0 {
			s.threshold = max(s.threshold, int64(rec.threshold))
		}
		if rec.kind&never == 0 {
			s.neverOnly = false
		}
		t, ok := rec.at()
		if rec.kind&hasAge != 0 {
			s.maxAge = max(s.maxAge, rec.age)
			if s.minAge == 0 || rec.age < s.minAge {
				s.minAge = rec.age
			}
			if ok && !s.anchored {
				s.anchor, s.anchored = rec.anchor(t), true
			}
		}
		if !ok {
			continue
		}
		if !s.timed {
			s.start, s.clockStart, s.timed = t, rec.clock, true
		}
		s.end, s.clockEnd = t, rec.clock
	}
	return s
}

// clockStepSeconds is how far apart the anchors of one stall must lie for the wall clock to have been set meanwhile.
const clockStepSeconds = 30

// stepped reports whether the wall clock was set during an episode of one stall. The ages in its records were not touched by that:
// the kubelet measures them by a clock that runs evenly.
func stepped(e *Episode) bool {
	return len(e.Stalls) == 1 && e.Stalls[0].SpreadSeconds >= clockStepSeconds
}

// episode makes the report's form of a run, without recovery and causes.
func (g *grouping) episode(r *run, s span) Episode {
	e := Episode{
		Kind:               Incident,
		Lines:              s.lines,
		MaxLastSeenSeconds: time.Duration(s.maxAge).Seconds(),
		ThresholdSeconds:   float64(s.threshold),
		Causes:             []Cause{},
	}
	if s.timed {
		e.Start, e.End = timeOf(s.start), timeOf(s.end)
		e.Seconds = float64(s.clockEnd-s.clockStart) / 1e6
	}
	if s.anchored {
		e.Anchor = timeOf(s.anchor)
	}
	e.Stalls = g.stallsOf(r)
	if stepped(&e) && s.timed {
		e.Seconds = float64(s.maxAge-s.minAge) / 1e9
		if e.End.Before(*e.Start) {
			e.End = timeOf(s.start + (s.maxAge-s.minAge)/1000)
		}
	}
	return e
}

// stallsOf lists the stalls of an episode, if there is more than one with an anchor.
func (g *grouping) stallsOf(r *run) []Stall {
	var out []Stall
	for _, i := range r.stalls {
		st := &g.stalls[i]
		if !st.timed {
			continue
		}
		lines := 0
		var first, last int64
		for n, j := range st.recs {
			lines += int(max(1, g.recs[j].lines))
			t, _ := g.recs[j].at()
			if n == 0 {
				first = t
			}
			last = t
		}
		t, _ := g.recs[st.recs[0]].at()
		out = append(out, Stall{
			Anchor: *timeOf(g.recs[st.recs[0]].anchor(t)), First: *timeOf(first), Last: *timeOf(last), Lines: lines,
			MaxLastSeenSeconds: time.Duration(st.maxAge).Seconds(), SpreadSeconds: float64(st.max-st.min) / 1e6,
		})
	}
	// One stall needs no list, unless a step of the clock shows in it.
	if len(out) == 1 && out[0].SpreadSeconds < 1 {
		return nil
	}
	slices.SortStableFunc(out, func(a, b Stall) int { return cmp.Compare(a.First.UnixMicro(), b.First.UnixMicro()) })
	return out
}
