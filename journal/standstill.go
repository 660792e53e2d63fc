package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// standsFrom is how much later than it was due the first skip line must come for the loop to have stood still. A pass of a
	// loop that is only busy takes seconds (housekeeping in pkg/kubelet/kubelet.go warns from 1 s on).
	standsFrom = 30 * time.Second
	// wakes is how long, in µs, after a standstill its traces appear: calls whose deadline has passed meanwhile fail at once.
	wakes = 2 * second
	// hungMost is the most that a cause is worth which a standstill of the kubelet explains.
	hungMost = 0.3
)

// quiet is the time before a skip line that came late, µs.
type quiet struct {
	from, to int64         // between records of the kubelet; from is 0 if none is known
	age, due time.Duration // that the line states, and from which on a line was due
	others   bool          // something else on the node wrote meanwhile
}

// standstill finds out whether the kubelet's loop stood still before the first skip line. The loop looks at the age before each pass, at
// least every 5 s once it skips, so the first line of a stall has an age of the threshold and a few seconds. One that is much older is the
// first all the same if the loop's back-off begins with it: the next line comes 100 ms later, or the loop does work again at
// once. In the middle of a stall it would sleep for 5 s (syncLoop in pkg/kubelet/kubelet.go).
func (c *caseFile) standstill(g *grouping, r *run) {
	i := slices.IndexFunc(r.recs, func(i int) bool { return g.recs[i].kind&condition == 0 })
	if i < 0 {
		return
	}
	first := &g.recs[r.recs[i]]
	at, timed := first.at()
	late := time.Duration(first.age - first.limit() - backoffMost)
	if first.kind&hasAge == 0 || first.kind&never != 0 || !timed || late < standsFrom || !c.begins(g, r.recs[i:], at) {
		return
	}
	q := quiet{to: at, age: time.Duration(first.age), due: time.Duration(first.limit())}
	anchor := first.anchor(at)
	for _, b := range c.bursts {
		begin, _ := b.first.at()
		end, ok := b.last.at()
		code := c.f.code(b)
		inside := ok && begin < at-wakes && end > anchor
		switch {
		case inside && proves(code):
			return
		case ok && end < at-wakes && b.pid != 0 && b.pid == first.pid:
			q.from = max(q.from, end)
		case inside && begin > anchor && c.f.catalogue[code].Lane != signature.Kubelet:
			q.others = true
		}
	}
	for _, s := range c.f.syncs {
		if t, _ := s.at(); t < at-wakes && s.pid != 0 && s.pid == first.pid {
			q.from = max(q.from, t)
		}
	}
	c.stood, c.silence = late, q
}

// begins reports whether the first of some records begins the loop's back-off, or is all of it.
func (c *caseFile) begins(g *grouping, recs []int, at int64) bool {
	const soon = int64(time.Second) // 100 ms, and what a busy node adds
	first := &g.recs[recs[0]]
	for _, i := range recs[1:] {
		if next := &g.recs[i]; next.kind&condition == 0 {
			grown := next.age - first.age
			return next.pid == first.pid && next.kind&hasAge != 0 && grown > 0 && grown < soon
		}
	}
	return slices.ContainsFunc(c.f.syncs, func(s syncHit) bool {
		t, ok := s.at()
		return ok && t >= at && t-at < soon/1000 && (s.pid == 0 || s.pid == first.pid)
	})
}

// proves reports whether a record shows that the kubelet's loops ran, or what they waited for.
func proves(code string) bool {
	return code == signature.RuntimeIsDown || code == signature.HousekeepingSlow || slices.Contains(runtimeCalls(), code)
}

// stoodStill words a standstill.
func (c *caseFile) stoodStill(s *suspect) {
	s.Confidence += 0.75
	s.Summary = fmt.Sprintf("The kubelet itself stood still for %s or more: by so much its first record of the trouble is late.", about(c.stood))
	s.because(fmt.Sprintf("the first record states an age of %s: a loop that runs reports it every 5 s from %s on",
		c.silence.age.Round(time.Second), c.silence.due.Round(time.Second)))
	if q := c.silence; q.from != 0 {
		s.because("of the kubelet the log holds nothing that kdiag knows" + c.stretch(q.from, q.to))
	}
	if c.silence.others {
		s.Confidence += 0.1
		s.because("other parts of the node wrote meanwhile")
		return
	}
	s.lacks("what else on the node wrote meanwhile: a machine that stands still as a whole looks the same")
}

// clear takes from suspects what a kubelet that stood still explains: nobody asked the runtime, and calls that were under way missed their
// deadline by that alone.
func (c *caseFile) clear(all []*suspect) {
	for _, s := range all {
		switch s.Code {
		case "RuntimeHung", "ListHang", "InspectHang", "RuntimeSlow", "RelistOverloaded", "ShimStuck":
			s.Confidence = min(s.Confidence, hungMost)
			s.against("the kubelet itself stood still for " + about(c.stood) + " or more, which explains the age, and calls that missed their deadline meanwhile")
		}
	}
}
