package signature

import (
	_ "embed"
	"encoding/binary"
	"math"
	"sync"
)

// The filter looks at six bytes at every seventh place of a text and at nothing else. Wherever a literal stands, one
// of seven neighbouring places inside it is looked at, so it suffices to know the seven groups of six bytes of one
// window of each literal. The looks do not depend on each other, as the shifts of Wu and Manber's algorithm do, so
// the processor does several at once. Six bytes are rare enough in other text; four were not.
const (
	gramLen  = 6
	loadLen  = 8 // bytes that one look loads
	stride   = 7
	window   = stride + gramLen - 1 // the shortest literal
	maxStart = 48                   // a window begins at most here in its literal
	slotBits = 18
	gramBits = 13 // room for 8192 groups, of which a catalogue takes less than half
)

// ordinary is an excerpt of a healthy node's logs. Windows of literals are chosen to look unlike it. It changes the
// speed, not the result.
//
//go:embed ordinary.log
var ordinary string

// A filter finds a set of literals.
type filter struct {
	// maybe has a bit for each value of slot() that a group of bytes of a window has: 32 KiB, which fit in the first
	// cache.
	maybe [1 << slotBits / 64]uint64
	// grams is a hash table of the groups, each at the first free place at or after its own. A group is never zero:
	// no literal has six zeros. A map takes a tenth longer.
	grams    [1 << gramBits]uint64
	places   [1 << gramBits][]place // of the group at the same index
	literals []string
	longest  int
}

// A place is where a group of bytes is in a literal.
type place struct{ literal, offset int }

// golden is 2^64 divided by the golden ratio: its multiples are spread evenly.
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
	for i, l := range literals {
		f.longest = max(f.longest, len(l))
		at := rarest(l)
		for off := at; off < at+stride; off++ {
			g := gramOf(l[off:])
			n := f.find(g)
			f.grams[n], f.places[n] = g, append(f.places[n], place{i, off})
			f.maybe[slot(g)/64] |= 1 << (slot(g) % 64)
		}
	}
	return f
}

// ordinaryGrams counts the groups of six bytes in ordinary text.
var ordinaryGrams = sync.OnceValue(func() map[uint64]int {
	counts := make(map[uint64]int, len(ordinary))
	for i := 0; i+gramLen <= len(ordinary); i++ {
		counts[gramOf(ordinary[i:])]++
	}
	return counts
})

// rarest returns where the window of a literal begins that is least like ordinary text.
func rarest(literal string) int {
	common := ordinaryGrams()
	counts := make([]int, 0, maxStart+stride)
	for at := 0; at+gramLen <= len(literal) && at < maxStart+stride; at++ {
		counts = append(counts, common[gramOf(literal[at:])])
	}
	best, bestAt := math.MaxInt, 0
	for at := 0; at+stride <= len(counts); at++ {
		sum := 0
		for _, n := range counts[at : at+stride] {
			sum += n
		}
		if sum < best {
			best, bestAt = sum, at
		}
	}
	return bestAt
}

// bit returns a number whose lowest bit is 1 if b may begin with a group of bytes of a window.
func (f *filter) bit(b []byte) uint64 {
	h := slot(gramAt(b))
	return f.maybe[h/64] >> (h % 64)
}

// possible returns the next place at or after i, in steps of stride, whose six bytes may belong to a literal, or -1.
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
	for _, p := range f.places[f.find(gramAt(g))] {
		start := i - p.offset
		l := f.literals[p.literal]
		if start >= 0 && start+len(l) <= len(b) && string(b[start:start+len(l)]) == l {
			yield(p.literal, start)
		}
	}
}

// find returns the index of a group in the table, or of a free place if it is not there.
func (f *filter) find(gram uint64) uint64 {
	i := gram * golden >> (64 - gramBits)
	for f.grams[i] != gram && f.grams[i] != 0 {
		i = (i + 1) % (1 << gramBits)
	}
	return i
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

// each calls yield with each literal in b and where it begins, as often as it occurs. from is the first possible place.
func (f *filter) each(b []byte, from int, yield func(literal, start int)) {
	for i := from; i >= 0; i = f.possible(b, i+stride) {
		f.at(b, i, yield)
	}
}
