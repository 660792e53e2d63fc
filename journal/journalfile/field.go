package journalfile

import (
	"bytes"
	"context"
	"fmt"
)

// values calls visit with the DATA objects of all values of a field, newest first, until visit returns false. It reports
// whether the field's chain could be followed to its end.
//
// The way there needs no hash function: the table of fields is short enough to look at all of it, and each FIELD object
// begins a chain of the values that it ever had.
func (m *image) values(name string, visit func(object) bool) bool {
	const buckets = 1 << 16 // journald makes 333 or 1023
	whole := true
	end := m.head.fieldTable + m.head.fieldBytes
	if m.head.fieldTable < m.head.headerSize || end > m.size() || end < m.head.fieldTable {
		return false
	}
	for i := uint64(0); i < buckets && i*16+16 <= m.head.fieldBytes; i++ {
		off := m.u64(m.head.fieldTable + i*16)
		for last := uint64(0); off > last; { // new ones are added at the end of a bucket's chain
			o, ok := m.find(off, kindField)
			if !ok {
				whole = false
				break
			}
			if string(m.b[o.off+fieldNameAt:o.off+o.size]) == name {
				return m.chainOf(o, visit) && whole
			}
			last, off = off, m.u64(off+24)
		}
	}
	return whole
}

// chainOf follows the values of one field. New values are put in front, so offsets fall and there is no ring.
func (m *image) chainOf(field object, visit func(object) bool) bool {
	last := m.size()
	for off := m.u64(field.off + 32); off != 0; {
		o, ok := m.find(off, kindData)
		if !ok || off >= last {
			return false
		}
		if !visit(o) {
			return true
		}
		last, off = off, m.u64(off+32)
	}
	return true
}

// Of hands over the entries that carry field=value, such as those of one unit, in the order in which they were logged.
// q applies as in Search, the message being the first that matches. It goes through the index of the file and needs that
// to be whole; an error says where it is not, and Search finds what is left then.
func (f *File) Of(ctx context.Context, field, value string, q Query, yield func(*Entry) bool) (Stats, error) {
	s := &search{f: f, q: q, ctx: ctx, yield: yield}
	s.stats.Bytes = f.size
	if f.empty {
		return s.stats, ctx.Err()
	}
	broken := false
	s.safely(func() {
		data, ok, whole := f.lookup(field, value)
		if !ok {
			broken = !whole
			return
		}
		broken = !s.byList(f.img.dataList(data))
	})
	switch {
	case s.faults > 0:
		return s.stats, fmt.Errorf("reading %s: %w", f.path, ErrFault)
	case s.err != nil:
		return s.stats, fmt.Errorf("reading %s: %w", f.path, s.err)
	case broken:
		return s.stats, fmt.Errorf("reading %s: %w of %s=%s", f.path, ErrIndex, field, value)
	}
	return s.stats, nil
}

// lookup finds the DATA object of one value. whole is false if not all values could be looked at.
func (f *File) lookup(field, value string) (data object, found, whole bool) {
	want := []byte(field + "=" + value)
	whole = f.img.values(field, func(o object) bool {
		b, err := f.unpack.payload(f.img, o)
		if err == nil && bytes.Equal(b, want) {
			data, found = o, true
		}
		return !found
	})
	return data, found, whole
}

// byList hands over the entries of a list; false if something on the way is broken.
func (s *search) byList(l *list) bool {
	m := s.f.img
	lo, hi := l.window(s.q.Since, s.q.Until)
	match := s.q.Match
	if s.q.everything() {
		match = nil
	}
	whole := l.whole()
	for i := lo; i < hi && !s.done(); i++ {
		e, ok := l.entry(i)
		if !ok {
			return false
		}
		t := m.realtime(e)
		if !s.q.admits(t, m.boot(e)) {
			continue
		}
		s.stats.count(t)
		text, ok := s.f.message(e, match)
		if !ok {
			whole = false
			s.stats.Unresolved++
		}
		if text != nil || s.q.everything() {
			s.hand(e, text)
		}
	}
	return whole
}
