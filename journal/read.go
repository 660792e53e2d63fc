package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// workers is how many sources are read at the same time. More would only compete with the node that is in trouble.
const workers = 2

// A reading is one run of Read.
type reading struct {
	opts  *Options
	pool  *pool
	m     *matchers
	jobs  []job
	parts []*part // of each job; nil: not read
	bad   [][]Unreadable
	fails []error
	boot  *bootFilter
	live  bool // more is to come

	bytes atomic.Int64
	total int64
	found atomic.Int64
	told  sync.Mutex
}

// Read reads logs and tells what they know. The error says why nothing could be looked at; then the report holds no more
// than the sources and what is wrong with them. What could not be read beside other things stands in the report.
func Read(ctx context.Context, opts Options) (*Report, error) {
	jobs, refused := discover(opts.Inputs)
	r := newReading(&opts, jobs, newMatchers())
	if err := r.findBoot(ctx); err != nil {
		return r.report(refused), err
	}
	r.run(ctx)
	report := r.report(refused)
	return report, r.verdict(ctx, refused)
}

func newReading(opts *Options, jobs []job, m *matchers) *reading {
	r := &reading{
		opts: opts, pool: &pool{}, m: m, jobs: jobs,
		parts: make([]*part, len(jobs)), bad: make([][]Unreadable, len(jobs)), fails: make([]error, len(jobs)),
	}
	for _, j := range jobs {
		r.total += j.size
	}
	return r
}

// run reads all jobs, a few at a time.
func (r *reading) run(ctx context.Context) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, len(r.jobs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(r.jobs) {
					return
				}
				if ctx.Err() != nil {
					r.fails[i] = ctx.Err()
					continue
				}
				r.one(ctx, i)
			}
		})
	}
	wg.Wait()
}

// one reads one job.
func (r *reading) one(ctx context.Context, i int) {
	j := &r.jobs[i]
	p := &part{store: newStore(), source: Source{Name: clean(j.name, 1024)}, hint: r.hint(j)}
	c := newCollector(r.pool, r.m, p, r.opts.Units, &r.found)
	c.everySync, c.window = r.opts.everySync, limits{since: r.opts.Since, until: r.opts.Until}
	var err error
	switch j.kind {
	case jobJournal:
		r.bad[i], err = r.journal(ctx, j, c)
	case jobKmsg:
		err = r.kmsg(j, c)
	default:
		r.bad[i], err = r.text(ctx, j, c)
	}
	p.hint.descending = c.descending()
	r.fails[i] = err
	// What was read before something went wrong counts.
	if err == nil || p.source.Lines > 0 {
		r.parts[i] = p
	}
	if err == nil {
		err = r.blind(p, r.bad[i])
		p.blind = err != nil
	}
	if err != nil {
		p.source.Problem = problem(err)
	}
}

// blind says why a source that was read to its end tells nothing at all, so that finding nothing in it means nothing.
func (r *reading) blind(p *part, bad []Unreadable) error {
	s := &p.source
	known := len(p.store.pleg) + len(p.store.bursts) + len(p.store.sights)
	switch {
	case p.skipped || known > 0:
		return nil
	case s.Lines == 0 && len(bad) > 0 && r.opts.Since.IsZero() && r.opts.Until.IsZero():
		return fmt.Errorf("nothing in it can be read: %s", bad[0].Why)
	case s.Lines > 0 && s.Unparsed == s.Lines:
		return ErrNotLog
	}
	return nil
}

// hint is what is known of a source's stamps before it is read.
func (r *reading) hint(j *job) calendarHint {
	h := calendarHint{loc: r.opts.local(), lastYear: r.opts.Year, notAfter: r.opts.now(), notHow: "as the last in which its records do not lie in the future"}
	if !j.changed.IsZero() && j.changed.Before(h.notAfter) {
		h.notAfter, h.notHow = j.changed, "by the time of the file"
	}
	return h
}

// progress tells how far the reading is, when n more bytes of a source have been read.
func (r *reading) progress(name string, n int64) {
	at := r.bytes.Add(n)
	if r.opts.Progress == nil {
		return
	}
	r.told.Lock()
	defer r.told.Unlock()
	r.opts.Progress(Progress{Source: name, Read: at, Total: r.total, Records: r.found.Load()})
}

// problem words why a source was not read, or not to its end.
func problem(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "not read to its end: the time was up"
	case errors.Is(err, context.Canceled):
		return "not read to its end: interrupted"
	}
	return clean(err.Error(), 500)
}

// report assembles what was read.
func (r *reading) report(refused []refusal) *Report {
	var parts []*part
	skipped := 0
	for _, p := range r.parts {
		switch {
		case p == nil:
		case p.skipped:
			skipped++
		default:
			parts = append(parts, p)
		}
	}
	report := assemble(parts, r.pool, r.opts, r.live)
	for _, list := range r.bad {
		report.Unreadable = append(report.Unreadable, list...)
	}
	for i, err := range r.fails {
		if err != nil && r.parts[i] == nil {
			report.Sources = append(report.Sources, Source{Name: clean(r.jobs[i].name, 1024), Problem: problem(err)})
		}
	}
	for _, f := range refused {
		report.Sources = append(report.Sources, Source{Name: clean(f.name, 1024), Problem: problem(f.err)})
	}
	if len(report.Sources) == 0 {
		for i, p := range r.parts {
			if p != nil && p.skipped { // it was looked at: its header says enough
				report.Sources = append(report.Sources, Source{Name: clean(r.jobs[i].name, 1024), Format: formatJournal})
			}
		}
	}
	if skipped > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("journal files that hold nothing of the time asked for: %d, not listed", skipped))
	}
	report.Notes = append(report.Notes, r.notes(report)...)
	return report
}

// notes words what was looked for and is not there.
func (r *reading) notes(report *Report) []string {
	var out []string
	if report.Lines == 0 && (!r.opts.Since.IsZero() || !r.opts.Until.IsZero()) {
		out = append(out, "nothing that was read lies in the range of time asked for")
	}
	if r.boot != nil && r.boot.texts {
		out = append(out, "text logs do not tell boots apart; all of them was read")
	}
	for _, u := range r.opts.Units {
		if r.silentUnit(u) {
			out = append(out, fmt.Sprintf("unit %s has never logged in the journal that was read", clean(u, 200)))
		}
	}
	return out
}

// verdict is nil if something could be looked at.
func (r *reading) verdict(ctx context.Context, refused []refusal) error {
	var errs []error
	for i, err := range r.fails {
		if p := r.parts[i]; (err == nil || p != nil) && !(p != nil && p.blind) {
			if r.jobs[i].kind != jobKmsg || r.opts.everySync {
				return nil
			}
			err = ErrNoJournal // what the kernel says is not what the kubelet says
		}
		if err == nil {
			err = errors.New(r.parts[i].source.Problem)
		}
		errs = append(errs, fmt.Errorf("reading %s: %w", r.jobs[i].name, err))
	}
	for _, f := range refused {
		errs = append(errs, fmt.Errorf("reading %s: %w", f.name, f.err))
	}
	if len(errs) == 0 {
		return ErrNoLogs
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reading logs: %w", err)
	}
	return errors.Join(errs...)
}

// recentLead is how much older than wanted records are read for Recent, because the anchor of a stall, its first records
// and its cause lie before.
const recentLead = 5 * time.Minute

// Recent reads what the logs of the machine whose root is given say of the time since an instant. It goes by the index of
// the journal, so that a large one costs no more than a small one, and ends with the context. The report covers a few
// minutes more, for what led to what happened since.
func Recent(ctx context.Context, root string, since time.Time) (*Report, error) {
	if !since.IsZero() {
		since = since.Add(-recentLead)
	}
	return Read(ctx, Options{Inputs: []Input{{Kind: Root, Path: root}}, Since: since, everySync: true})
}
