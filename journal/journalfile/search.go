package journalfile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// A Query selects entries.
type Query struct {
	// Since and Until bound the journal's own time, in microseconds since 1970, UTC; 0 is open. Until is exclusive.
	Since, Until uint64
	Boot         ID // one boot only, unless zero
	// Match tests the text of a message; nil takes all, in the order of the file. The entries with the message are
	// handed over before Match is called again.
	Match func(message []byte) bool
	// Next, when not nil, is the index of the first entry to look at, and is set to the index of the next one to be
	// written: a search with it finds the entries added since the search before.
	Next *uint64
}

// admits reports whether an entry at a time and of a boot is wanted. A time that was lost may be any.
func (q *Query) admits(realtime uint64, boot ID) bool {
	inTime := realtime == 0 || realtime >= q.Since && (q.Until == 0 || realtime < q.Until)
	return inTime && (q.Boot == ID{} || q.Boot == boot)
}

// Stats counts the entries that a search looked at.
type Stats struct {
	Entries    int64   // entries within Since, Until and Boot, whether they matched or not
	Bytes      int64   // size of the file; 0 if it was skipped
	Skipped    bool    // the header shows that the file has no entry of that time
	Unreadable []Range // in the order of the file
	// Unresolved counts the matching messages of which no entry could be found.
	Unresolved int64
	From, To   uint64 // earliest and latest time of the counted entries, microseconds since 1970; 0 if there are none
}

// count takes an entry at a time into the statistics.
func (s *Stats) count(realtime uint64) {
	s.Entries++
	s.From, s.To = earliest(s.From, realtime), max(s.To, realtime)
}

// earliest returns the earlier of two times of which one or both may be 0, which is none.
func earliest(a, b uint64) uint64 { return min(cmp.Or(a, b), cmp.Or(b, a)) }

// Search hands over the entries with a message that q accepts. They come in the order of the file, but if one text was
// logged several times, all entries with it may come together: sort by time if that matters. It ends early, without an
// error, when yield returns false.
//
// Damage is no error: what can be read is handed over, and the rest is listed in Stats.Unreadable.
func (f *File) Search(ctx context.Context, q Query, yield func(*Entry) bool) (Stats, error) {
	s := &search{f: f, q: q, ctx: ctx, yield: yield, inOrder: q.Match == nil}
	if q.Match == nil {
		s.q.Match = func([]byte) bool { return true }
	}
	if f.empty {
		if f.size > 0 {
			s.stats.Unreadable = []Range{{Bytes: f.size, Why: "nothing but zeros"}}
		}
		return s.stats, ctx.Err()
	}
	if h := f.img.head; h.spans() && (q.Since > h.tailRealtime || q.Until != 0 && q.Until <= h.headRealtime) {
		s.stats.Skipped = true
		return s.stats, ctx.Err()
	}
	s.stats.Bytes = f.size
	if s.err = ctx.Err(); s.err == nil {
		if off, faulted := f.protect(s.run); faulted {
			// The file was cut, or its disk does not deliver: nothing behind is read.
			s.unreadable(min(max(s.at, f.img.head.headerSize), off), f.img.size(), whyFault)
		}
	}
	slices.SortFunc(s.stats.Unreadable, func(a, b Range) int { return cmp.Compare(a.Offset, b.Offset) })
	if s.err != nil {
		return s.stats, fmt.Errorf("searching %s: %w", f.path, s.err)
	}
	return s.stats, nil
}

// search is one run of Search.
type search struct {
	f       *File
	q       Query
	ctx     context.Context
	yield   func(*Entry) bool
	inOrder bool // everything is wanted, in the order of the file

	stats   Stats
	entry   Entry
	stopped bool // yield returned false
	err     error
	steps   int

	at    uint64 // how far the walk has come
	mark  uint64 // entries up to this offset are done: by way of the entry arrays, before these turned out to be broken
	tail  uint64 // offset of the last entry
	found []uint64
	// late has the messages that match, by offset, whose list of entries is damaged; true if an entry was found.
	late map[uint64]bool
}

// done reports whether to stop, and looks at the context now and then.
func (s *search) done() bool {
	if s.steps++; s.steps&0xFFF == 0 && s.err == nil {
		s.err = s.ctx.Err()
	}
	return s.stopped || s.err != nil
}

func (s *search) run() {
	if s.byIndex() {
		return
	}
	s.stats.Entries, s.stats.From, s.stats.To = 0, 0, 0
	s.walk()
	if n, announced := s.f.img.size(), s.f.img.head.size; n < announced && !s.stopped {
		s.unreadable(n, announced, whyCut)
	}
	if len(s.stats.Unreadable) > 0 {
		s.salvage()
	}
	if len(s.late) > 0 {
		s.settle()
	}
}

// salvage goes over a damaged file a second time, for messages inside objects that the walk passed as a whole: a
// damaged size may happen to end where another object begins.
func (s *search) salvage() {
	m := s.f.img
	w := newWalker(m, m.head.headerSize, m.size(), ignoreHoles)
	for !s.done() {
		o, ok := w.next()
		if !ok {
			return
		}
		first := m.resync(o.off+headSize, o.end())
		if first >= o.end() {
			continue
		}
		s.unreadable(o.off, first, whySize)
		for inner := newWalker(m, first, o.end(), ignoreHoles); !s.done(); {
			in, ok := inner.next()
			if !ok {
				break
			}
			if in.kind == kindData {
				s.visit(in)
			}
		}
	}
}

// byIndex takes the entries through the main entry array, which is the shorter way to a narrow window of time.
// It reports false if the walk is shorter, or if something on the way is broken.
func (s *search) byIndex() bool {
	m := s.f.img
	l := m.mainList()
	if l.n > 0 {
		s.tail = l.at(l.n - 1)
	}
	lo, hi := uint64(0), l.n
	if s.q.Next != nil {
		lo, *s.q.Next = *s.q.Next, l.want
	}
	switch {
	case !l.whole():
		return lo > 0 // the walk would hand over entries again
	case lo > 0:
		s.mark = l.at(min(lo, hi) - 1)
	default:
		lo, hi = l.window(s.q.Since, s.q.Until)
		// Measured on a million entries: this way takes 0.46 microseconds for each, the walk 0.30 for each of all.
		if !s.inOrder && s.q.Next == nil && (hi-lo)*2 >= l.n {
			return false
		}
	}
	for i := lo; i < hi && !s.done(); i++ {
		e, ok := l.entry(i)
		if !ok {
			return false
		}
		if t := m.realtime(e); s.q.admits(t, m.boot(e)) {
			text, whole := s.f.message(e, s.q.Match)
			if !whole {
				return false
			}
			s.stats.count(t)
			if text != nil {
				s.hand(e, text)
			}
		}
		s.mark = e.off
	}
	return true
}

// unreadable notes a stretch that could not be read, joined with the one before it if they touch.
func (s *search) unreadable(from, to uint64, why string) {
	const most = 4096
	list := s.stats.Unreadable
	if n := len(list); n > 0 {
		last := &list[n-1]
		if uint64(last.Offset+last.Bytes) == from && last.Why == why || n == most && uint64(last.Offset) < from {
			last.Bytes = int64(to) - last.Offset
			return
		}
	}
	if to > from && len(list) < most {
		s.stats.Unreadable = append(list, Range{Offset: int64(from), Bytes: int64(to - from), Why: why})
	}
}

// walk takes every object once, in file order.
func (s *search) walk() {
	m := s.f.img
	w := newWalker(m, m.head.headerSize, m.size(), s.unreadable)
	release := w.off + releaseStep
	for !s.done() {
		o, ok := w.next()
		if !ok {
			return
		}
		switch s.at = o.off; o.kind {
		case kindData:
			s.visit(o)
		case kindEntry:
			if t := m.realtime(o); s.q.admits(t, m.boot(o)) {
				s.stats.count(t)
			}
		}
		if o.off >= release {
			s.f.release(release-releaseStep, release)
			release += releaseStep
		}
	}
}

// visit tests a DATA object and hands over the entries it belongs to.
func (s *search) visit(o object) {
	m := s.f.img
	if o.flags == 0 && (o.size < m.payload+messageLen || m.u64(o.off+m.payload) != messageWord) {
		return // another field
	}
	b, err := s.f.unpack.payload(m, o)
	if err != nil {
		s.unreadable(o.off, o.off+o.size, err.Error())
		return
	}
	if text, ok := cutMessage(b); ok && s.q.Match(text) {
		s.resolve(o, text)
	}
}

// resolve hands over the entries of a DATA object with the given text, if its list is sound.
func (s *search) resolve(o object, text []byte) {
	m := s.f.img
	l := m.dataList(o)
	sound := l.whole() && l.want > 0
	s.found = s.found[:0]
	for i := uint64(0); i < l.n && sound && !s.done(); i++ {
		e, ok := l.entry(i)
		// An entry that does not name the text is the wrong one: the offset was damaged.
		sound = ok && m.lists(e, o.off)
		s.found = append(s.found, e.off)
	}
	const most = 1 << 16
	switch {
	case sound:
		for _, off := range s.found {
			if e, ok := m.find(off, kindEntry); ok {
				s.deliver(e, text)
			}
		}
	case l.want == 0 && m.head.state == online && o.off >= s.tail: // being written just now: its entry follows
	case len(s.late) == most:
		s.stats.Unresolved++
	case s.late == nil:
		s.late = map[uint64]bool{o.off: false}
	default:
		s.late[o.off] = false
	}
}

// deliver hands over one entry of a matching text if it is wanted and new.
func (s *search) deliver(e object, text []byte) {
	if !s.done() && e.off > s.mark && s.q.admits(s.f.img.realtime(e), s.f.img.boot(e)) {
		s.hand(e, text)
	}
}

func (s *search) hand(e object, text []byte) {
	s.entry = Entry{Realtime: s.f.img.realtime(e), Message: text, file: s.f, obj: e}
	s.stopped = !s.yield(&s.entry)
}

// settle finds the entries of the late messages the other way round: it looks at what each entry names. The text of a
// message that no entry names is handed over alone.
func (s *search) settle() {
	m := s.f.img
	w := newWalker(m, m.head.headerSize, m.size(), ignoreHoles)
	for !s.done() {
		e, ok := w.next()
		if !ok {
			break
		}
		if e.kind != kindEntry {
			continue
		}
		for i := range m.items(e) {
			off := m.dataAt(e, i)
			if _, ok := s.late[off]; !ok {
				continue
			}
			s.late[off] = true
			if text, ok := s.f.text(off); ok && s.q.Match(text) {
				s.deliver(e, text)
			}
		}
	}
	for _, off := range slices.Sorted(maps.Keys(s.late)) {
		if text, ok := s.f.text(off); ok && !s.late[off] && !s.done() && s.q.Match(text) {
			s.stats.Unresolved++
			s.entry = Entry{Message: text}
			s.stopped = !s.yield(&s.entry)
		}
	}
}
