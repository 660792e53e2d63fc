package journalfile

import (
	"context"
	"errors"
	"fmt"
)

// reader is a place in one file that moves from entry to entry. It follows the entry arrays, and where these are broken
// the entries themselves, which stand in the same order.
type reader struct {
	f    *File
	l    *list
	i    uint64 // index in l of the next entry
	hi   uint64
	w    *walker
	obj  object
	cur  Cursor // of obj
	have bool
	last uint64 // offset behind which the walker begins
	err  error
}

// newReader begins at entry lo of the file's list. If that is damaged it begins with the first entry that can be found.
func newReader(f *File, lo, hi uint64, l *list) *reader {
	r := &reader{f: f, l: l, i: lo, hi: hi, last: f.img.head.headerSize}
	if lo > 0 {
		if e, ok := l.entry(lo - 1); ok {
			r.last = e.end()
		}
	} else if !l.whole() {
		r.walk()
	}
	return r
}

func (r *reader) walk() {
	r.w = newWalker(r.f.img, r.last, r.f.img.size(), ignoreHoles)
}

// advance moves to the next entry that q admits.
func (r *reader) advance(ctx context.Context, q *Query) {
	r.have = false
	off, faulted := r.f.protect(func() {
		for n := 1; r.err == nil; n++ {
			if n&0xFFF == 0 {
				r.err = ctx.Err()
			}
			e, ok := r.next()
			if !ok {
				return
			}
			r.last = e.end()
			if !q.admits(r.f.img.realtime(e), r.f.img.boot(e)) {
				continue
			}
			var entry Entry
			r.f.fill(&entry, e)
			r.obj, r.cur, r.have = e, entry.Cursor(), true
			return
		}
	})
	if faulted {
		r.err = fmt.Errorf("reading %s at offset %d: %w", r.f.path, off, ErrFault)
	}
}

func (r *reader) next() (object, bool) {
	if r.w == nil {
		if r.i >= r.hi {
			return object{}, false
		}
		e, ok := r.l.entry(r.i)
		r.i++
		if ok {
			return e, true
		}
		r.walk()
	}
	for {
		o, ok := r.w.next()
		if !ok || o.kind == kindEntry {
			return o, ok
		}
	}
}

// Merge hands over the entries of several files in one order, with all their fields: by sequence number within what one
// journald wrote, else by the clock of a boot, else by the time of day. An entry that stands in two files comes once.
// A file that fails on the way is left there; the others go on, and the error names it.
func Merge(ctx context.Context, files []*File, q Query, yield func(*Entry) bool) (Stats, error) {
	var readers []*reader
	var stats Stats
	for _, f := range files {
		if f.empty {
			continue
		}
		stats.Bytes += f.size
		var r *reader
		if _, faulted := f.protect(func() {
			l := f.img.mainList()
			lo, hi := l.window(q.Since, q.Until)
			r = newReader(f, lo, hi, l)
		}); faulted {
			return stats, fmt.Errorf("reading %s: %w", f.path, ErrFault)
		}
		readers = append(readers, r)
	}
	err := merge(ctx, readers, q, &stats, yield)
	return stats, err
}

func merge(ctx context.Context, readers []*reader, q Query, stats *Stats, yield func(*Entry) bool) error {
	if q.everything() {
		q.Match = nil
	}
	var problems []error
	for _, r := range readers {
		r.advance(ctx, &q)
	}
	var before Cursor
	first := true
	for n := 0; ; n++ {
		if n&0xFF == 0 && ctx.Err() != nil {
			return errors.Join(append(problems, ctx.Err())...)
		}
		r := earliest(readers)
		if r == nil {
			break
		}
		if first || r.cur.Compare(before) != 0 {
			first, before = false, r.cur
			stats.count(r.cur.Realtime)
			if !r.give(&q, yield) {
				return errors.Join(problems...)
			}
		}
		r.advance(ctx, &q)
	}
	for _, r := range readers {
		problems = append(problems, r.err)
	}
	return errors.Join(problems...)
}

// earliest returns the reader whose entry comes first. The order is that of journalctl, which looks at all files for each
// entry too: it is no total order, since two pairs of files may be compared by different clocks.
func earliest(readers []*reader) *reader {
	var best *reader
	for _, r := range readers {
		if r.have && (best == nil || r.cur.Compare(best.cur) < 0) {
			best = r
		}
	}
	return best
}

// give hands over the entry of the reader if its message matches; false ends the merge.
func (r *reader) give(q *Query, yield func(*Entry) bool) bool {
	more := true
	off, faulted := r.f.protect(func() {
		text, _ := r.f.message(r.obj, q.Match)
		if text == nil && q.Match != nil {
			return
		}
		var e Entry
		r.f.fill(&e, r.obj)
		e.Message = text
		more = yield(&e)
	})
	if faulted {
		r.err = fmt.Errorf("reading %s at offset %d: %w", r.f.path, off, ErrFault)
	}
	return more
}
