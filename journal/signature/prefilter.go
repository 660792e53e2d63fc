package signature

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// The prefilter looks at six bytes at every seventh place of a text and nowhere else. Wherever a literal stands, one of
// seven neighbouring places inside it is looked at, so it suffices to know the seven groups of six bytes of a window of
// each literal. The looks do not wait for each other, as the shifts of Wu and Manber's algorithm do, so that the processor
// does several at once. Six bytes are rare enough in text that is not meant; four were not.
const (
	gramLen  = 6
	loadLen  = 8 // bytes that one look loads
	stride   = 7
	window   = stride + gramLen - 1 // the shortest literal
	maxStart = 48                   // a window begins at most here in its literal
	slotBits = 18
	gramBits = 13 // room for 8192 groups, of which a catalogue takes a quarter
)

// A filter finds a set of literals.
type filter struct {
	// maybe has a bit for each value of slot() that a window's group of bytes takes: 32 KiB, which stay in the first cache.
	maybe [1 << slotBits / 64]uint64
	// grams holds the groups themselves, each at the first free place after its own.
	grams    [1 << gramBits]gramSpan
	places   []place
	literals []string
	longest  int
}

// A gramSpan says where in filter.places the places of a group of bytes are. A group is never zero, since no literal holds zeros.
type gramSpan struct {
	gram     uint64
	from, to int32
}

// A place says that a group of bytes stands in a literal at an offset.
type place struct{ literal, offset int }

// golden is 2^64 divided by the golden ratio: multiples of it spread well.
const golden = 0x9e3779b97f4a7c15

// slot returns the place of a group of bytes in the table of bits.
func slot(gram uint64) uint64 { return gram * golden >> (64 - slotBits) }

// gramAt returns the first six bytes of b, which has at least eight, as a number without the other two.
func gramAt(b []byte) uint64 { return binary.LittleEndian.Uint64(b) << 16 }

// gramOf is gramAt for a text that may be shorter.
func gramOf(s string) uint64 {
	var b [loadLen]byte
	copy(b[:gramLen], s)
	return gramAt(b[:])
}

// newFilter makes a filter of literals, each at least window bytes long.
func newFilter(literals []string) *filter {
	f := &filter{literals: literals}
	common := gramCounts(ordinary)
	found := map[uint64][]place{}
	for i, l := range literals {
		f.longest = max(f.longest, len(l))
		at := quietest(l, common)
		for off := at; off < at+stride; off++ {
			g := gramOf(l[off:])
			found[g] = append(found[g], place{i, off})
		}
	}
	for g, places := range found {
		f.maybe[slot(g)/64] |= 1 << (slot(g) % 64)
		i := g * golden >> (64 - gramBits)
		for f.grams[i].gram != 0 {
			i = (i + 1) % (1 << gramBits)
		}
		f.grams[i] = gramSpan{g, int32(len(f.places)), int32(len(f.places) + len(places))}
		f.places = append(f.places, places...)
	}
	return f
}

// gramCounts counts the groups of six bytes in a text.
func gramCounts(text string) map[uint64]int {
	counts := map[uint64]int{}
	for i := 0; i+gramLen <= len(text); i++ {
		counts[gramOf(text[i:])]++
	}
	return counts
}

// quietest returns where the window of a literal begins that ordinary log text resembles least.
func quietest(literal string, common map[uint64]int) int {
	best, bestAt := math.MaxInt, 0
	for at := 0; at+window <= len(literal) && at <= maxStart; at++ {
		sum := 0
		for off := at; off < at+stride; off++ {
			sum += common[gramOf(literal[off:])]
		}
		if sum < best {
			best, bestAt = sum, at
		}
	}
	return bestAt
}

// bit returns 1 if b may begin with a group of bytes of a window, with 0 or more other bits set.
func (f *filter) bit(b []byte) uint64 {
	h := slot(gramAt(b))
	return f.maybe[h/64] >> (h % 64)
}

// possible returns the next place at or after i, in steps of stride, whose six bytes may belong to a literal; -1 if there is none.
func (f *filter) possible(b []byte, i int) int {
	const steps = 8
	const block = (steps-1)*stride + loadLen
	for i+block <= len(b) {
		p := b[i : i+block : i+block]
		if (f.bit(p)|f.bit(p[stride:])|f.bit(p[2*stride:])|f.bit(p[3*stride:])|
			f.bit(p[4*stride:])|f.bit(p[5*stride:])|f.bit(p[6*stride:])|f.bit(p[7*stride:]))&1 != 0 {
			for f.bit(b[i:])&1 == 0 {
				i += stride
			}
			return i
		}
		i += steps * stride
	}
	for ; i+loadLen <= len(b); i += stride {
		if f.bit(b[i:])&1 != 0 {
			return i
		}
	}
	if i+gramLen <= len(b) {
		return i
	}
	return -1
}

// at calls yield with each literal that covers the place i of b, and where it begins.
func (f *filter) at(b []byte, i int, yield func(literal, start int)) {
	var last [loadLen]byte
	g := b[i:]
	if len(g) < loadLen {
		copy(last[:], g)
		g = last[:]
	}
	for _, p := range f.placesOf(gramAt(g)) {
		start := i - p.offset
		l := f.literals[p.literal]
		if start >= 0 && start+len(l) <= len(b) && string(b[start:start+len(l)]) == l {
			yield(p.literal, start)
		}
	}
}

// placesOf returns where in the literals a group of bytes stands.
func (f *filter) placesOf(gram uint64) []place {
	for i := gram * golden >> (64 - gramBits); f.grams[i].gram != 0; i = (i + 1) % (1 << gramBits) {
		if s := &f.grams[i]; s.gram == gram {
			return f.places[s.from:s.to]
		}
	}
	return nil
}

// next returns where the first literal in b begins, -1 if there is none.
func (f *filter) next(b []byte) int {
	first := -1
	for i := f.possible(b, 0); i >= 0; i = f.possible(b, i+stride) {
		// A literal that begins before the one found has its window within the bytes that follow.
		if first >= 0 && i > first+maxStart+stride {
			break
		}
		f.at(b, i, func(_, start int) {
			if first < 0 || start < first {
				first = start
			}
		})
	}
	return first
}

// each calls yield with each literal in b and where it begins. A literal that stands several times is yielded several times.
func (f *filter) each(b []byte, yield func(literal, start int)) {
	for i := f.possible(b, 0); i >= 0; i = f.possible(b, i+stride) {
		f.at(b, i, yield)
	}
}

// byLength sorts literals so that equal catalogues make equal filters.
func byLength(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// unique returns the literals of all entries, each once.
func unique(all []entry) []string {
	var out []string
	for _, e := range all {
		out = append(out, e.Literals...)
	}
	slices.SortFunc(out, byLength)
	return slices.Compact(out)
}
