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

// A reader is one run of Read.
type reader struct {
	opts    *Options
	m       matchers
	sources []*source
	boot    journalfile.ID // that was asked for; zero: all

	bytes    atomic.Int64
	total    int64
	found    atomic.Int64
	progress sync.Mutex // held while Options.Progress runs
}

// Read reads logs and reports what they say about PLEG. It returns an error if no source could be read; the report then
// has only the sources and their problems. Partial failures are listed in the report.
func Read(ctx context.Context, opts Options) (*Report, error) {
	r := newReader(&opts, discover(opts.Inputs))
	if err := r.findBoot(ctx); err != nil {
		r.sources = nil
		return r.report(), err
	}
	r.run(ctx)
	return r.report(), r.err(ctx)
}

func newReader(opts *Options, sources []*source) *reader {
	r := &reader{
		opts:    opts,
		sources: sources,
		m:       matchers{signature.NewMatcher(), signature.NewMatcher(signature.SyncLoopActive)},
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Local = cmp.Or(opts.Local, time.Local)
	for _, s := range sources {
		r.total += s.size
	}
	return r
}

// run reads all sources, a few at a time. Each keeps its own error.
func (r *reader) run(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(workers)
	for _, s := range r.sources {
		g.Go(func() error {
			if s.err = cmp.Or(s.err, ctx.Err()); s.err == nil {
				r.one(ctx, s)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// one reads one source.
func (r *reader) one(ctx context.Context, s *source) {
	if s.matches == nil {
		r.begin(s)
	}
	if s.kind == kindJournal {
		s.err = r.journal(ctx, s)
	} else {
		s.err = r.text(ctx, s)
	}
	if s.err != nil {
		s.err = cmp.Or(ctx.Err(), s.err)
	}
	s.hint.descending = s.descending()
	s.read = s.err == nil || s.Lines > 0 // records read before an error count
	if err := r.blind(s); s.err == nil && err != nil {
		s.err, s.read = err, false
	}
	if s.err != nil {
		s.Problem = problem(s.err)
	}
}

// blind returns why a source that was read to its end shows nothing at all, so that finding nothing in it means
// nothing. A text is no log if most of its lines are binary, as in a program that has the texts of
// signatures in it; or if nothing was found in it, and it has no record with a time, or most lines are no records.
// Those of "kubectl describe node" are not, and events have no times.
func (r *reader) blind(s *source) error {
	found, timed := len(s.matches.unhealthy)+len(s.matches.bursts) > 0, len(s.matches.stamps) > 0
	most, kubectl := s.Unparsed <= s.Lines/2, s.Format == "describe"
	switch {
	case s.binary > s.Lines/2:
		return ErrNotLog
	case s.skipped || found || timed && most || kubectl && (timed || most):
		return nil
	case s.Lines == 0 && len(s.bad) > 0 && r.opts.window().open():
		return fmt.Errorf("nothing in it can be read: %s", s.bad[0].Why)
	case s.blank:
		return ErrEmpty
	case s.Lines > 0 && s.Format != formatJournal:
		return ErrNotLog
	}
	return nil
}

// advance reports the progress, when n more bytes of a source have been read.
func (r *reader) advance(name string, n int64) {
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

// report assembles the report of all sources.
func (r *reader) report() *Report {
	var sources []*source
	var bad []Unreadable
	var unread, skipped []Source
	texts := false
	for _, s := range r.sources {
		bad = append(bad, s.bad...)
		texts = texts || s.kind > kindJournal
		switch {
		case !s.read:
			unread = append(unread, Source{Name: Clean(s.name, 1024), Problem: problem(s.err)})
		case s.skipped: // it was looked at: its header shows enough
			skipped = append(skipped, Source{Name: Clean(s.name, 1024), Format: formatJournal})
		default:
			sources = append(sources, s)
		}
	}
	report := assemble(sources, r.opts)
	report.Unreadable, report.Dumped = append(report.Unreadable, bad...), r.dumped(sources)
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

// err returns why nothing could be read; nil if something was.
func (r *reader) err(ctx context.Context) error {
	var errs []error
	for _, s := range r.sources {
		err := s.err
		switch {
		case s.read && (s.kind != kindKmsg || r.opts.everySync):
			return nil
		case s.read:
			err = ErrNoJournal // the kernel's records are not the kubelet's
		}
		errs = append(errs, fmt.Errorf("reading %s: %w", s.name, err))
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

// Recent reads the logs since an instant of the machine whose root is given. It goes by the
// index of the journal, so that a large one costs no more than a small one, and ends with the context. The report
// covers a few minutes more, since causes come before their effects.
func Recent(ctx context.Context, root string, since time.Time) (*Report, error) {
	if !since.IsZero() {
		since = since.Add(-recentLead)
	}
	return Read(ctx, Options{Inputs: []Input{{Kind: Root, Path: root}}, Since: since, everySync: true})
}
