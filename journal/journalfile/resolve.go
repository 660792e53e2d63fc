package journalfile

import (
	"bytes"
	"slices"
)

// pending is a message that matched, and of which some entries were not where its list has them.
type pending struct {
	data  object
	found []uint64 // entries that were
	want  uint64
}

const (
	// pendingMax bounds what is remembered of a damaged file.
	pendingMax = 1 << 16
	// strayMax is how many wrong entry offsets a DATA object may have before the rest of its list is not believed.
	strayMax = 64
)

// resolve hands over the entries of a DATA object with the given text.
func (s *search) resolve(o object, text []byte) {
	m := s.f.img
	l := m.dataList(o)
	s.found = s.found[:0]
	var last uint64
	stray := 0
	for i := uint64(0); i < l.n && stray < strayMax && !s.done(); i++ {
		off := l.at(i)
		e, ok := m.find(off, kindEntry)
		if !ok || off <= last {
			stray++
			continue
		}
		// An entry that does not name the text is the wrong one: the offset was damaged.
		nth, ok := m.lists(e, o.off)
		if !ok {
			stray++
			continue
		}
		last = off
		s.found = append(s.found, off)
		s.deliver(e, text, nth)
	}
	if s.done() || stray == 0 && l.whole() && l.want > 0 {
		return
	}
	if l.want == 0 && m.head.state == online && o.off >= s.tail {
		return // being written just now: its entry follows
	}
	p := pending{data: o, found: slices.Clone(s.found), want: max(1, l.want)}
	if p.want > max(1, m.head.entries) { // not even the count can be believed
		p.want = max(1, uint64(len(p.found)))
	}
	if len(s.pending) == pendingMax {
		s.conclude(p)
		return
	}
	s.pending = append(s.pending, p)
}

// deliver hands over one entry of a matching text, which is the nth of its items, if it is wanted and new.
func (s *search) deliver(e object, text []byte, nth int) {
	m := s.f.img
	if s.q.Match == nil || e.off <= s.mark || !s.q.admits(m.realtime(e), m.boot(e)) || s.earlier(e, nth) {
		return
	}
	s.hand(e, text)
}

// earlier reports whether an item before the nth of an entry matches too: then that one hands over the entry.
func (s *search) earlier(e object, nth int) bool {
	m := s.f.img
	for i := range nth {
		o, ok := m.find(m.dataAt(e, i), kindData)
		if !ok || o.size < m.payload+messageLen {
			continue
		}
		if o.flags == 0 && m.u64(o.off+m.payload) != messageWord {
			continue
		}
		b, err := s.f.unpack.fresh(m, o)
		if err == nil && bytes.HasPrefix(b, []byte("MESSAGE=")) && s.wants(b[messageLen:]) {
			return true
		}
	}
	return false
}

func (s *search) hand(e object, text []byte) {
	s.f.fill(&s.entry, e)
	s.entry.Message = text
	s.stopped = !s.yield(&s.entry)
}

// settle looks for the entries of the pending messages the other way round: which entry names them?
func (s *search) settle() {
	if len(s.pending) == 0 || s.done() {
		return
	}
	m := s.f.img
	byData := make(map[uint64]int, len(s.pending))
	var filter [1 << 16]bool // most items are no pending message; this check is faster than the map
	for i, p := range s.pending {
		byData[p.data.off] = i
		filter[p.data.off>>3&0xFFFF] = true
	}
	w := newWalker(m, m.head.headerSize, m.size(), ignoreHoles)
	for !s.done() {
		e, ok := w.next()
		if !ok {
			break
		}
		if e.kind != kindEntry {
			continue
		}
		for nth := range m.items(e) {
			off := m.dataAt(e, nth)
			if !filter[off>>3&0xFFFF] {
				continue
			}
			if i, ok := byData[off]; ok {
				s.claim(&s.pending[i], e, nth)
			}
		}
	}
	for _, p := range s.pending {
		if s.done() {
			return
		}
		s.conclude(p)
	}
}

// claim hands over an entry that names a pending message, if it was not found before.
func (s *search) claim(p *pending, e object, nth int) {
	if slices.Contains(p.found, e.off) {
		return
	}
	if len(p.found) < strayMax {
		p.found = append(p.found, e.off)
	}
	if text, ok := s.f.text(p.data); ok && !s.done() {
		s.deliver(e, text, nth)
	}
}

// conclude closes a pending message: without any entry the text alone is handed over.
func (s *search) conclude(p pending) {
	if n := uint64(len(p.found)); n > 0 {
		s.stats.Unresolved += int64(p.want - min(p.want, n))
		return
	}
	text, ok := s.f.text(p.data)
	if !ok {
		return
	}
	s.stats.Unresolved += int64(p.want)
	s.entry = Entry{Offset: p.data.off, Message: text, Unindexed: true, file: s.f}
	s.stopped = !s.yield(&s.entry)
}
