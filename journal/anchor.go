package journal

import "time"

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

// limit returns the threshold that a record states, in ns.
func (h *plegHit) limit() int64 {
	if h.threshold != 0 {
		return int64(h.threshold) * 1e9
	}
	return relistThreshold
}

// fresh reports whether a record can be the first of a stall: its age is over the threshold by no more than the longest
// pause between two looks.
func (h *plegHit) fresh() bool {
	return h.kind&hasAge != 0 && h.age <= h.limit()+backoffMost+int64(500*time.Millisecond)
}

// A stallRun gathers the records of one stall.
type stallRun struct {
	recs     []int // indices into the sequence
	episode  int
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
func (s *stallRun) matches(r *rec) bool {
	if r.kind&hasAge == 0 || !r.timed || !s.timed {
		return false
	}
	tol := int64(anchorTolerance)
	if s.coarse || r.kind&coarse != 0 {
		tol = anchorToleranceCoarse
	}
	wall, _ := r.at()
	return abs(r.anchor(r.clock)-s.anchor) <= tol || abs(r.anchor(wall)-s.wall) <= tol
}

// add puts a record into the stall.
func (s *stallRun) add(i int, r *rec) {
	s.recs = append(s.recs, i)
	if r.kind&hasAge == 0 {
		return
	}
	if r.timed {
		wall, _ := r.at()
		a := r.anchor(wall)
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
func (s *stallRun) continues(prev, r *rec) bool {
	if r.kind&hasAge == 0 || prev.kind&hasAge == 0 || r.source != prev.source || r.mono != 0 && prev.mono != 0 ||
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
	t, tok := r.at()
	p, pok := prev.at()
	if late && tok && pok && t < p && grown <= int64(time.Hour) {
		return true
	}
	if r.kind&condition != 0 { // written by another loop, any time before the next skip line
		return grown <= next+backoffSlack
	}
	if !late {
		return within(grown, next, backoffSlack+next/200)
	}
	for k := int64(1); k <= 3; k++ { // up to two lines may be missing
		if within(grown, k*next, k*int64(100*time.Millisecond)) {
			return true
		}
	}
	return false
}

func within(x, want, slack int64) bool { return x >= want-slack && x <= want+slack }
