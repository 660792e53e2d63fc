package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/textlog"
)

// reportEvery is how often at most the report is made anew while a log is followed.
const reportEvery = time.Second

// A following is one run of Follow.
type following struct {
	*reading
	mu      sync.Mutex
	refused []refusal
	update  func(*Report, Event)
	report  *Report
	made    time.Time
}

// Follow reads what is there, calls update once with the report of it and the zero Event, then for each event as it
// comes in, until the context ends, and once more with the whole report and the zero Event. That is no error. It survives rotation: journal files give way to their successors,
// text files that are renamed, cut or created anew are opened again. Calls of update follow one another.
func Follow(ctx context.Context, opts Options, update func(*Report, Event)) error {
	jobs, refused := discover(opts.Inputs)
	streams := slices.ContainsFunc(jobs, func(j job) bool { return j.kind == jobStream })
	r := newReading(&opts, slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return j.kind == jobStream }), newMatchers())
	if err := r.findBoot(ctx); err != nil {
		return err
	}
	r.live = true
	began := opts.now()
	r.run(ctx)
	if err := r.verdict(ctx, refused); err != nil && !streams && ctx.Err() == nil {
		return err
	}
	f := &following{reading: r, refused: refused, update: update}
	f.mu.Lock()
	f.report, f.made = r.report(refused), time.Now()
	update(f.report, Event{})
	f.mu.Unlock()
	return f.follow(ctx, jobs, began)
}

// follow watches all jobs at the same time.
func (f *following) follow(ctx context.Context, jobs []job, began time.Time) error {
	var wg sync.WaitGroup
	var journals []string
	errs := make(chan error, len(jobs)+1)
	for i := range jobs {
		j := &jobs[i]
		switch j.kind {
		case jobJournal:
			journals = append(journals, j.path)
		case jobText:
			wg.Go(func() { errs <- f.tail(ctx, j) })
		case jobStream:
			wg.Go(func() { errs <- f.stream(ctx, j) })
		case jobKmsg: // its records come by the journal or a text log as well
		}
	}
	if len(journals) > 0 {
		wg.Go(func() { errs <- f.journals(ctx, journals, began) })
	}
	wg.Wait()
	f.report = f.reading.report(f.refused)
	f.update(f.report, Event{})
	close(errs)
	var all []error
	for err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// collector adds a source that grows.
func (f *following) collector(j *job, format string) *collector {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &part{store: newStore(), source: Source{Name: clean(j.name, 1024), Format: format}, hint: f.hint(&job{name: j.name})}
	f.parts = append(f.parts, p)
	f.fails = append(f.fails, nil)
	f.bad = append(f.bad, nil)
	f.jobs = append(f.jobs, *j)
	c := newCollector(f.pool, f.m, p, f.opts.Units, &f.found)
	c.onEvent, c.window = f.event, limits{since: f.opts.Since, until: f.opts.Until}
	return c
}

// event hands one event on, with the report so far. The caller holds the lock.
func (f *following) event(e Event) {
	now := time.Now()
	if now.Sub(f.made) >= reportEvery {
		f.report, f.made = f.reading.report(f.refused), now
	}
	f.update(f.report, e)
}

// journals follows journal files: those that were read, and their successors.
func (f *following) journals(ctx context.Context, names []string, began time.Time) error {
	c := f.collector(&job{name: "journal"}, formatJournal)
	take := entryTaker(c)
	q := f.query(c)
	q.Since, q.Until = uint64(began.UnixMicro()), 0
	opts := journalfile.FollowOptions{Files: names, Query: q}
	if dir := commonDir(names); dir != "" {
		opts.Dir, opts.Files = dir, nil
	}
	return journalfile.Follow(ctx, opts, func(e *journalfile.Entry) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.part.source.Lines++
		take(e)
		return true
	})
}

// stream reads a pipe as it fills.
func (f *following) stream(ctx context.Context, j *job) error {
	return f.live(ctx, j, Input{Reader: newPipeReader(ctx, j.input.Reader, true)})
}

// live reads records as they come in.
func (f *following) live(ctx context.Context, j *job, in Input) error {
	c := f.collector(j, "")
	take := textTaker(c)
	opts := textlog.Options{Next: c.next, Longest: c.m.full.Longest(), All: true, Live: true}
	stats, err := textlog.Scan(ctx, in.Reader, opts, func(t *textlog.Record) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.part.source.Lines++
		c.part.source.Format = t.Format
		t.Sample = c.next(t.Message) < 0
		take(t)
		return ctx.Err() == nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	c.part.source.Lines, c.part.source.Bytes, c.part.source.Unparsed = stats.Lines, stats.Bytes, stats.Unparsed
	return err
}
