package journalfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// FollowOptions says what to follow.
type FollowOptions struct {
	// Dir is a journal directory, of which all files are followed, also those that appear later. Without Dir, Files are
	// followed: when one of them is rotated, its successor is opened under the same name.
	Dir   string
	Files []string
	// Query selects entries. Those that are in the files already are handed over if Query.Since is set.
	Query Query
	// Poll is how often to look even if the kernel announces nothing; 0 is half a second.
	Poll time.Duration
	// Problem, if set, is called once for each file or directory that cannot be read. Following continues without it.
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
	reported map[string]bool // problems
}

func (w *follower) problem(err error) {
	if w.opts.Problem != nil && err != nil && !w.reported[err.Error()] && len(w.reported) < 1000 {
		w.reported[err.Error()] = true
		w.opts.Problem(err)
	}
}

// Follow hands over entries as they are written, until ctx ends (its error is returned) or yield returns false. It
// follows rotation: an archived file is read to its end, then its successor. Entries that arrive together are handed
// over in order.
func Follow(ctx context.Context, opts FollowOptions, yield func(*Entry) bool) error {
	opts.Poll = cmp.Or(opts.Poll, 500*time.Millisecond)
	w := &follower{opts: opts, reported: make(map[string]bool), read: make(map[ID]uint64)}
	defer w.close()
	// Without inotify, whose instances are limited per user, polling finds the same a little later.
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
			w.problem(w.scan()) // a directory or file that cannot be opened now is tried again at the next tick
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

// wait waits until something may have changed. It reports whether names may have.
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
			_ = w.notify.Add(d) // polling finds the changes too
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
		seen[w.files[i]] = !strings.HasSuffix(name, "~") // journald does not write to a file of that name any more
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
	if n, ok := w.read[f.img.head.fileID]; ok || w.started {
		t.next = n // what appeared after the beginning is new from its first entry on
		return t, nil
	}
	if _, faulted := f.protect(func() {
		if l := f.img.mainList(); w.opts.Query.Since == 0 {
			t.next = l.n
		} else {
			t.next, _ = l.window(w.opts.Query.Since, 0)
		}
	}); faulted {
		_ = f.Close() // the fault says more
		return nil, fmt.Errorf("reading %s: %w", name, ErrFault)
	}
	return t, nil
}

// drain hands over the new entries of all files, in order, and closes files that are finished. It reports whether yield
// wants more.
func (w *follower) drain(ctx context.Context, yield func(*Entry) bool) (more bool, err error) {
	var fresh []Entry
	var open []*tailed
	for _, t := range w.files {
		if fresh, err = t.advance(&w.opts.Query, fresh); err != nil {
			// Another process cut or broke the file; the scan finds a successor of that name.
			w.problem(err)
			w.finish(t)
			continue
		}
		open = append(open, t)
	}
	w.files = open
	slices.SortStableFunc(fresh, func(a, b Entry) int {
		if a.file.img.head.seqnumID == b.file.img.head.seqnumID {
			return cmp.Compare(a.seqnum, b.seqnum)
		}
		return cmp.Compare(a.Realtime, b.Realtime)
	})
	more = true
	for i := 0; i < len(fresh) && more && ctx.Err() == nil; i++ {
		e := &fresh[i]
		if _, faulted := e.file.protect(func() {
			if text, _ := e.file.message(e.obj, w.opts.Query.Match); text != nil || w.opts.Query.Match == nil {
				e.Message = text
				more = yield(e)
			}
		}); faulted {
			w.problem(fmt.Errorf("reading %s: %w", e.file.path, ErrFault))
		}
	}
	w.files = slices.DeleteFunc(w.files, func(t *tailed) bool {
		over := t.gone || t.f.img.head.state == archived
		if over {
			w.finish(t)
		}
		return over
	})
	return more, ctx.Err()
}

func (w *follower) finish(t *tailed) {
	if info, err := t.f.fd.Stat(); err == nil {
		t.info = info
	}
	w.finished = append(w.finished, t.info)
	w.read[t.f.img.head.fileID] = t.next
	_ = t.f.Close() // was only read
}

// advance appends the new entries of the file that q admits.
func (t *tailed) advance(q *Query, fresh []Entry) ([]Entry, error) {
	if _, err := t.f.Refresh(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fresh, err
	}
	if t.f.empty {
		return fresh, nil
	}
	before := len(fresh)
	_, faulted := t.f.protect(func() {
		l := t.f.img.mainList()
		for ; t.next < l.n; t.next++ {
			if o, ok := l.entry(t.next); ok && q.admits(t.f.img.realtime(o), t.f.img.boot(o)) {
				fresh = append(fresh, Entry{})
				t.f.fill(&fresh[len(fresh)-1], o)
			}
		}
	})
	if faulted {
		return fresh[:before], fmt.Errorf("reading %s: %w", t.f.path, ErrFault)
	}
	return fresh, nil
}
