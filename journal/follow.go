package journal

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal/textlog"
)

// reportEvery is how often at most the report is made anew while a log is followed.
const reportEvery = time.Second

// pollEvery is how often files are looked at for more.
const pollEvery = 500 * time.Millisecond

// A following is one run of Follow.
type following struct {
	*reader
	mu     sync.Mutex // guards everything below, and the sources
	update func(*Report, Event)
	last   *Report
	made   time.Time
}

// Follow reads the logs as they are, calls update once with their report and the zero Event, then for each event as it
// comes in, until the context ends, and once more with the whole report and the zero Event. The end of the context is
// no error. Journal files and text files are followed over rotation; a text file may be empty. Calls of update follow
// one another.
func Follow(ctx context.Context, opts Options, update func(*Report, Event)) error {
	all := discover(opts.Inputs)
	isStream := func(s *source) bool { return s.kind == kindStream }
	r := newReader(&opts, slices.DeleteFunc(slices.Clone(all), isStream))
	if err := r.findBoot(ctx); err != nil {
		return err
	}
	for _, s := range r.sources {
		if s.id != "" {
			s.next = new(uint64)
		}
	}
	r.run(ctx)
	canCome := func(s *source) bool { return isStream(s) || errors.Is(s.err, ErrEmpty) }
	if err := r.err(ctx); err != nil && !slices.ContainsFunc(all, canCome) && ctx.Err() == nil {
		return err
	}
	f := &following{reader: r, update: update}
	f.event(Event{})
	return f.follow(ctx, slices.DeleteFunc(all, func(s *source) bool { return !isStream(s) }))
}

// follow reads streams as they come in, and polls files for additions.
func (f *following) follow(ctx context.Context, streams []*source) error {
	files := len(f.sources) > 0
	f.opts.onEvent = f.event
	var wg sync.WaitGroup
	errs := make([]error, len(streams))
	for i, s := range streams {
		wg.Go(func() { errs[i] = f.lines(ctx, s) })
	}
	for files && ctx.Err() == nil {
		f.added(ctx)
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
	wg.Wait()
	f.made = time.Time{}
	f.event(Event{})
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	})...)
}

// event hands one event on, with the report so far. The caller holds the lock, once several goroutines read.
func (f *following) event(e Event) {
	if now := time.Now(); now.Sub(f.made) >= reportEvery {
		f.last, f.made = f.report(), now
	}
	f.update(f.last, e)
}

// added reads the additions to files, and hands their events on in the order of time.
func (f *following) added(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var events []Event
	var mu sync.Mutex
	f.opts.onEvent = func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}
	gone := slices.DeleteFunc(f.again(ctx, math.MaxInt64), func(s *source) bool { return !s.read || s.err != nil })
	f.sources = append(gone, f.sources...) // streams, and files that have disappeared, still count
	f.opts.onEvent = f.event
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(*b.At) })
	for _, e := range events {
		f.event(e)
	}
}

// lines reads records of a stream as they come in.
func (f *following) lines(ctx context.Context, s *source) error {
	f.mu.Lock()
	f.begin(s)
	s.read = true
	f.sources = append(f.sources, s)
	f.mu.Unlock()
	opts := textlog.Options{Next: s.literal, Longest: f.m.full.Longest(), All: true, Live: true}
	stats, err := textlog.Scan(ctx, &pipeReader{ctx: ctx, in: s.stream}, opts, func(t *textlog.Record) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.Lines++
		s.Format = t.Format
		s.line(t)
		return ctx.Err() == nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Lines, s.Bytes, s.Unparsed = stats.Lines, stats.Bytes, stats.Unparsed
	return cmp.Or(ctx.Err(), err)
}

// A pipeReader reads a pipe until ctx ends, also where a Read waits for more.
type pipeReader struct {
	ctx   context.Context
	in    io.Reader
	block []byte // for the next read
}

func (p *pipeReader) Read(b []byte) (int, error) {
	block := p.block
	if len(block) < len(b) {
		block = make([]byte, len(b)) // b is the caller's again once ctx has ended
	}
	p.block = nil // unless the read ends, it keeps the block
	n, err := deadline.Run(p.ctx, "reading a pipe", func(context.Context) (int, error) {
		return p.in.Read(block[:len(b)])
	})
	if err == nil {
		p.block = block
	}
	return copy(b, block[:n]), err
}
