package journalfile

// A Range is a stretch of a file that could not be read.
type Range struct {
	Offset, Bytes int64
	Why           string
}

// Why a stretch could not be read.
const (
	whyZeros  = "zeros where objects should be"
	whyObject = "no valid object"
	whyCut    = "cut off: the file ends before what its header announces"
	whySize   = "object of a damaged size"
	whyFault  = "could not be read from the disk, or the file was cut while it was read"
)

// walker goes through the objects of a file in the order in which they were written. It returns an object only once
// it has seen that another object follows, so a damaged size does not lead it astray unnoticed.
type walker struct {
	m    *image
	end  uint64
	cur  object
	off  uint64 // where cur begins
	have bool   // cur is an object
	gap  func(from, to uint64, why string)
}

func ignoreHoles(uint64, uint64, string) {}

func newWalker(m *image, from, end uint64, gap func(from, to uint64, why string)) *walker {
	return &walker{m: m, end: end, off: align8(from), gap: gap}
}

// next returns the next object; false at the end.
func (w *walker) next() (object, bool) {
	if !w.have && !w.begin() {
		return object{}, false
	}
	for {
		o := w.cur
		after := o.end()
		if n, ok := w.m.at(after, w.end); ok {
			w.cur, w.off = n, after
			return o, true
		}
		if w.last(after) {
			w.have, w.off = false, w.end
			return o, true
		}
		// The object behind this one, or the size of this one, is damaged. The next valid object decides.
		found := w.m.resync(o.off+headSize, w.end)
		w.off = found
		if w.have = found < w.end; w.have {
			w.cur, _ = w.m.at(found, w.end)
		}
		if found >= after {
			w.gap(after, found, w.why(after))
			return o, true
		}
		w.gap(o.off, found, whySize)
		if !w.have {
			return object{}, false
		}
	}
}

// begin finds the object to begin with.
func (w *walker) begin() bool {
	if w.off >= w.end {
		return false
	}
	o, ok := w.m.at(w.off, w.end)
	if !ok && !w.last(w.off) {
		found := w.m.resync(w.off, w.end)
		w.gap(w.off, found, w.why(w.off))
		w.off = found
		o, ok = w.m.at(found, w.end)
	}
	w.cur, w.have = o, ok
	return ok
}

// last reports whether nothing follows at off: the end, or the unused zeros up to it. Files grow by 8 MiB at a time.
func (w *walker) last(off uint64) bool {
	if off+8 > w.end {
		return true
	}
	return w.m.u64(off) == 0 && w.m.head.tailObject < off && zeros(w.m.b[off:w.end])
}

func (w *walker) why(off uint64) string {
	switch {
	case w.end < w.m.head.size && w.end == w.m.size() && w.m.resync(off, w.end) == w.end:
		return whyCut
	case off+8 <= w.end && w.m.u64(off) == 0:
		return whyZeros
	}
	return whyObject
}

// resync returns the first offset at or after from at which an object begins that is followed by another one, or by the
// end. It returns end if there is none.
func (m *image) resync(from, end uint64) uint64 {
	for off := align8(from); off+headSize <= end; off += 8 {
		word := m.u64(off)
		if word&^0x0707 != 0 || word&7 == 0 { // no type, or more than type and flags
			continue
		}
		if o, ok := m.at(off, end); ok && m.chained(o, end) {
			return off
		}
	}
	return end
}

// chained reports whether an object is followed by another one, by unused space or by the end.
func (m *image) chained(o object, end uint64) bool {
	after := o.end()
	if after+headSize > end {
		return true
	}
	if m.u64(after) == 0 && m.u64(after+8) == 0 {
		return true
	}
	_, ok := m.at(after, end)
	return ok
}
