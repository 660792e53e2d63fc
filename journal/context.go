package journal

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// How far around an episode records may have to do with it.
const (
	lookBefore = 10 * minute // before the anchor: a state of the machine that goes on
	oomBefore  = minute      // before the anchor: a kill that led to the hang
	lookAfter  = 2 * minute  // after the last unhealthy record, where the log shows no recovery
	atAnchor   = 2 * second  // stamps may count whole seconds
)

// A Context has the records around an incident, and facts that the order of its own records shows. Package judge
// finds causes in it.
type Context struct {
	Bursts    []*Burst        // of the host, by time
	Relists   []time.Duration // lengths of relists that followed each other directly, from anchor to anchor
	LoopStall *LoopStall      // nil: the sync loop ran before its first skip line, as far as the log shows
	Zone      *time.Location  // of the clock that the log was written by
}

// A LoopStall is a time in which the kubelet's sync loop did not run, before the first skip line of an incident.
type LoopStall struct {
	Late     time.Duration // how much later than the loop's longest pause allows the first skip line came
	Age, Due time.Duration // that the line states, and from which on a line was due
}

// RuntimeCalls are the signatures of failing calls to the runtime.
func RuntimeCalls() []string {
	return []string{
		signature.RelistFailed, signature.ListFailed, signature.InspectFailed, signature.StopFailed,
		signature.RemoveFailed,
		signature.CreateFailed, signature.SanityCheckFailed, signature.StatsFailed, signature.ImageServiceFailed,
		signature.ContainerGCFailed, signature.LogRotateFailed, signature.ExecFailed, signature.RuntimeUnreachable,
	}
}

// contextOf gathers the records that belong to an episode of a host: those from its anchor to its recovery, and
// states of the machine from before. past is when the incident before it ended.
func (h *history) contextOf(host string, e *episodeBuilder, past int64, recovered *time.Time) *Context {
	s := &Context{Zone: h.zone}
	if e.timed {
		from, to := e.start, e.end+lookAfter
		if e.anchored {
			from = min(from, e.anchor)
		}
		if recovered != nil {
			to = recovered.UnixMicro() + second
		}
		s.Bursts = slices.DeleteFunc(h.around(host, max(from-lookBefore, past), to), func(b *Burst) bool {
			return e.anchored && b.last.at < from-h.lookBefore(b.Code)
		})
	} else {
		for i := range h.bursts { // an excerpt without times belongs together
			if b := &h.bursts[i]; b.source == e.recs[0].source && b.of(host) {
				s.Bursts = append(s.Bursts, b)
			}
		}
	}
	skips := slices.DeleteFunc(slices.Clone(e.recs), func(u *unhealthyRecord) bool { return u.kind&condition != 0 })
	s.LoopStall = loopStall(s, skips)
	return s
}

// lookBefore returns how long before the anchor records of a signature may have to do with an episode. The relist at
// the anchor was good, so what failed between kubelet and runtime before it was over.
func (h *history) lookBefore(code string) int64 {
	switch code {
	case signature.OOMKill, signature.OOMInvoked, signature.UnitOOMKilled:
		return oomBefore
	case signature.UnitStarted, signature.UnitStopped, signature.UnitFailed, signature.UnitRestarted,
		signature.UnitSignalled, signature.WatchdogTimeout:
		return atAnchor
	}
	if lane := h.catalogue[code].Lane; lane == signature.Kernel || lane == signature.Node {
		return lookBefore
	}
	return atAnchor
}

const (
	// standsFrom is how much later than it was due the first skip line must come for the loop to have stood still. A
	// pass of a loop that is only busy takes seconds (housekeeping in pkg/kubelet/kubelet.go warns from 1 s on).
	standsFrom = 30 * time.Second
	// wakes is how long, in µs, after a standstill its traces appear: calls whose deadline has passed meanwhile fail
	// at once.
	wakes = 2 * second
)

// loopStall finds out whether the kubelet's loop stood still before the first skip line. The loop looks at the age
// before each pass, at least every 5 s once it skips, so the first line of a stall has an age of the threshold and a
// few seconds. One that is much older is the first all the same if the loop's back-off begins with it: the next line
// comes 100 ms later, or the loop does work again at once. In the middle of a stall it would sleep for 5 s (syncLoop
// in pkg/kubelet/kubelet.go).
func loopStall(s *Context, skips []*unhealthyRecord) *LoopStall {
	if len(skips) == 0 {
		return nil
	}
	first := skips[0]
	st := &LoopStall{
		Late: time.Duration(first.age - first.limit() - backoffMost), Age: time.Duration(first.age),
		Due: time.Duration(first.limit()),
	}
	if first.kind&hasAge == 0 || first.kind&never != 0 || !first.known || st.Late < standsFrom || !begins(s, skips) {
		return nil
	}
	ran := append(RuntimeCalls(), signature.RuntimeIsDown, signature.HousekeepingSlow)
	for _, b := range s.Bursts {
		if b.first.at < first.at-wakes && b.last.at > first.anchor(first.at) && slices.Contains(ran, b.Code) {
			return nil // the kubelet's loops ran, or the log shows what they waited for
		}
	}
	return st
}

// begins reports whether the first of some skip lines begins the loop's back-off, or is all of it.
func begins(s *Context, skips []*unhealthyRecord) bool {
	const soon = int64(time.Second) // 100 ms, and the delay of a busy node
	first := skips[0]
	if len(skips) > 1 {
		grown := skips[1].age - first.age
		return skips[1].pid == first.pid && skips[1].kind&hasAge != 0 && grown > 0 && grown < soon
	}
	return slices.ContainsFunc(s.Bursts, func(b *Burst) bool {
		return b.Code == signature.SyncLoopActive && b.first.at >= first.at && b.first.at-first.at < soon/1000 &&
			(b.PID == 0 || b.PID == first.pid)
	})
}

const (
	// relistPeriod is how long after the end of a relist the kubelet begins the next, in µs (wait.Until in
	// pkg/kubelet/kubelet.go).
	relistPeriod = second
	// directSlack is how long, in µs, after the last unhealthy record of a stall the next anchor may lie with no good
	// relist in between: the record comes up to 5 s before the relist ends, then the pause of relistPeriod passes.
	directSlack = 6*second + 500_000
)

// chain gives each stall the lengths of the relists that followed each other directly, of the chain that it belongs to.
// Short stalls that return are one trouble, and only together do they show what shape it has.
func (g *grouping) chain() {
	order := slices.DeleteFunc(slices.Clone(g.stalls), func(s *stallBuilder) bool { return !s.timed })
	slices.SortStableFunc(order, func(a, b *stallBuilder) int { return cmp.Compare(a.anchor, b.anchor) })
	for i, s := range order {
		if s.relists = new([]time.Duration); i > 0 && order[i-1].direct(s) {
			s.relists = order[i-1].relists
			length := time.Duration(s.anchor-order[i-1].anchor-relistPeriod) * time.Microsecond
			*s.relists = append(*s.relists, length)
		}
	}
}

// direct reports whether the relist of the next stall began right after the one that this stall is about.
func (s *stallBuilder) direct(next *stallBuilder) bool {
	from, to := s.recs[len(s.recs)-1], next.recs[0]
	wait := next.anchor - from.clock // stamps may count whole seconds
	return from.pid == to.pid && from.source == to.source && from.step == to.step && wait >= -second &&
		wait <= directSlack
}
