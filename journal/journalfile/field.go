package journalfile

import (
	"bytes"
	"fmt"
)

// Has reports whether the file has an entry with field=value, such as those of one unit. It asks the index of the
// file. The error is ErrIndex if that is damaged, ErrFault if the file could not be read.
func (f *File) Has(field, value string) (found bool, err error) {
	if f.empty {
		return false, nil
	}
	want := []byte(field + "=" + value)
	whole := false
	_, faulted := f.protect(func() {
		whole = f.img.values(field, func(o object) bool {
			b, err := f.unpack.payload(f.img, o)
			found = err == nil && bytes.Equal(b, want)
			return !found
		})
	})
	switch {
	case faulted:
		return false, fmt.Errorf("reading %s: %w", f.path, ErrFault)
	case !found && !whole:
		return false, fmt.Errorf("reading %s: %w of %s", f.path, ErrIndex, field)
	}
	return found, nil
}

// values calls visit with the DATA objects of all values of a field, newest first, until visit returns false. It
// reports whether the chain of the field could be followed to its end.
//
// No hash function is needed: the table of fields is short enough to look at all of it, and each FIELD object begins a
// chain of the values that it ever had.
func (m *image) values(name string, visit func(object) bool) bool {
	const buckets = 1 << 16 // journald makes 333 or 1023
	whole := true
	end := m.head.fieldTable + m.head.fieldBytes
	if m.head.fieldTable < m.head.headerSize || end > m.size() || end < m.head.fieldTable {
		return false
	}
	for i := uint64(0); i < buckets && i*16+16 <= m.head.fieldBytes; i++ {
		off := m.u64(m.head.fieldTable + i*16)
		for last := uint64(0); off > last; { // new objects are added at the end of the chain of a bucket
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

// chainOf follows the values of one field. New values are put in front, so offsets fall and the chain cannot be a ring.
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
