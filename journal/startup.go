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
	for i := range startup {
		if !startup[i] {
			continue
		}
		for range g.splitByProcess(i) {
			startup = append(startup, true)
		}
	}
	return startup
}

// splitByProcess makes an episode of each kubelet process that starts within a run, because each is a start of its own. It
// returns how many were added. What names no process stays with the record before it.
func (g *grouping) splitByProcess(i int) int {
	whole := g.runs[i]
	home, had := map[int32]int{}, map[int]bool{}
	runOf := i
	g.runs[i] = run{}
	added := 0
	for _, k := range whole.recs {
		if pid := g.recs[k].pid; pid != 0 {
			to, ok := home[pid]
			switch {
			case ok:
			case len(home) == 0:
				to = i
			default:
				to = g.newRun()
				added++
			}
			home[pid], runOf = to, to
		}
		g.runs[runOf].recs = append(g.runs[runOf].recs, k)
		if s := g.owner[k]; !had[s] {
			had[s], g.stalls[s].episode = true, runOf
			g.runs[runOf].stalls = append(g.runs[runOf].stalls, s)
		}
	}
	return added
}
