package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// DefaultRate is the most removals per second. A runtime with real snapshots is far slower.
const DefaultRate = 500

// Options tune a run. The zero value is good for a real node.
type Options struct {
	Concurrency int            // most removals at a time; 0 means 32: more only wait for the runtime's database
	Rate        float64        // most removals per second; 0 means DefaultRate
	Audit       *Audit         // nil keeps no record; the caller closes it
	Logs        Logs           // of the containers, which are removed with them; the zero value leaves them
	Progress    func(Progress) // called from one goroutine; must not block
}

const (
	tick        = 10 * time.Millisecond // of everything that waits for a time
	grace       = 10 * time.Second      // for the calls in flight when a run is interrupted
	reserve     = 2 * time.Second       // for them when the time is up; a tenth of short runs
	quietProbes = 20                    // of the quiet runtime before the first removal
	quietGap    = 5 * time.Millisecond
	// The next probe comes probeShare times as long after a probe as that took, within these bounds.
	probeShare     = 10
	probeEvery     = 50 * time.Millisecond
	longestBetween = time.Second
	retries        = 3 // of a candidate that fails, after all others were tried
	mostSandboxes  = 8 // at a time: stopping one runs CNI plugins, which take locks of the host
)

const noAnswer = "the runtime does not answer"

// A Failed is a candidate that is not known to be removed, and why. Removals without an answer are among them.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// A Result says which candidates were removed, skipped or failed.
type Result struct {
	Removed int       `json:"removed"` // confirmed by the runtime and, with an audit file, on the disk
	Skipped []Skipped `json:"skipped"`
	Failed  []Failed  `json:"failed"`
	Left    int       `json:"left"`              // not tried, because the run was stopped
	Stopped string    `json:"stopped,omitempty"` // why the run ended before the plan was done
	Pauses  int       `json:"pauses"`            // how often the run waited for the runtime
	Most    int       `json:"concurrency"`       // the most removals at a time
	// LogFiles counts the files that were removed with containers: logs, their rotations, and links to them.
	LogFiles int   `json:"logFiles"`
	LogBytes int64 `json:"logBytes"`
	// LogsLeft are the containers that were removed without their log, and why.
	LogsLeft []Failed `json:"logsLeft,omitempty"`
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

// Run removes the candidates of a plan: the containers, oldest first, then the sandboxes. Each is checked again right
// before. The error says why nothing was begun, or why the audit file could not be written; the Result is valid in any
// case.
//
// When ctx is cancelled no new call is made, and Run waits for the calls in flight for at most 10 seconds. When ctx has
// a deadline the run ends by it, and stops removing a little earlier, so that calls in flight are answered. A runtime
// that does not answer is waited for until ctx ends.
func Run(ctx context.Context, client *crictl.Client, plan Plan, opts Options) (Result, error) {
	r := newRun(client, &plan, opts)
	if len(plan.Remove) == 0 {
		return r.finish(), nil
	}
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(1 << 62)
	}
	ctx, stop := context.WithDeadline(ctx, end.Add(-min(reserve, time.Until(end)/10)))
	defer stop()
	quiet, relist, err := r.quiet(ctx)
	if err != nil {
		r.result.Left = len(plan.Remove)
		return r.finish(), err
	}
	r.pace = newPace(r.opts.Concurrency, quiet, relist)
	r.removing, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(r.removing, func() { time.AfterFunc(min(grace, time.Until(end)), cancel) })()
	r.loop(work)
	switch err := r.removing.Err(); {
	case r.result.Stopped != "" || err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		r.result.Stopped = "the deadline was reached"
	default:
		r.result.Stopped = "interrupted"
	}
	for _, j := range r.queue {
		if j.err == "" {
			r.result.Left++
		} else {
			r.giveUp(j)
		}
	}
	return r.finish(), r.auditErr
}

// A run is the state of one Run. Its loop is the only goroutine that changes it; removals and probes are goroutines
// that report to it.
type run struct {
	client   *crictl.Client
	opts     Options
	begun    time.Time
	pace     *pace
	next     time.Time       // no removal begins before, see Options.Rate
	removing context.Context // removals may begin until it ends
	cancel   context.CancelFunc

	queue    []*job // not in flight, in order; those to be tried again at the end
	running  int
	pods     map[string]*podState
	results  chan outcome
	auditErr error

	probeID string
	probes  chan crictl.Call
	probing bool
	probeAt time.Time // start of the probe in flight, or when the next is due

	total  int
	result Result
}

// A job is a candidate that is not yet removed.
type job struct {
	of     *Candidate
	pod    *podState
	tries  int
	unsure bool   // its removal was asked for and not answered
	err    string // of the last attempt
	log    string // where the runtime has the log of a container that it was asked to remove
}

// A podState is the state of a pod during a run.
type podState struct {
	containers int  // that are not yet done
	stuck      bool // a call was not answered, although the runtime answers others
}

func newRun(client *crictl.Client, plan *Plan, opts Options) *run {
	opts.Concurrency, opts.Rate = cmp.Or(opts.Concurrency, 32), cmp.Or(opts.Rate, DefaultRate)
	r := &run{
		client: client, opts: opts, begun: time.Now(), total: len(plan.Remove),
		results: make(chan outcome, opts.Concurrency), probes: make(chan crictl.Call, 1),
		pods: map[string]*podState{}, result: Result{Skipped: []Skipped{}, Failed: []Failed{}},
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
			return nil, 0,
				fmt.Errorf("asking the runtime for a small list before anything is removed: %s: %s", call.Code,
					call.Err)
		}
		probes = append(probes, call.Elapsed)
		time.Sleep(quietGap)
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
	for r.running > 0 || r.removing.Err() == nil && len(r.queue) > 0 {
		now := time.Now()
		switch {
		case r.probing && now.Sub(r.probeAt) > r.pace.stall():
			r.pace.pause()
		case !r.probing && !now.Before(r.probeAt):
			r.probing, r.probeAt = true, now
			go func() { r.probes <- r.probe(work) }()
		}
		r.start(work)
		r.show(now)
		select {
		case out := <-r.results:
			r.settle(out)
		case call := <-r.probes:
			r.probing = false
			r.probeAt = time.Now().Add(min(max(probeEvery, probeShare*call.Elapsed), longestBetween))
			r.pace.probed(call.Elapsed, call.OK())
		case <-ticker.C:
		}
	}
}

// start begins as many removals as may run now.
func (r *run) start(work context.Context) {
	for r.removing.Err() == nil && !r.pace.paused && r.running < r.pace.width {
		i := slices.IndexFunc(r.queue, func(j *job) bool {
			return j.of.Kind == KindContainer || j.pod.containers == 0 && r.running < mostSandboxes
		})
		if i < 0 || !r.allowed(time.Now()) {
			return
		}
		j := r.queue[i]
		r.queue = slices.Delete(r.queue, i, i+1)
		r.running++
		r.result.Most = max(r.result.Most, r.running)
		go func() { r.results <- r.attempt(work, j) }()
	}
}

// allowed reports whether Options.Rate lets another removal begin. Those that a late tick has missed are made up for.
func (r *run) allowed(now time.Time) bool {
	if now.Before(r.next) {
		return false
	}
	if missed := now.Add(-2 * tick); r.next.Before(missed) {
		r.next = missed
	}
	r.next = r.next.Add(time.Duration(min(float64(time.Second)/r.opts.Rate, 1<<62)))
	return true
}

// settle records the outcome of an attempt.
func (r *run) settle(out outcome) {
	j := out.job
	r.running--
	r.result.LogFiles += len(out.log.files)
	r.result.LogBytes += out.log.bytes
	if out.log.err != nil {
		r.result.LogsLeft = append(r.result.LogsLeft, Failed{ID: j.of.ID, Error: out.log.err.Error()})
	}
	switch out.verdict {
	case removed:
		r.done(j)
		r.result.Removed++
	case unrecorded:
		r.fail(j, "removed, but not recorded: "+out.why)
		r.auditErr, r.result.Stopped = errors.New(out.why), "the audit file cannot be written"
		r.cancel()
	case changed:
		r.done(j)
		r.result.Skipped = append(r.result.Skipped, Skipped{ID: j.of.ID, Why: out.why})
	case failed:
		r.again(out)
	}
}

// done counts a finished job, for which its pod's sandboxes may wait.
func (r *run) done(j *job) {
	if j.of.Kind == KindContainer {
		j.pod.containers--
	}
}

func (r *run) fail(j *job, why string) {
	r.done(j)
	r.result.Failed = append(r.result.Failed, Failed{ID: j.of.ID, Error: why})
}

// again puts a job back into the queue, or gives it up after as many attempts as it may have. Of a pod that does not
// answer all jobs are given up.
func (r *run) again(out outcome) {
	j := out.job
	if j.unsure || r.removing.Err() == nil {
		j.err = out.why
	}
	if out.down {
		r.pace.pause()
	}
	j.pod.stuck = j.pod.stuck || out.hung && !r.pace.paused
	j.tries++
	r.queue = slices.DeleteFunc(append(r.queue, j), func(other *job) bool {
		over := other == j && j.tries > retries || other.pod == j.pod && j.pod.stuck
		if over {
			r.giveUp(other)
		}
		return over
	})
}

// giveUp reports a job as failed.
func (r *run) giveUp(j *job) {
	why := cmp.Or(j.err, "not tried")
	if j.unsure {
		why = "its removal was asked for and not answered, so whether it is gone is not known: " + why
	}
	if j.pod.stuck {
		why = fmt.Sprintf("pod %s/%s does not answer: %s", j.of.Namespace, j.of.Pod, why)
	}
	r.fail(j, why)
}

// show reports the progress.
func (r *run) show(now time.Time) {
	if r.opts.Progress == nil {
		return
	}
	p := Progress{
		Total: r.total, Removed: r.result.Removed, Skipped: len(r.result.Skipped),
		Failed: len(r.result.Failed),
	}
	if r.pace != nil && r.pace.paused {
		p.Paused = noAnswer
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
	r.show(now)
	return r.result
}
