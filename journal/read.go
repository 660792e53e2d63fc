package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/signature"
)

// workers is how many sources are read at the same time. More would only compete with the node that is in trouble.
const workers = 2

// A reading is one run of Read.
type reading struct {
	opts *Options
	m    matchers
	jobs []*job
	boot journalfile.ID // that was asked for; zero: all

	bytes    atomic.Int64
	total    int64
	found    atomic.Int64
	progress sync.Mutex // held while Options.Progress runs
}

// Read reads logs and returns what they hold of PLEG. The error is why nothing could be looked at; then the report
// holds no more than the sources and what is wrong with them. What could not be read beside other things stands in
// the report.
func Read(ctx context.Context, opts Options) (*Report, error) {
	r := newReading(&opts, discover(opts.Inputs))
	if err := r.findBoot(ctx); err != nil {
		r.jobs = nil
		return r.report(), err
	}
	r.run(ctx)
	return r.report(), r.verdict(ctx)
}

func newReading(opts *Options, jobs []*job) *reading {
	r := &reading{
		opts: opts,
		jobs: jobs,
		m:    matchers{signature.NewMatcher(), signature.NewMatcher(signature.SyncLoopActive)},
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Local = cmp.Or(opts.Local, time.Local)
	for _, j := range jobs {
		r.total += j.size
	}
	return r
}

// run reads all jobs, a few at a time.
func (r *reading) run(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(workers)
	for _, j := range r.jobs {
		g.Go(func() error {
			if j.err = cmp.Or(j.err, ctx.Err()); j.err == nil {
				r.one(ctx, j)
			}
			return nil // each job has its own
		})
	}
	_ = g.Wait()
}

// one reads one job.
func (r *reading) one(ctx context.Context, j *job) {
	if j.collector == nil {
		j.collector = r.newCollector(r.newSource(j))
	}
	c, s := j.collector, j.collector.logSource
	if j.kind == jobJournal {
		j.err = r.journal(ctx, j, c)
	} else {
		j.err = r.text(ctx, j, c)
	}
	if j.err != nil {
		j.err = cmp.Or(ctx.Err(), j.err)
	}
	s.hint.descending = c.descending()
	// What was read before something went wrong counts.
	if j.err == nil || s.Lines > 0 {
		j.source = s
	}
	if err := r.blind(s, j.bad); j.err == nil && err != nil {
		j.err, j.source = err, nil
	}
	if j.err != nil {
		s.Problem = problem(j.err)
	}
}

// newSource returns a source with what is known of its stamps before it is read.
func (r *reading) newSource(j *job) *logSource {
	s := &logSource{Source: Source{Name: Clean(j.name, 1024)}, matches: newMatches(cmp.Or(r.opts.mostBursts, maxBursts))}
	s.hint = calendarHint{
		loc: r.opts.Local, notAfter: r.opts.Now(), how: "assumed: the last that is not in the future",
	}
	if !j.changed.IsZero() && j.changed.Before(s.hint.notAfter) {
		s.hint.notAfter, s.hint.how = j.changed, "assumed from file mtime"
	}
	if r.opts.Year != 0 {
		s.hint.notAfter, s.hint.how = time.Date(r.opts.Year, 12, 31, 0, 0, 0, 0, time.UTC), "as given by --year"
	}
	return s
}

// blind returns why a source that was read to its end shows nothing at all, so that finding nothing in it means
// nothing. A text is no log if most of its lines are binary, such as those of a program that has the texts of
// signatures in it; or if nothing was found in it, and it has no record with a time, or most lines are no records.
// Those of "kubectl describe node" are not, and events have no times.
func (r *reading) blind(s *logSource, bad []Unreadable) error {
	found, timed := len(s.matches.unhealthy)+len(s.matches.bursts) > 0, len(s.matches.stamps) > 0
	most, kubectl := s.Unparsed <= s.Lines/2, s.Format == "describe"
	switch {
	case s.binary > s.Lines/2:
		return ErrNotLog
	case s.skipped || found || timed && most || kubectl && (timed || most):
		return nil
	case s.Lines == 0 && len(bad) > 0 && r.opts.window().open():
		return fmt.Errorf("nothing in it can be read: %s", bad[0].Why)
	case s.blank:
		return ErrEmpty
	case s.Lines > 0 && s.Format != formatJournal:
		return ErrNotLog
	}
	return nil
}

// advance reports the progress, when n more bytes of a source have been read.
func (r *reading) advance(name string, n int64) {
	at := r.bytes.Add(n)
	if r.opts.Progress == nil {
		return
	}
	r.progress.Lock()
	defer r.progress.Unlock()
	r.opts.Progress(Progress{Source: name, Read: at, Total: r.total, Records: r.found.Load()})
}

// problem returns why a source was not read, or not to its end.
func problem(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "not read to its end: the time was up"
	case errors.Is(err, context.Canceled):
		return "not read to its end: interrupted"
	}
	return Clean(err.Error(), 500)
}

// report assembles what was read.
func (r *reading) report() *Report {
	var sources []*logSource
	var bad []Unreadable
	var unread, skipped []Source
	texts := false
	for _, j := range r.jobs {
		bad = append(bad, j.bad...)
		texts = texts || j.kind > jobJournal
		switch {
		case j.source == nil:
			unread = append(unread, Source{Name: Clean(j.name, 1024), Problem: problem(j.err)})
		case j.source.skipped: // it was looked at: its header shows enough
			skipped = append(skipped, Source{Name: Clean(j.name, 1024), Format: formatJournal})
		default:
			sources = append(sources, j.source)
		}
	}
	report := assemble(sources, r.opts)
	report.Unreadable = append(report.Unreadable, bad...)
	if report.Sources = append(report.Sources, unread...); len(report.Sources) == 0 {
		report.Sources = append(report.Sources, skipped...)
	}
	note := func(is bool, format string, args ...any) {
		if is {
			report.Notes = append(report.Notes, fmt.Sprintf(format, args...))
		}
	}
	note(len(skipped) > 0, "journal files that hold nothing of the time asked for: %d, not listed", len(skipped))
	note(report.Lines == 0 && !r.opts.window().open(), "nothing that was read lies in the range of time asked for")
	note(texts && r.opts.Boot != "", "text logs do not tell boots apart; all of them was read")
	note(len(r.opts.Units) > 0 && report.Lines > 0 && len(report.Signatures) == 0,
		"no record of interest is of the units asked for: %q", r.opts.Units)
	return report
}

// verdict is nil if something could be looked at.
func (r *reading) verdict(ctx context.Context) error {
	var errs []error
	for _, j := range r.jobs {
		err := j.err
		switch {
		case j.source != nil && (j.kind != jobKmsg || r.opts.everySync):
			return nil
		case j.source != nil:
			err = ErrNoJournal // the kernel's records are not the kubelet's
		}
		errs = append(errs, fmt.Errorf("reading %s: %w", j.name, err))
	}
	switch {
	case len(errs) == 0:
		return ErrNoLogs
	case ctx.Err() != nil:
		return fmt.Errorf("reading logs: %w", ctx.Err())
	}
	return errors.Join(errs...)
}

// recentLead is how much older than wanted records are read for Recent, because the anchor of a stall, its first
// records and its cause lie before.
const recentLead = 5 * time.Minute

// Recent reads what the logs of the machine whose root is given hold of the time since an instant. It goes by the
// index of the journal, so that a large one costs no more than a small one, and ends with the context. The report
// covers a few minutes more, for what led to what happened since.
func Recent(ctx context.Context, root string, since time.Time) (*Report, error) {
	if !since.IsZero() {
		since = since.Add(-recentLead)
	}
	return Read(ctx, Options{Inputs: []Input{{Kind: Root, Path: root}}, Since: since, everySync: true})
}
