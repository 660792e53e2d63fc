package journal

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/textlog"
)

// reportEvery is how often at most the report is made anew while a log is followed.
const reportEvery = time.Second

// A following is one run of Follow.
type following struct {
	*reading
	mu     sync.Mutex // guards everything below, jobs and the collectors' sources
	update func(*Report, Event)
	last   *Report
	made   time.Time
}

// Follow reads what is there, calls update once with the report of it and the zero Event, then for each event as it
// comes in, until the context ends, and once more with the whole report and the zero Event. The end of the context is
// no error. Journal files and text files are followed over rotation; a text file may be empty. Calls of update follow
// one another.
func Follow(ctx context.Context, opts Options, update func(*Report, Event)) error {
	jobs := discover(opts.Inputs)
	stream := func(j *job) bool { return j.kind == jobStream }
	for _, j := range jobs {
		if errors.Is(j.err, ErrEmpty) {
			*j = job{name: j.name, path: j.name, kind: jobStream, reader: &tail{path: j.name}}
		}
	}
	r := newReading(&opts, slices.DeleteFunc(slices.Clone(jobs), stream))
	if err := r.findBoot(ctx); err != nil {
		return err
	}
	began := opts.Now()
	r.run(ctx)
	if err := r.verdict(ctx); err != nil && !slices.ContainsFunc(jobs, stream) && ctx.Err() == nil {
		return err
	}
	f := &following{reading: r, update: update}
	f.event(Event{})
	return f.follow(ctx, jobs, began)
}

// follow watches all jobs at the same time.
func (f *following) follow(ctx context.Context, jobs []*job, began time.Time) error {
	var wg sync.WaitGroup
	var dirs []string // of journal files
	errs := make([]error, len(jobs)+1)
	for i, j := range jobs {
		switch {
		case j.kind == jobJournal:
			if dir := filepath.Dir(j.path); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		case j.kind == jobStream:
			wg.Go(func() { errs[i] = f.lines(ctx, j) })
		case j.kind == jobText && j.source != nil && j.source.Compressed == "":
			j.reader = &tail{path: j.path, at: j.source.Bytes}
			wg.Go(func() { errs[i] = f.lines(ctx, j) })
		}
	}
	if len(dirs) > 0 {
		wg.Go(func() { errs[len(jobs)] = f.journals(ctx, dirs, began) })
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

// collector adds a source that grows.
func (f *following) collector(name, format string) *collector {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &job{name: name}
	j.source = f.newSource(j)
	j.source.Format = format
	f.jobs = append(f.jobs, j)
	c := f.newCollector(j.source)
	c.onEvent = f.event
	return c
}

// journals follows the journal files of some directories: it looks again and again for entries that were added.
func (f *following) journals(ctx context.Context, dirs []string, began time.Time) error {
	c := f.collector("journal", formatJournal)
	q := f.query(c)
	q.Since, q.Until = uint64(began.UnixMicro()), 0
	next := map[string]*uint64{} // entry of each file, by its id: rotation gives it another name
	for ctx.Err() == nil {
		for _, dir := range dirs {
			names, _ := journalfile.Find(dir) // what cannot be read is tried again
			for _, j := range files(names) {
				if next[j.id] == nil {
					next[j.id] = new(uint64)
				}
				q.Next = next[j.id]
				f.added(ctx, j, q, c)
			}
		}
		select {
		case <-time.After(tailPause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// added takes the entries that were added to a journal file. A file that cannot be read is tried again.
func (f *following) added(ctx context.Context, j *job, q journalfile.Query, c *collector) {
	if j.kind != jobJournal {
		return
	}
	file, err := journalfile.Open(j.path)
	if err != nil {
		return
	}
	defer file.Close() // was only read
	_, _ = file.Search(ctx, q, func(e *journalfile.Entry) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.Lines++
		c.entry(e)
		return ctx.Err() == nil
	})
}

// lines reads records of text as they come in.
func (f *following) lines(ctx context.Context, j *job) error {
	c := f.collector(j.name, "")
	opts := textlog.Options{Next: c.next, Longest: c.m.full.Longest(), All: true, Live: true}
	stats, err := textlog.Scan(ctx, &pipeReader{ctx, j.reader}, opts, func(t *textlog.Record) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.Lines++
		c.Format = t.Format
		t.Sample = c.next(t.Message) < 0
		c.take(t)
		return ctx.Err() == nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Lines, c.Bytes, c.Unparsed = stats.Lines, stats.Bytes, stats.Unparsed
	return cmp.Or(ctx.Err(), err)
}

// A tail reads a file that grows, from an offset on; a file that was replaced or cut is read from its beginning.
type tail struct {
	path string
	at   int64
	file *os.File
}

// tailPause is how often a file is looked at for more.
const tailPause = 500 * time.Millisecond

// Read returns no bytes and no error where there is nothing new.
func (t *tail) Read(b []byte) (int, error) {
	info, err := os.Stat(t.path)
	if err == nil && t.file != nil {
		if old, statErr := t.file.Stat(); statErr != nil || !os.SameFile(old, info) || info.Size() < t.at {
			_ = t.file.Close() // was only read
			t.file, t.at = nil, 0
		}
	}
	if err == nil && t.file == nil {
		t.file, err = os.Open(t.path)
	}
	if t.file == nil || err != nil && !errors.Is(err, fs.ErrNotExist) { // between two files of a rotation there is none
		time.Sleep(tailPause)
		return 0, nil
	}
	n, err := t.file.ReadAt(b, t.at)
	t.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if n == 0 && err == nil {
		time.Sleep(tailPause)
	}
	return n, err
}

// A pipeReader reads a pipe until ctx ends, also where a Read waits for more.
type pipeReader struct {
	ctx context.Context
	in  io.Reader
}

func (p *pipeReader) Read(b []byte) (int, error) {
	block, err := deadline.Run(p.ctx, func(context.Context) ([]byte, error) {
		block := make([]byte, len(b)) // b is the caller's again once ctx has ended
		n, err := p.in.Read(block)
		return block[:n], err
	})
	return copy(b, block), err
}
