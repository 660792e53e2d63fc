package journalfile

import "bytes"

// salvage goes over a damaged file a second time, for messages that the walk could not see: in the holes between
// objects, in objects whose type was damaged, and inside objects whose damaged size happens to end where another one
// begins.
func (s *search) salvage() {
	m := s.f.img
	for _, h := range s.holes {
		if s.done() {
			return
		}
		s.scan(h.suspect, min(h.to, m.size()))
	}
	w := newWalker(m, m.head.headerSize, m.size(), ignoreHoles)
	for !s.done() {
		o, ok := w.next()
		if !ok {
			return
		}
		s.inside(o, 0)
	}
}

// nestMax bounds how many damaged sizes may lie inside each other.
const nestMax = 16

// inside looks at an object that the walk passed as a whole, for others that a damaged size has swallowed.
func (s *search) inside(o object, depth int) {
	m := s.f.img
	if o.kind != kindData && o.size > m.payload+messageLen && m.u64(o.off+m.payload) == messageWord {
		o.kind = kindData
		s.visit(o)
	}
	if o.size < 2*headSize || depth > nestMax {
		return
	}
	end := o.off + o.size
	first := m.resync(o.off+headSize, end)
	if first >= end {
		return
	}
	s.stats.Unreadable = addRange(s.stats.Unreadable, o.off, first, whySize)
	sub := newWalker(m, first, end, func(h hole) { s.scan(h.suspect, h.to) })
	for !s.done() {
		in, ok := sub.next()
		if !ok {
			return
		}
		if in.kind == kindData {
			s.visit(in)
		}
		s.inside(in, depth+1)
	}
}

// scan looks for messages between from and to by their first bytes alone.
func (s *search) scan(from, to uint64) {
	m := s.f.img
	for off := align8(from); off+8 <= to && !s.done() && s.budget > 0; off += 8 {
		word := m.u64(off)
		if word == 0 {
			continue
		}
		if word == messageWord {
			off = max(off, align8(s.scanText(off, to))-8)
			continue
		}
		if flag := packed(word); flag != 0 {
			s.scanPacked(off, to, flag)
		}
	}
}

// textMax bounds a text of unknown size: journald's LineMax is 48 KiB.
const textMax = 64 << 10

// mend corrects the end of a text whose size is a little wrong. Behind a text come the zeros up to the next word, and
// then an object, whose first byte is its type; text has neither.
func (m *image) mend(o object, text []byte) []byte {
	from, limit := o.off+m.payload+messageLen, min(m.size(), o.off+o.size+textMax)
	for end := o.off + o.size; end < limit && m.b[end] != 0 && (end&7 != 0 || m.b[end] > kindTag); end++ {
		text = m.b[from : end+1]
	}
	for n := len(text); n > 0 && text[n-1] == 0 && (from+uint64(n))&7 != 1; n-- {
		text = text[:n-1]
	}
	return text
}

// scanText tries a text at off, that ends before to, and returns the end of what it took. Its own size is tried
// first, then the text up to the first zero, because text has none: either can be what the damage spared.
func (s *search) scanText(off, to uint64) uint64 {
	m := s.f.img
	if off < m.head.headerSize+m.payload || m.b[off-1] != 0 {
		return off
	}
	o := object{off: off - m.payload, kind: kindData}
	word, size := m.u64(o.off), m.u64(o.off+8)
	if word&^0x0700 == kindData && size < unpackMax && o.off+size > m.size() && to == m.size() {
		return off // it goes on behind the end of the file
	}
	whole := m.b[off:min(to, off+textMax)]
	if n := bytes.IndexByte(whole, 0); n >= 0 {
		whole = whole[:n]
		// A text that fills its last word is followed by the type of the next object at once.
		if n&7 == 1 && whole[n-1] <= kindTag {
			whole = whole[:n-1]
		}
	}
	texts := [][]byte{whole}
	if size > m.payload+messageLen && size <= to-o.off {
		texts = [][]byte{m.b[off : o.off+size], whole}
	}
	for _, text := range texts {
		s.budget -= int64(len(text))
		if len(text) < messageLen || bytes.IndexByte(text, 0) >= 0 || !s.wants(text[messageLen:]) {
			continue
		}
		o.size = m.payload + uint64(len(text))
		s.hit(o, text[messageLen:])
		return off + uint64(len(text))
	}
	return off
}

// scanPacked tries a compressed payload at off. If its own size is wrong it tries the eight sizes that reach to the
// end of the hole, which differ by padding.
func (s *search) scanPacked(off, to uint64, flag byte) {
	m := s.f.img
	if off < m.head.headerSize+m.payload {
		return
	}
	o := object{off: off - m.payload, kind: kindData, flags: flag}
	var sizes []uint64
	if size := m.u64(o.off + 8); size > m.payload && size <= to-o.off {
		sizes = append(sizes, size)
	}
	for cut := uint64(0); cut < 8 && off+cut < to; cut++ {
		sizes = append(sizes, to-o.off-cut)
	}
	for _, o.size = range sizes {
		s.budget -= int64(o.size)
		text, ok := s.f.text(o)
		if !ok {
			continue
		}
		if s.wants(text) {
			s.hit(o, text)
		}
		return
	}
}
