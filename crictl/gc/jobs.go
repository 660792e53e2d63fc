package gc

import (
	"context"
	"slices"
	"sync"
	"time"
)

// start begins as many removals as may run now.
func (r *run) start(now time.Time) {
	for !r.stopped && r.pace.limit > 0 && r.due(now) && !r.unwritten(now) {
		j := r.next(now)
		if j == nil {
			return
		}
		if earliest := now.Add(-burst); r.nextDue.Before(earliest) {
			r.nextDue = earliest
		}
		r.nextDue = r.nextDue.Add(time.Duration(float64(time.Second) / r.opts.Rate))
		r.lastGo = now
		j.begun = now
		r.flying[j] = true
		r.result.Most = max(r.result.Most, len(r.flying))
		go func() { r.results <- r.remove.remove(r.work, j) }()
	}
}

// due reports whether the rate limit and the pace let another removal begin.
func (r *run) due(now time.Time) bool {
	return !now.Before(r.nextDue) && now.Sub(r.lastGo) >= r.pace.gap
}

// unwritten reports whether the audit file has not taken a write for a while: nothing more is removed then, since nothing
// would be recorded.
func (r *run) unwritten(now time.Time) bool {
	return len(r.writing) > 0 && now.Sub(r.writeAt) > writePatience
}

// next takes a job: the oldest that was not tried yet, else one whose back-off is over, else one of a pod that was set
// aside. Sandboxes come when no container is left but those.
func (r *run) next(now time.Time) *job {
	if len(r.queue) == 0 && len(r.waiting) == 0 && len(r.flying) == r.aside {
		if r.queue, r.sandbox = r.sandbox, nil; len(r.queue) > 0 {
			r.pace.cap(mostSandboxes, now)
		}
	}
	if len(r.flying)-r.aside < r.pace.limit {
		if j := r.fresh(); j != nil {
			return j
		}
		for i, j := range r.waiting {
			if !now.Before(j.due) {
				r.waiting = slices.Delete(r.waiting, i, i+1)
				return j
			}
		}
	}
	return r.nextAside(now)
}

// fresh takes the oldest job that was not tried yet, and puts those of pods that were set aside on the way there.
func (r *run) fresh() *job {
	for len(r.queue) > 0 {
		j := r.queue[0]
		r.queue = r.queue[1:]
		if r.suspects[j.victim.PodUID] == nil {
			return j
		}
		r.putBack(j)
	}
	return nil
}

// settle takes the end of an attempt.
func (r *run) settle(out outcome) {
	j, now := out.job, time.Now()
	if out.logErr != "" {
		r.result.LogsFailed = append(r.result.LogsFailed, Failed{ID: j.victim.ID, Error: out.logErr})
	}
	switch out.verdict {
	case removed:
		r.answered(j, now)
		r.pace.finished(endedWell, now)
		r.confirm(j)
	case vanished, spared:
		r.result.Skipped = append(r.result.Skipped, Skipped{ID: j.victim.ID, Why: out.why})
	case refused, elsewhere:
		r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: out.why})
		if r.refusals++; r.refusals >= enoughRefusals && r.result.Removed+len(r.confirmed)+len(r.writing) == 0 {
			r.stop(refusal(out))
		}
	case untouched:
		r.waiting = append(r.waiting, j) // the run is stopped: for the last look
	case retryable, unanswered:
		r.again(j, out, now)
	}
}

// refusal says why a run ends whose every victim is refused.
func refusal(out outcome) string {
	if out.verdict == elsewhere {
		return "the logs are somewhere else: " + out.why
	}
	return "the runtime refuses removals: " + out.why
}

// again puts a job back, or gives it up after as many attempts as it may have. Attempts that failed because the runtime
// was away do not count, up to a number of their own.
func (r *run) again(j *job, out outcome, now time.Time) {
	if r.stopped {
		if j.asked {
			j.err = out.why
		}
		r.waiting = append(r.waiting, j) // for the last look
		return
	}
	j.err = out.why
	switch {
	case (out.down || r.pace.paused()) && j.free < freeTries:
		j.free++
	default:
		j.tries++
		switch {
		case out.down:
		case out.hung:
			r.lost(j, now)
		default:
			r.pace.finished(endedBadly, now)
		}
	}
	if out.down {
		r.pace.pause("the runtime does not answer")
	}
	if j.tries > r.opts.Retries && out.verdict != unanswered {
		r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: out.why})
		return
	}
	if j.tries > r.opts.Retries+1 { // one more look in the end, to say whether it is gone
		r.open = append(r.open, j)
		return
	}
	j.due = now.Add(min(firstBackOff<<min(j.tries+j.free, 10), longestBackOff))
	r.putBack(j)
}

func unknownEnd(j *job) string {
	return "its removal was asked for and not answered, so whether it is gone is not known: " + j.err
}

// lastLook settles what was left by a stop: it asks once more about what was asked for and not answered, and claims
// nothing about the rest.
func (r *run) lastLook() {
	r.result.Left += len(r.queue) + len(r.sandbox)
	r.result.Stuck = r.stuck()
	open := r.open
	for _, s := range r.suspects {
		r.waiting = append(r.waiting, s.held...)
	}
	for _, j := range r.waiting {
		switch {
		case j.asked:
			open = append(open, j)
		case j.err != "":
			r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: j.err})
		default:
			r.result.Left++
		}
	}
	r.waiting, r.open = nil, nil
	if len(open) == 0 {
		return
	}
	end := time.Now().Add(lastLookTime)
	if !r.hard.IsZero() && r.hard.Before(end) {
		end = r.hard
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.work), end)
	defer cancel()
	looker := r.remove
	looker.stopping = func() bool { return true }
	outs := make([]outcome, len(open))
	var wg sync.WaitGroup
	slots := make(chan struct{}, lastLooks)
	for i, j := range open {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outs[i] = looker.remove(ctx, j)
		})
	}
	wg.Wait()
	for i, j := range open {
		switch outs[i].verdict {
		case removed:
			r.confirm(j)
		case untouched, spared:
			r.result.Failed = append(r.result.Failed, Failed{
				ID: j.victim.ID, Error: "its removal was asked for, and it is still there: " + j.err,
			})
		default:
			r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: unknownEnd(j)})
		}
	}
}

// confirm takes a victim that the runtime says is gone. It counts at once, or once the audit file has it.
func (r *run) confirm(j *job) {
	if r.opts.Audit == nil {
		r.result.Removed++
		return
	}
	r.confirmed = append(r.confirmed, j)
}

// record writes what was confirmed to the audit file. One write is under way at a time, and what is confirmed meanwhile
// goes with the next.
func (r *run) record() {
	if len(r.confirmed) == 0 || len(r.writing) > 0 {
		return
	}
	if r.auditErr != nil {
		r.unrecorded(r.confirmed)
		r.confirmed = nil
		return
	}
	r.writing, r.confirmed, r.writeAt = r.confirmed, nil, time.Now()
	victims := make([]*Victim, 0, len(r.writing))
	for _, j := range r.writing {
		victims = append(victims, j.victim)
	}
	audit := r.opts.Audit
	go func() { r.written <- audit.removed(victims, time.Now()) }()
}

// recorded takes the end of a write to the audit file. After an error the run stops: what cannot be recorded is not
// removed.
func (r *run) recorded(err error) {
	jobs := r.writing
	r.writing = nil
	if err == nil {
		r.result.Removed += len(jobs)
		return
	}
	r.auditErr = err
	r.unrecorded(jobs)
	r.stop("the audit file cannot be written")
}

func (r *run) unrecorded(jobs []*job) {
	for _, j := range jobs {
		why := "it was removed, but the audit file does not say so"
		if r.auditErr != nil {
			why += ": " + r.auditErr.Error()
		}
		r.result.Failed = append(r.result.Failed, Failed{ID: j.victim.ID, Error: why})
	}
}

// drain waits for the audit file to take all that was confirmed. A disk that hangs is left behind at the run's end.
func (r *run) drain() {
	end := time.Now().Add(r.opts.Grace)
	if !r.hard.IsZero() && r.hard.Before(end) {
		end = r.hard
	}
	late := time.NewTimer(time.Until(end))
	defer late.Stop()
	for r.record(); len(r.writing) > 0; r.record() {
		select {
		case err := <-r.written:
			r.recorded(err)
		case <-late.C:
			r.unrecorded(append(r.writing, r.confirmed...))
			r.writing, r.confirmed = nil, nil
			return
		}
	}
}

// show reports the progress, not too often.
func (r *run) show(now time.Time, last bool) {
	if r.opts.Progress == nil || !last && now.Sub(r.shown) < progressEvery {
		return
	}
	r.shown = now
	p := Progress{
		Total: len(r.plan.Remove), Removed: r.result.Removed, Skipped: len(r.result.Skipped), Failed: len(r.result.Failed),
		InFlight: len(r.flying), Probe: r.lastProbe,
	}
	if r.pace != nil {
		p.Concurrency, p.Paused, p.Quiet = r.pace.limit, r.pace.reason, r.pace.quiet
	}
	if p.Paused == "" && r.unwritten(now) {
		p.Paused = "the audit file does not answer"
	}
	if took := now.Sub(r.begin).Seconds(); took > 0 && p.Removed > 0 {
		p.PerSecond = float64(p.Removed) / took
		left := p.Total - p.Removed - p.Skipped - p.Failed
		p.TimeLeft = time.Duration(float64(left) / p.PerSecond * float64(time.Second))
	}
	r.opts.Progress(p)
}

// finish completes the result.
func (r *run) finish() Result {
	now := time.Now()
	r.result.Speed = &Speed{Seconds: now.Sub(r.begin).Seconds()}
	if r.result.Seconds > 0 {
		r.result.PerSecond = float64(r.result.Removed) / r.result.Seconds
	}
	r.show(now, true)
	return r.result
}
