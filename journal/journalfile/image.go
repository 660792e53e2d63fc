package journalfile

import (
	"bytes"
	"encoding/binary"
)

// Object types of journal-def.h.
const (
	kindData       = 1
	kindField      = 2
	kindEntry      = 3
	kindDataTable  = 4
	kindFieldTable = 5
	kindArray      = 6
	kindTag        = 7
)

// Offsets inside objects, of journal-def.h.
const (
	headSize     = 16 // of every object: type, flags, six reserved bytes, size
	fieldNameAt  = 40
	entryItemsAt = 64
	arrayItemsAt = 24
	tagSize      = 64

	// What journald lets through stays far below: 1024 fields in an entry, and names of 64 bytes.
	itemsMax = 4096
	entryMax = entryItemsAt + 16*itemsMax
	fieldMax = 4096
)

// Compression flags of an object.
const (
	objXZ   = 1
	objLZ4  = 2
	objZSTD = 4
)

// image is the content of a file. Whoever reads from it checks bounds first, through the functions here.
type image struct {
	b       []byte
	head    header
	payload uint64 // where in a DATA object its payload begins: 64, in compact files 72
	item    uint64 // size of an item of an entry: 16, in compact files 4
	ref     uint64 // size of an item of an entry array: 8, in compact files 4
}

func newImage(b []byte, h header) *image {
	m := &image{b: b, head: h, payload: 64, item: 16, ref: 8}
	if h.incompatible&flagCompact != 0 {
		m.payload, m.item, m.ref = 72, 4, 4
	}
	return m
}

// object is a place in the file that looks like an object.
type object struct {
	off, size   uint64
	kind, flags byte
}

// end is where the next object begins, if one follows.
func (o object) end() uint64 { return align8(o.off + o.size) }

func align8(n uint64) uint64 { return (n + 7) &^ 7 }

func (m *image) size() uint64 { return uint64(len(m.b)) }

func (m *image) u64(off uint64) uint64 { return binary.LittleEndian.Uint64(m.b[off : off+8]) }

func (m *image) u32(off uint64) uint64 { return uint64(binary.LittleEndian.Uint32(m.b[off : off+4])) }

// at returns the object at off, wholly before end, if its head is plausible. It does not look at the next object.
func (m *image) at(off, end uint64) (object, bool) {
	if off&7 != 0 || off > end || end-off < headSize || end > uint64(len(m.b)) {
		return object{}, false
	}
	head := m.b[off:][:headSize]
	word, size := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:])
	o := object{off: off, size: size, kind: byte(word), flags: byte(word >> 8)}
	// The six reserved bytes are zero in all files; with the type that makes a pattern that text never shows.
	if word>>16 != 0 || size > end-off {
		return o, false
	}
	// The first two are nearly all there is. Flags are one bit each for XZ, LZ4 and ZSTD.
	switch {
	case word == kindData, word == kindData|objXZ<<8, word == kindData|objLZ4<<8, word == kindData|objZSTD<<8:
		return o, size > m.payload
	case word == kindEntry:
		return o, size > entryItemsAt && size <= entryMax && (size-entryItemsAt)&(m.item-1) == 0
	case word == kindArray:
		return o, size > arrayItemsAt && (size-arrayItemsAt)&(m.ref-1) == 0
	case word == kindField:
		return o, size > fieldNameAt && size <= fieldMax
	case word == kindDataTable, word == kindFieldTable:
		return o, size > headSize && size&15 == 0
	case word == kindTag:
		return o, size == tagSize
	}
	return o, false
}

// find is at for an object of one kind, anywhere in the file.
func (m *image) find(off uint64, kind byte) (object, bool) {
	if off < m.head.headerSize {
		return object{}, false
	}
	o, ok := m.at(off, m.size())
	return o, ok && o.kind == kind
}

// raw returns the payload of a DATA object as it is stored.
func (m *image) raw(o object) []byte {
	return m.b[o.off+m.payload : o.off+o.size : o.off+o.size]
}

// items returns how many DATA objects an entry has. It is bounded, so that a hostile file cannot turn one entry into
// endless work.
func (m *image) items(entry object) int {
	return int(min((entry.size-entryItemsAt)/m.item, itemsMax))
}

// dataAt returns the offset of the i-th DATA object of an entry.
func (m *image) dataAt(entry object, i int) uint64 {
	p := entry.off + entryItemsAt + uint64(i)*m.item
	if m.item == 4 {
		return m.u32(p)
	}
	return m.u64(p)
}

// lists reports whether an entry names the DATA object at off.
func (m *image) lists(entry object, off uint64) bool {
	for i := range m.items(entry) {
		if m.dataAt(entry, i) == off {
			return true
		}
	}
	return false
}

// refs returns how many places for entries an entry array has.
func (m *image) refs(array object) uint64 { return (array.size - arrayItemsAt) / m.ref }

// refAt returns the i-th entry offset of an entry array; 0 is the end of the used part.
func (m *image) refAt(array object, i uint64) uint64 {
	p := array.off + arrayItemsAt + i*m.ref
	if m.ref == 4 {
		return m.u32(p)
	}
	return m.u64(p)
}

// realtime returns when an entry was logged, in microseconds since 1970. It is 0 if damage shows.
func (m *image) realtime(entry object) uint64 {
	if t := m.u64(entry.off + 24); t < latest {
		return t
	}
	return 0
}

// boot returns the boot in which an entry was logged.
func (m *image) boot(entry object) ID { return ID(m.b[entry.off+40 : entry.off+56]) }

// zeros reports whether b has no other bytes.
func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
