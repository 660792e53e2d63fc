package journalfile

import "sort"

// segment is one entry array of a chain.
type segment struct {
	array object
	first uint64 // index of its first entry in the list
}

// list is the entries of a file or of one DATA object, in the order in which they were logged. journald stores the
// first entry of a DATA object in the object itself, and the rest in a chain of arrays that grow.
type list struct {
	m      *image
	inline uint64 // offset of the first entry, 0 if the arrays hold all
	segs   []segment
	n      uint64 // entries that can be reached
	want   uint64 // entries that there should be
}

// whole reports whether all entries can be reached.
func (l *list) whole() bool { return l.n == l.want }

// mainList is the list of all entries of the file.
func (m *image) mainList() *list {
	l := &list{m: m, want: m.head.entries}
	l.chain(m.head.entryArray)
	return l
}

// dataList is the list of the entries that carry a DATA object.
func (m *image) dataList(data object) *list {
	l := &list{m: m, want: m.u64(data.off + 56)}
	if l.want == 0 {
		return l
	}
	l.inline = m.u64(data.off + 40)
	l.n = 1
	l.chain(m.u64(data.off + 48))
	return l
}

// chain adds the arrays that begin at off. Each array lies behind the one before it, so a chain cannot be a ring.
func (l *list) chain(off uint64) {
	var last uint64
	for l.n < l.want && off > last {
		o, ok := l.m.find(off, kindArray)
		if !ok {
			return
		}
		n := min(l.m.refs(o), l.want-l.n)
		// The last array may be filled in part only, if the count is ahead of it or damaged.
		used := uint64(sort.Search(int(n), func(i int) bool { return l.m.refAt(o, uint64(i)) == 0 }))
		l.segs = append(l.segs, segment{array: o, first: l.n})
		l.n += used
		if used < n {
			return
		}
		last, off = off, l.m.u64(off+16)
	}
}

// at returns the offset of entry i, i < n.
func (l *list) at(i uint64) uint64 {
	if l.inline != 0 && i == 0 {
		return l.inline
	}
	s := sort.Search(len(l.segs), func(k int) bool { return l.segs[k].first > i }) - 1
	if s < 0 {
		return 0
	}
	return l.m.refAt(l.segs[s].array, i-l.segs[s].first)
}

// entry returns entry i.
func (l *list) entry(i uint64) (object, bool) {
	if i >= l.n {
		return object{}, false
	}
	return l.m.find(l.at(i), kindEntry)
}

// stride is how far apart the entries are that window looks at to see whether time runs forward in a list.
const stride = 256

// window returns the index range of the list that holds all entries with since <= realtime < until; 0 is open. Inside
// it there may be others. Entries are not always sorted by time: a clock that was set back repeats itself. window
// therefore samples the list first, and returns all of it if the samples are out of order. Otherwise nothing is
// further than one stride from its place, apart from a clock that was wrong for less than a stride.
func (l *list) window(since, until uint64) (lo, hi uint64) {
	if since == 0 && until == 0 || l.n == 0 {
		return 0, l.n
	}
	var before uint64
	for i := uint64(0); i < l.n; i += stride {
		e, ok := l.entry(i)
		if !ok || l.m.realtime(e) < before {
			return 0, l.n
		}
		before = l.m.realtime(e)
	}
	bad := false
	from := func(t uint64) uint64 {
		return uint64(sort.Search(int(l.n), func(i int) bool {
			e, ok := l.entry(uint64(i))
			bad = bad || !ok
			return ok && l.m.realtime(e) >= t
		}))
	}
	lo, hi = from(since), l.n
	if until != 0 {
		hi = from(until)
	}
	if bad {
		return 0, l.n
	}
	return lo - min(lo, stride), min(l.n, hi+stride)
}
