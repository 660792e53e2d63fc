package journal

// startupLasts is for how long, in µs, a kubelet may say "yet to be successful" and still be one that just starts. The
// kubelet grants a relist that once worked this time before it calls it unhealthy (genericPlegRelistThreshold in
// pkg/kubelet/kubelet.go); a first relist that takes longer is as broken. The 30 s that it waits for the runtime's
// status (maxWaitForContainerRuntime) are no measure: a runtime that loads a node full of containers takes longer.
const startupLasts = 3 * minute

// startupInside is how long, in µs, after the last unhealthy record a kubelet's restart still belongs to an incident
// that nothing has ended: systemd stops a service for up to 90 s, and starts it again after its RestartSec.
const startupInside = 5 * minute

// A mark is a record that ends episodes.
type mark struct {
	moment
	clock int64 // as in rec
	code  string
}

// settle decides which episodes of one host are a kubelet's start, and puts a start that stands inside an incident
// into it. ended says whether a mark of recovery lies between two readings of
// the sequence's clock.
func (g *grouping) settle(ended func(from, to int64) bool) []bool {
	startup := make([]bool, len(g.runs))
	last := -1 // the last incident
	for i := range g.runs {
		s := g.span(&g.runs[i])
		if !s.neverOnly {
			last = i
			continue
		}
		startup[i] = !s.timed || s.clockEnd-s.clockStart < startupLasts
		if last < 0 || !s.timed {
			if !startup[i] {
				last = i
			}
			continue
		}
		before := g.span(&g.runs[last])
		gap := s.clockStart - before.clockEnd
		if before.timed && gap >= 0 && gap <= startupInside && s.first.pid != before.last.pid && !ended(before.clockEnd, s.clockStart) {
			g.join(last, i)
			startup[i] = false
			continue
		}
		if !startup[i] {
			last = i
		}
	}
	return startup
}
