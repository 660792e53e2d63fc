package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kdiag/kdiag/crictl"
)

// DefaultRate is the most removals per second, far above what a runtime with real snapshots achieves.
const DefaultRate = 500

// Options tune a run. The zero value is good for a real node.
type Options struct {
	Concurrency int            // most removals at a time; 0 means 32: more only wait for the runtime's database
	Rate        float64        // most removals per second; 0 means DefaultRate
	Audit       *Audit         // nil keeps no record; the caller closes it
	Progress    func(Progress) // called from one goroutine; must not block
}

const (
	tick          = 10 * time.Millisecond // of everything that waits for a time
	progressEvery = 100 * time.Millisecond
	grace         = 10 * time.Second // for the calls in flight when a run is stopped
	quietProbes   = 20               // of the quiet runtime before the first removal
	quietGap      = 5 * time.Millisecond
	// The next probe comes probeShare times as long after a probe as that took, within these bounds.
	probeShare     = 10
	probeEvery     = 50 * time.Millisecond
	longestBetween = time.Second
	retries        = 3 // of a candidate that fails; doubling firstBackOff is the time before the next
	firstBackOff   = 400 * time.Millisecond
	podRounds      = 5 // of unanswered calls in a row before the rest of a pod is given up
	mostSandboxes  = 8 // at a time: stopping one runs CNI plugins, which take locks of the host
	// lateAfter is how long a call may take before its pod gets no further ones meanwhile, and mostLate how many such
	// calls do not count against the pace's width: pods that hang must not hold up the others.
	lateAfter = 2 * time.Second
	mostLate  = 8
	// enoughRefusals is after how many refusals without a removal the run stops: the runtime allows none, like a socket
	// for reading, or a proxy.
	enoughRefusals = 8
	lastChecks     = 8 // at a time, at the end of a run
	lastCheckTime  = time.Second
)

// A Failed is a candidate of which it cannot be claimed that it was removed, and why. What was asked for and not
// answered is among them.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// A Stuck is a pod whose removals were not answered until the rest of it was given up, or the run ended.
type Stuck struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	PodUID    string `json:"podUID"`
	ID        string `json:"id"`         // of a candidate whose removal was not answered
	Rounds    int    `json:"unanswered"` // in a row; calls at the same time count once
}

// A Result is what became of a plan.
type Result struct {
	Removed int       `json:"removed"` // confirmed by the runtime and, with an audit file, on the disk
	Skipped []Skipped `json:"skipped"`
	Failed  []Failed  `json:"failed"`
	Left    int       `json:"left"`              // not tried, because the run was stopped
	Stopped string    `json:"stopped,omitempty"` // why the run ended before the plan was done
	Stuck   []Stuck   `json:"stuck,omitempty"`   // the pods whose removals were not answered, in the order of their names
	Pauses  int       `json:"pauses"`            // how often the run waited for the runtime
	Most    int       `json:"concurrency"`       // the most removals at a time
	*Speed
}

// A Speed is how fast a run was.
type Speed struct {
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond"` // removals / seconds
}

// A Report is the GCReport of kdiag's JSON, without apiVersion, kind and generatedAt. A dry run has no Speed.
type Report struct {
	DryRun bool `json:"dryRun"`
	Plan   Plan `json:"plan,omitzero"` // absent when there is none
	Result
}

// A Progress is the state of a run.
type Progress struct {
	Total, Removed, Skipped, Failed int
	Paused                          string        // why the run waits; empty when it does not
	PerSecond                       float64       // over the whole run so far
	TimeLeft                        time.Duration // at that rate; 0 when unknown
}

// Run removes what the plan lists: the containers, oldest first, then the sandboxes. Each is checked again right
// before. The error is why nothing could be begun, or that the audit file failed; what became of the candidates is in
// the Result in any case.
//
// When ctx is cancelled no new call is made, and Run waits for the calls in flight for at most 10 seconds. When ctx has
// a deadline the run ends by it, and stops removing a little earlier, so that what was asked for and not answered can
// be checked once more. A runtime that does not answer is waited for until ctx ends.
func Run(ctx context.Context, client *crictl.Client, plan Plan, opts Options) (Result, error) {
	r := newRun(client, &plan, opts)
	if len(plan.Remove) == 0 {
		return r.finish(), nil
	}
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(1 << 62)
	}
	reserve := min(max(time.Until(end)/20, 50*time.Millisecond), 2*time.Second)
	ctx, cancelSoon := context.WithDeadline(ctx, end.Add(-reserve))
	defer cancelSoon()
	quiet, relist, err := r.quiet(ctx)
	if err != nil {
		r.result.Left = len(plan.Remove)
		return r.finish(), err
	}
	r.pace = newPace(r.opts.Concurrency, quiet, relist)
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(r.ctx, func() { // half of the reserve is for the check at the end
		time.AfterFunc(min(grace, time.Until(end)-reserve/2), cancel)
	})()
	r.loop(work)
	switch err := r.ctx.Err(); {
	case r.result.Stopped != "" || err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		r.result.Stopped = "the deadline was reached"
	default:
		r.result.Stopped = "interrupted"
	}
	r.cancel() // what follows removes nothing
	last := min(lastCheckTime, time.Until(end))
	check, cancelCheck := context.WithTimeout(context.WithoutCancel(ctx), last)
	defer cancelCheck()
	r.close(check)
	return r.finish(), r.auditErr
}

// A run is the state of one Run. Its loop is the only goroutine that changes it; removals and probes are goroutines
// that report to it.
type run struct {
	client  *crictl.Client
	opts    Options
	minAge  time.Duration
	begun   time.Time
	pace    *pace
	limiter *rate.Limiter
	ctx     context.Context // removals may begin until it ends
	cancel  context.CancelFunc

	queue     []*job // not in flight, in order; those to be tried again at the end
	running   map[*job]bool
	sandboxes int // of those running
	pods      map[string]*podState
	open      []*job // given up without an answer: to be checked once more at the end
	results   chan outcome
	refusals  int
	auditErr  error

	probeID string
	probes  chan crictl.Call
	probing bool
	probeAt time.Time // start of the probe in flight, or when the next is due

	total  int
	result Result
	shown  time.Time
}

// A job is a candidate that is not yet removed.
type job struct {
	of     *Candidate
	pod    *podState
	tries  int
	due    time.Time // of the next attempt
	begun  time.Time // the last attempt
	unsure bool      // its removal was asked for and not answered
	err    string    // of the last attempt
}

// A podState is what a run knows about a pod. One that does not answer gets one call at a time, and in the end no more.
type podState struct {
	containers int        // that are not yet done
	running    int        // calls in flight
	misses     int        // unanswered in a row; calls at the same time count once
	missed     time.Time  // the last time
	last       *Candidate // then
}

func newRun(client *crictl.Client, plan *Plan, opts Options) *run {
	opts.Concurrency, opts.Rate = cmp.Or(opts.Concurrency, 32), cmp.Or(opts.Rate, DefaultRate)
	r := &run{
		client: client, opts: opts, begun: time.Now(), total: len(plan.Remove),
		minAge:  max(plan.Rules.MinAge, plan.Rules.OlderThan),
		limiter: rate.NewLimiter(rate.Limit(opts.Rate), 1+int(2*tick.Seconds()*opts.Rate)),
		results: make(chan outcome, opts.Concurrency+mostLate), probes: make(chan crictl.Call, 1),
		running: map[*job]bool{}, pods: map[string]*podState{}, result: Result{Skipped: []Skipped{}, Failed: []Failed{}},
	}
	for i := range plan.Remove {
		c := &plan.Remove[i]
		j := &job{of: c, pod: entry(r.pods, c.PodUID, podState{})}
		if c.Kind == KindContainer {
			j.pod.containers++
		}
		r.queue, r.probeID = append(r.queue, j), c.ID
	}
	return r
}

// probe makes the side call: a list for which the runtime must walk all its containers, as for a kubelet's relist, and
// whose answer is small.
func (r *run) probe(ctx context.Context) crictl.Call {
	list := r.client.ListContainers(ctx, crictl.Filter{ID: r.probeID}, crictl.ModeUnary)
	return list.Calls[len(list.Calls)-1]
}

// quiet measures the runtime before the first removal: the side probe, and the two lists of a relist, for which another
// client must not have to wait much longer. relist is 0 when those are too large for this client.
func (r *run) quiet(ctx context.Context) (probes []time.Duration, relist time.Duration, err error) {
	for len(probes) < quietProbes {
		call := r.probe(ctx)
		if !call.OK() {
			return nil, 0, fmt.Errorf("asking the runtime for a small list before anything is removed: %s: %s", call.Code,
				call.Err)
		}
		probes = append(probes, call.Elapsed)
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("before anything was removed: %w", ctx.Err())
		case <-time.After(quietGap):
		}
	}
	start := time.Now()
	if r.client.ListPodSandbox(ctx, crictl.Filter{}, crictl.ModeUnary).Complete &&
		r.client.ListContainers(ctx, crictl.Filter{}, crictl.ModeUnary).Complete {
		relist = time.Since(start)
	}
	return probes, relist, nil
}

// loop runs until all is done, or the run is stopped and nothing is in flight. work is the context of the calls.
func (r *run) loop(work context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for len(r.running) > 0 || r.ctx.Err() == nil && len(r.queue) > 0 {
		now := time.Now()
		switch {
		case r.probing && now.Sub(r.probeAt) > r.pace.stall():
			r.pace.pause("the runtime does not answer")
		case !r.probing && !now.Before(r.probeAt):
			r.probing, r.probeAt = true, now
			go func() { r.probes <- r.probe(work) }()
		}
		r.start(work, now)
		r.show(now, false)
		select {
		case out := <-r.results:
			r.settle(out)
		case call := <-r.probes:
			r.probing = false
			r.probeAt = time.Now().Add(min(max(probeEvery, probeShare*call.Elapsed), longestBetween))
			r.pace.probed(call.Elapsed, call.OK(), len(r.running) == 0)
		case <-ticker.C:
		}
	}
}

// stop lets no further removal begin.
func (r *run) stop(why string) {
	if r.ctx.Err() == nil {
		r.result.Stopped = why
		r.cancel()
	}
}

// start begins as many removals as may run now.
func (r *run) start(work context.Context, now time.Time) {
	for r.ctx.Err() == nil {
		late, latePods := 0, map[*podState]bool{}
		for j := range r.running {
			if now.Sub(j.begun) > lateAfter {
				late++
				latePods[j.pod] = true
			}
		}
		if len(r.running)-min(late, mostLate) >= r.pace.width {
			return
		}
		i := slices.IndexFunc(r.queue, func(j *job) bool {
			blocked := j.pod.running > 0 && (j.pod.misses > 0 || latePods[j.pod])
			if j.of.Kind == KindSandbox {
				blocked = blocked || j.pod.containers > 0 || r.sandboxes >= mostSandboxes
			}
			return !blocked && !now.Before(j.due)
		})
		if i < 0 || !r.limiter.AllowN(now, 1) {
			return
		}
		j := r.queue[i]
		r.queue = slices.Delete(r.queue, i, i+1)
		j.begun = now
		r.running[j] = true
		r.count(j, 1)
		r.result.Most = max(r.result.Most, len(r.running))
		go func() { r.results <- r.attempt(work, j) }()
	}
}

// count adds n to the calls in flight.
func (r *run) count(j *job, n int) {
	j.pod.running += n
	if j.of.Kind == KindSandbox {
		r.sandboxes += n
	}
}

// settle takes the end of an attempt.
func (r *run) settle(out outcome) {
	j := out.job
	delete(r.running, j)
	r.count(j, -1)
	switch out.verdict {
	case removed:
		j.pod.misses = 0
		r.done(j)
		r.result.Removed++
	case unrecorded:
		r.fail(j, unrecordedWhy+out.why)
		r.auditErr = errors.New(out.why)
		r.stop("the audit file cannot be written")
	case changed:
		r.done(j)
		r.result.Skipped = append(r.result.Skipped, Skipped{ID: j.of.ID, Why: out.why})
	case refused:
		r.fail(j, out.why)
		if r.refusals++; r.refusals >= enoughRefusals && r.result.Removed == 0 {
			r.stop("the runtime refuses removals: " + out.why)
		}
	case untouched:
		r.queue = append(r.queue, j)
	case failed, unanswered:
		r.again(out)
	}
}

// done takes a job out of those that its pod's sandboxes wait for.
func (r *run) done(j *job) {
	if j.of.Kind == KindContainer {
		j.pod.containers--
	}
}

func (r *run) fail(j *job, why string) {
	r.done(j)
	r.result.Failed = append(r.result.Failed, Failed{ID: j.of.ID, Error: why})
}

// again puts a job back into the queue, or gives it up after as many attempts as it may have.
func (r *run) again(out outcome) {
	j, now := out.job, time.Now()
	r.queue = append(r.queue, j)
	if r.ctx.Err() != nil {
		if j.unsure {
			j.err = out.why
		}
		return
	}
	j.err = out.why
	switch {
	case out.down:
		r.pace.pause("the runtime does not answer")
	case out.hung && !r.pace.paused():
		r.miss(j, now)
	}
	j.tries++
	j.due = now.Add(firstBackOff << (j.tries - 1))
	switch {
	case j.pod.misses >= podRounds:
		r.giveUp(func(other *job) bool { return other.pod == j.pod })
	case j.tries > retries:
		r.giveUp(func(other *job) bool { return other == j })
	}
}

// miss notes that a call was not answered although the runtime answers others. Only when the calls of several pods are
// not answered is that held against the pace.
func (r *run) miss(j *job, now time.Time) {
	p := j.pod
	if p.misses == 0 || !j.begun.Before(p.missed) {
		p.misses++
	}
	p.missed, p.last = now, j.of
	if len(r.stuck()) > 1 {
		r.pace.halve()
	}
}

// giveUp takes jobs out of the queue for good. One whose removal was asked for is checked once more at the end of the
// run.
func (r *run) giveUp(which func(*job) bool) {
	r.queue = slices.DeleteFunc(r.queue, func(j *job) bool {
		switch {
		case !which(j):
			return false
		case j.unsure:
			r.done(j)
			r.open = append(r.open, j)
		default:
			r.fail(j, cmp.Or(j.err, "not tried: the runtime has not answered for others of its pod"))
		}
		return true
	})
}

// stuck returns the pods that did not answer, in the order of their names.
func (r *run) stuck() []Stuck {
	var out []Stuck
	for uid, p := range r.pods {
		if p.misses > 0 {
			out = append(out, Stuck{Namespace: p.last.Namespace, Pod: p.last.Pod, PodUID: uid, ID: p.last.ID, Rounds: p.misses})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int {
		return slices.Compare([]string{a.Namespace, a.Pod, a.PodUID}, []string{b.Namespace, b.Pod, b.PodUID})
	})
	return out
}

// close accounts for what a stop has left, and asks once more about what was asked for and not answered.
func (r *run) close(ctx context.Context) {
	r.result.Stuck = r.stuck()
	r.giveUp(func(j *job) bool { return j.unsure || j.err != "" })
	r.result.Left = len(r.queue)
	outs := make([]outcome, len(r.open))
	slots := make(chan struct{}, lastChecks)
	var wg sync.WaitGroup
	for i, j := range r.open {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outs[i] = r.attempt(ctx, j)
		})
	}
	wg.Wait()
	for i, j := range r.open {
		switch outs[i].verdict {
		case removed:
			r.result.Removed++
		case unrecorded:
			r.fail(j, unrecordedWhy+outs[i].why)
		case untouched, changed:
			r.fail(j, "its removal was asked for, and it is still there: "+j.err)
		default:
			r.fail(j, "its removal was asked for and not answered, so whether it is gone is not known: "+j.err)
		}
	}
}

// show reports the progress, not too often.
func (r *run) show(now time.Time, last bool) {
	if r.opts.Progress == nil || !last && now.Sub(r.shown) < progressEvery {
		return
	}
	r.shown = now
	p := Progress{Total: r.total, Removed: r.result.Removed, Skipped: len(r.result.Skipped), Failed: len(r.result.Failed)}
	if r.pace != nil {
		p.Paused = r.pace.reason
	}
	if took := now.Sub(r.begun).Seconds(); p.Removed > 0 {
		p.PerSecond = float64(p.Removed) / took
		left := p.Total - p.Removed - p.Skipped - p.Failed
		p.TimeLeft = time.Duration(float64(left) / p.PerSecond * float64(time.Second))
	}
	r.opts.Progress(p)
}

// finish completes the result.
func (r *run) finish() Result {
	now := time.Now()
	r.result.Speed = &Speed{Seconds: now.Sub(r.begun).Seconds()}
	if r.result.Seconds > 0 {
		r.result.PerSecond = float64(r.result.Removed) / r.result.Seconds
	}
	if r.pace != nil {
		r.result.Pauses = r.pace.pauses
	}
	r.show(now, true)
	return r.result
}
