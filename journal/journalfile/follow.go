package journalfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// FollowOptions says what to follow.
type FollowOptions struct {
	// Dir is a journal directory, of which all files are followed, also those that appear later. Files are single files,
	// instead: the successor of one that is rotated is opened under the same name.
	Dir   string
	Files []string
	// From is the last entry that is known already. With only its Realtime set everything later is handed over; the zero
	// Cursor means from now on.
	From  Cursor
	Query Query
	// Poll is how often to look even if the kernel announces nothing; 0 is half a second.
	Poll time.Duration
	// Problem, if set, is told once of each file or directory that cannot be read. Following goes on without it.
	Problem func(error)
}

// tailed is one file that is being followed.
type tailed struct {
	f    *File
	info os.FileInfo
	next uint64 // index of the first entry that was not handed over
	gone bool   // no longer under a name that is written to
}

// follower is a running Follow.
type follower struct {
	opts     FollowOptions
	files    []*tailed
	finished []os.FileInfo // files that will not grow any more
	read     map[ID]uint64 // how many entries of these were handed over
	started  bool
	notify   *fsnotify.Watcher
	told     map[string]bool // problems that were reported
}

func (w *follower) problem(err error) {
	if w.opts.Problem != nil && err != nil && !w.told[err.Error()] && len(w.told) < 1000 {
		w.told[err.Error()] = true
		w.opts.Problem(err)
	}
}

// Follow hands over entries as they are written, until ctx ends (its error is returned) or yield returns false. It keeps
// up with rotation: an archived file is read to its end, then its successor. Entries that come in together are merged in
// order.
func Follow(ctx context.Context, opts FollowOptions, yield func(*Entry) bool) error {
	if opts.Poll <= 0 {
		opts.Poll = 500 * time.Millisecond
	}
	w := &follower{opts: opts, told: make(map[string]bool), read: make(map[ID]uint64)}
	defer w.close()
	// Without inotify (its instances are limited per user) polling alone does it, a little later.
	if n, err := fsnotify.NewWatcher(); err == nil {
		w.notify = n
	}
	err := w.scan()
	if err != nil && len(w.files) == 0 {
		return err
	}
	w.problem(err)
	tick := time.NewTicker(opts.Poll)
	defer tick.Stop()
	for {
		if more, err := w.drain(ctx, yield); err != nil || !more {
			return err
		}
		rescan, err := w.wait(ctx, tick.C)
		if err != nil {
			return err
		}
		if rescan {
			w.problem(w.scan()) // a directory or file that cannot be opened now may be there again at the next tick
		}
	}
}

func (w *follower) close() {
	for _, t := range w.files {
		_ = t.f.Close() // was only read
	}
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// wait waits for something to happen. It reports whether names may have changed.
func (w *follower) wait(ctx context.Context, tick <-chan time.Time) (rescan bool, err error) {
	var events chan fsnotify.Event
	var problems chan error
	if w.notify != nil {
		events, problems = w.notify.Events, w.notify.Errors
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-tick:
		return true, nil
	case e := <-events:
		return e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0, nil
	case <-problems: // too many events at once: look at everything
		return true, nil
	}
}

// names returns the paths to look at now.
func (w *follower) names() ([]string, error) {
	if w.opts.Dir == "" {
		return w.opts.Files, nil
	}
	return Find(w.opts.Dir)
}

// watch asks the kernel to announce changes in the directories of the files.
func (w *follower) watch(names []string) {
	if w.notify == nil {
		return
	}
	dirs := []string{}
	if w.opts.Dir != "" {
		dirs = append(dirs, w.opts.Dir)
	}
	for _, n := range names {
		dirs = append(dirs, filepath.Dir(n))
	}
	slices.Sort(dirs)
	for _, d := range slices.Compact(dirs) {
		if !slices.Contains(w.notify.WatchList(), filepath.Clean(d)) {
			_ = w.notify.Add(d) // polling sees it too
		}
	}
}

// scan opens files that are new and notes which ones are gone.
func (w *follower) scan() error {
	names, err := w.names()
	w.watch(names)
	seen := make(map[*tailed]bool)
	var finished []os.FileInfo
	problems := []error{err}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		same := func(o os.FileInfo) bool { return os.SameFile(o, info) }
		// A new file can get the number of one that was removed; then it has another time or size.
		if slices.ContainsFunc(w.finished, func(o os.FileInfo) bool {
			return same(o) && o.Size() == info.Size() && o.ModTime().Equal(info.ModTime())
		}) {
			finished = append(finished, info)
			continue
		}
		i := slices.IndexFunc(w.files, func(t *tailed) bool { return same(t.info) })
		if i < 0 {
			t, err := w.open(name)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			w.files = append(w.files, t)
			i = len(w.files) - 1
		}
		seen[w.files[i]] = !strings.HasSuffix(name, "~") // journald has given up a file of that name
	}
	for _, t := range w.files {
		t.gone = !seen[t]
	}
	if err == nil {
		w.finished = finished
	}
	w.started = true
	return errors.Join(problems...)
}

// open opens a file and finds where to begin in it.
func (w *follower) open(name string) (*tailed, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.fd.Stat()
	if err != nil {
		_ = f.Close() // the first error says more
		return nil, err
	}
	t := &tailed{f: f, info: info}
	if n, ok := w.read[f.img.head.FileID]; ok || w.started {
		t.next = n // what appeared after the beginning is new from its first entry on
		return t, nil
	}
	if _, faulted := f.protect(func() { t.next = w.begin(f) }); faulted {
		_ = f.Close() // the fault says more
		return nil, fmt.Errorf("reading %s: %w", name, ErrFault)
	}
	return t, nil
}

// begin returns the index of the first entry behind From.
func (w *follower) begin(f *File) uint64 {
	l := f.img.mainList()
	if w.opts.From == (Cursor{}) {
		return l.n
	}
	var e Entry
	return uint64(sort.Search(int(l.n), func(i int) bool {
		o, ok := l.entry(uint64(i))
		if !ok {
			return false
		}
		f.fill(&e, o)
		return w.opts.From.Compare(e.Cursor()) < 0
	}))
}

// drain hands over what the files have got, in order, and lets go of those that are finished. It reports whether yield
// wants more.
func (w *follower) drain(ctx context.Context, yield func(*Entry) bool) (bool, error) {
	var readers []*reader
	var rest []*tailed
	for _, t := range w.files {
		l, err := t.refresh()
		if err != nil {
			// What another process cut or broke is over; a successor of that name is found by the scan.
			w.problem(err)
			w.finish(t)
			continue
		}
		rest = append(rest, t)
		if l != nil && l.n > t.next {
			readers = append(readers, newReader(t.f, t.next, l.n, l))
			t.next = l.n
		}
	}
	w.files = rest
	more := true
	err := merge(ctx, readers, w.opts.Query, new(Stats), func(e *Entry) bool {
		more = yield(e)
		return more
	})
	if ctx.Err() != nil || !more {
		return more, ctx.Err()
	}
	w.problem(err)
	w.files = slices.DeleteFunc(w.files, func(t *tailed) bool {
		over := t.gone || t.f.img.head.State == Archived
		if over {
			w.finish(t)
		}
		return over
	})
	return true, nil
}

func (w *follower) finish(t *tailed) {
	if info, err := t.f.fd.Stat(); err == nil {
		t.info = info
	}
	w.finished = append(w.finished, t.info)
	w.read[t.f.img.head.FileID] = t.next
	_ = t.f.Close() // was only read
}

// refresh looks at the file again and returns its list of entries, nil if there is none yet.
func (t *tailed) refresh() (*list, error) {
	if _, err := t.f.Refresh(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return nil, err
	}
	if t.f.empty {
		return nil, nil
	}
	var l *list
	if _, faulted := t.f.protect(func() { l = t.f.img.mainList() }); faulted {
		return nil, ErrFault
	}
	return l, nil
}
