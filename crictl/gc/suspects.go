package gc

import (
	"slices"
	"time"
)

// A pod whose containers do not go, because of a lock or a mount that hangs, must not hold up the others. The pace cannot
// help here: the runtime is quick with everything else. Such a pod is set aside: its victims come one at a time, outside
// the pace's limit, and after a few rounds without an answer the rest of them is given up.
const (
	// lateAfter is how long a victim may take before its pod is set aside, and lateFactor the same in terms of what
	// victims usually take here.
	lateAfter  = 2 * time.Second
	lateFactor = 8
	// mostAside is how many removals may be in flight beside those that the pace counts.
	mostAside = 8
)

// A suspect is a pod whose removals are not answered.
type suspect struct {
	held   []*job    // its victims that are not in flight
	victim *Victim   // the last that was not answered; nil for one that is only late
	rounds int       // of unanswered removals in a row, those at the same time counted once
	lostAt time.Time // end of the last round
}

// A Stuck is a pod whose removals were not answered until the rest of it was given up, or the run ended.
type Stuck struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	PodUID    string `json:"podUID"`
	ID        string `json:"id"` // of a victim that was not answered
	Rounds    int    `json:"unanswered"`
}

// late sets aside the pods of what has been in flight for too long, while the runtime answers everything else.
func (r *run) late(now time.Time) {
	if r.pace.paused() || r.pace.calibrating {
		return
	}
	most := max(lateAfter, lateFactor*r.usual)
	for j := range r.flying {
		if j.aside || r.aside >= mostAside || now.Sub(later(j.begun, r.resumed)) < most {
			continue
		}
		r.suspect(j)
		j.aside = true
		r.aside++
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// suspect sets the pod of a job aside.
func (r *run) suspect(j *job) *suspect {
	s := r.suspects[j.victim.PodUID]
	if s != nil {
		return s
	}
	s = &suspect{}
	r.suspects[j.victim.PodUID] = s
	r.waiting = slices.DeleteFunc(r.waiting, func(w *job) bool {
		own := w.victim.PodUID == j.victim.PodUID
		if own {
			s.held = append(s.held, w)
		}
		return own
	})
	return s
}

// lost notes that a removal was not answered. It counts against the pace only when other pods' are not answered either.
func (r *run) lost(j *job, now time.Time) {
	s := r.suspect(j)
	if s.rounds == 0 || !j.begun.Before(s.lostAt) {
		s.rounds++
	}
	s.lostAt, s.victim = now, j.victim
	r.lostPods[j.victim.PodUID] = true
	if len(r.lostPods) > 1 {
		r.pace.finished(endedLost, now)
	}
}

// answered notes that a victim of a pod went, and how long that took: what was held of it goes on as usual.
func (r *run) answered(j *job, now time.Time) {
	clear(r.lostPods)
	if took := now.Sub(j.begun); r.usual == 0 {
		r.usual = took
	} else {
		r.usual += (took - r.usual) / 8
	}
	s := r.suspects[j.victim.PodUID]
	if s == nil {
		return
	}
	delete(r.suspects, j.victim.PodUID)
	var fresh []*job
	for _, h := range s.held {
		switch {
		case h.tries+h.free > 0:
			r.waiting = append(r.waiting, h)
		case h.victim.Kind == KindSandbox:
			r.sandbox = append(r.sandbox, h)
		default:
			fresh = append(fresh, h)
		}
	}
	r.queue = append(fresh, r.queue...)
}

// putBack keeps a job for another attempt. What has not been answered too often in its pod is the end of that pod.
func (r *run) putBack(j *job) {
	s := r.suspects[j.victim.PodUID]
	if s == nil {
		r.waiting = append(r.waiting, j)
		return
	}
	s.held = append(s.held, j)
	if s.rounds > r.opts.Retries+1 {
		r.giveUp(s)
	}
}

// giveUp ends the attempts at what is held of a pod.
func (r *run) giveUp(s *suspect) {
	for _, j := range s.held {
		switch {
		case j.asked:
			r.open = append(r.open, j)
		case j.err != "":
			r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: j.err})
		default:
			r.result.Failed = append(r.result.Failed, Failed{
				ID: j.victim.ID, Error: "not tried: the runtime has not answered for others of its pod",
			})
		}
	}
	s.held = nil
}

// nextAside takes the next job of a pod that was set aside and has none in flight: what was not tried yet first, and
// sandboxes after containers.
func (r *run) nextAside(now time.Time) *job {
	if r.aside >= mostAside {
		return nil
	}
	var best *job
	for uid, s := range r.suspects {
		if r.inFlightOf(uid) {
			continue
		}
		for _, j := range s.held {
			if !now.Before(j.due) && (best == nil || before(j, best)) {
				best = j
			}
		}
	}
	if best == nil {
		return nil
	}
	s := r.suspects[best.victim.PodUID]
	s.held = slices.DeleteFunc(s.held, func(j *job) bool { return j == best })
	best.aside = true
	r.aside++
	return best
}

// before orders what is held.
func before(a, b *job) bool {
	if as, bs := a.victim.Kind == KindSandbox, b.victim.Kind == KindSandbox; as != bs {
		return bs
	}
	if a.tries+a.free != b.tries+b.free {
		return a.tries+a.free < b.tries+b.free
	}
	if !a.victim.CreatedAt.Equal(b.victim.CreatedAt) {
		return a.victim.CreatedAt.Before(b.victim.CreatedAt)
	}
	return a.victim.ID < b.victim.ID
}

func (r *run) inFlightOf(uid string) bool {
	for j := range r.flying {
		if j.victim.PodUID == uid {
			return true
		}
	}
	return false
}

// heldBack reports whether something of the pods that were set aside is left to be tried.
func (r *run) heldBack() bool {
	for _, s := range r.suspects {
		if len(s.held) > 0 {
			return true
		}
	}
	return false
}

// stuck names the pods that did not answer, in the order of their names.
func (r *run) stuck() []Stuck {
	var out []Stuck
	for uid, s := range r.suspects {
		if v := s.victim; v != nil {
			out = append(out, Stuck{Namespace: v.Namespace, Pod: v.Pod, PodUID: uid, ID: v.ID, Rounds: s.rounds})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int {
		return slices.Compare([]string{a.Namespace, a.Pod, a.PodUID}, []string{b.Namespace, b.Pod, b.PodUID})
	})
	return out
}
