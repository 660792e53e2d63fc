package journalfile

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"
)

// pollEvery is how often the files are looked at.
const pollEvery = 250 * time.Millisecond

// tailed is one file that is being followed.
type tailed struct {
	f    *File
	info os.FileInfo
	next uint64 // index of the first entry that was not handed over
	gone bool   // no longer under a name that is written to
}

// follower is a running Follow.
type follower struct {
	dirs     []string
	query    Query
	files    []*tailed
	finished []os.FileInfo // files that will not grow any more
	read     map[ID]uint64 // how many entries of these were handed over
	started  bool
}

// Follow hands over entries as they are written to the files of some journal directories, also those that appear later,
// until ctx ends (its error is returned) or yield returns false. Entries that are there already are handed over if
// q.Since is set. Follow goes on over rotation: an archived file is read to its end, then its successor. Entries that
// arrive together are handed over in order. A file that cannot be read is tried again.
func Follow(ctx context.Context, dirs []string, q Query, yield func(*Entry) bool) error {
	w := &follower{dirs: dirs, query: q, read: make(map[ID]uint64)}
	w.query.Match = q.match()
	defer func() {
		for _, t := range w.files {
			_ = t.f.Close() // was only read
		}
	}()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := w.scan()
		if !w.started && err != nil && len(w.files) == 0 {
			return err
		}
		w.started = true
		if !w.drain(ctx, yield) {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// scan opens files that are new and notes which ones are gone. It returns the last error.
func (w *follower) scan() (problem error) {
	var names []string
	for _, dir := range w.dirs {
		found, err := Find(dir)
		names, problem = append(names, found...), cmp.Or(err, problem)
	}
	for _, t := range w.files {
		t.gone = true
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			problem = err
			continue
		}
		same := func(o os.FileInfo) bool { return os.SameFile(o, info) }
		// A new file can get the number of one that was removed; then it has another time or size.
		if slices.ContainsFunc(w.finished, func(o os.FileInfo) bool {
			return same(o) && o.Size() == info.Size() && o.ModTime().Equal(info.ModTime())
		}) {
			continue
		}
		i := slices.IndexFunc(w.files, func(t *tailed) bool { return same(t.info) })
		if i < 0 {
			t, err := w.open(name)
			if err != nil {
				problem = err
				continue
			}
			w.files = append(w.files, t)
			i = len(w.files) - 1
		}
		w.files[i].gone = strings.HasSuffix(name, "~") // journald does not write to a file of that name any more
	}
	return problem
}

// open opens a file and finds where to begin in it.
func (w *follower) open(name string) (*tailed, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	t := &tailed{f: f}
	if t.info, err = f.fd.Stat(); err != nil {
		_ = f.Close() // the first error counts
		return nil, err
	}
	if n, ok := w.read[f.img.head.fileID]; ok || w.started {
		t.next = n // what appeared after the beginning is new from its first entry on
		return t, nil
	}
	_, faulted := f.protect(func() {
		if l := f.img.mainList(); w.query.Since == 0 {
			t.next = l.n
		} else {
			t.next, _ = l.window(w.query.Since, 0)
		}
	})
	if faulted {
		_ = f.Close() // the fault counts
		return nil, ErrFault
	}
	return t, nil
}

// drain hands over the new entries of all files, in order, and closes files that are finished or fail. It reports
// whether to go on.
func (w *follower) drain(ctx context.Context, yield func(*Entry) bool) (more bool) {
	var fresh []Entry
	failed := map[*tailed]bool{}
	for _, t := range w.files {
		var ok bool
		fresh, ok = t.advance(&w.query, fresh)
		failed[t] = !ok
	}
	slices.SortStableFunc(fresh, func(a, b Entry) int {
		if a.file.img.head.seqnumID == b.file.img.head.seqnumID {
			return cmp.Compare(a.seqnum, b.seqnum)
		}
		return cmp.Compare(a.Realtime, b.Realtime)
	})
	more = true
	for i := 0; i < len(fresh) && more && ctx.Err() == nil; i++ {
		e := &fresh[i]
		e.file.protect(func() { // a file that faults fails in the next round
			if e.Message, _ = e.file.message(e.obj, w.query.Match); e.Message != nil {
				more = yield(e)
			}
		})
	}
	w.files = slices.DeleteFunc(w.files, func(t *tailed) bool {
		over := t.gone || failed[t] || t.f.img.head.state == archived
		if over {
			w.finish(t)
		}
		return over
	})
	return more && ctx.Err() == nil
}

func (w *follower) finish(t *tailed) {
	if info, err := t.f.fd.Stat(); err == nil {
		t.info = info
	}
	w.finished = append(w.finished, t.info)
	w.read[t.f.img.head.fileID] = t.next
	_ = t.f.Close() // was only read
}

// advance appends the new entries of the file that q admits. It reports false if the file could not be read: another
// process cut or broke it.
func (t *tailed) advance(q *Query, fresh []Entry) ([]Entry, bool) {
	if err := t.f.Refresh(); err != nil {
		return fresh, false
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
		return fresh[:before], false
	}
	return fresh, true
}
