package journalfile

import (
	"bytes"
	"iter"
)

// An Entry is one record of a journal. It and all its bytes are valid only during the call that hands it over.
type Entry struct {
	Realtime  uint64 // microseconds since 1970, UTC; 0 if Unindexed, or if the entry's time is damaged
	Monotonic uint64 // microseconds since the machine started
	Seqnum    uint64 // counts up within SeqnumID
	SeqnumID  ID
	Boot      ID
	Offset    uint64 // of the entry in the file, or of the text if Unindexed
	// Message is the text: the value of the field MESSAGE. With a Match it is the value that matched. Empty if there is none.
	Message []byte
	// Unindexed says that in a damaged file the text was found, but no entry that it belongs to: there are no times, no boot
	// and no other fields. Such entries are handed over whatever Since, Until and Boot say.
	Unindexed bool

	file *File
	obj  object
	xor  uint64
}

// messageWord is "MESSAGE=" as a little-endian word.
const messageWord = 0x3D4547415353454D

const messageLen = 8

// fill makes e the entry at o.
func (f *File) fill(e *Entry, o object) {
	m := f.img
	*e = Entry{
		Seqnum: m.u64(o.off + 16), Realtime: m.realtime(o), Monotonic: m.u64(o.off + 32), Boot: m.boot(o),
		xor: m.u64(o.off + 56), SeqnumID: m.head.SeqnumID, Offset: o.off, file: f, obj: o,
	}
}

// File returns the file that the entry is in.
func (e *Entry) File() *File { return e.file }

// Field returns the first value of a field such as _SYSTEMD_UNIT, nil if the entry does not have it or if it cannot be
// read.
func (e *Entry) Field(name string) []byte {
	if e.Unindexed || e.file == nil {
		return nil
	}
	m := e.file.img
	for i := range m.items(e.obj) {
		o, ok := m.find(m.dataAt(e.obj, i), kindData)
		if !ok {
			continue
		}
		b := m.raw(o)
		if o.flags == 0 && (len(b) <= len(name) || b[len(name)] != '=') {
			continue
		}
		if o.flags != 0 {
			var err error
			if b, err = e.file.unpack.fresh(m, o); err != nil {
				continue
			}
		}
		if len(b) > len(name) && b[len(name)] == '=' && string(b[:len(name)]) == name {
			return b[len(name)+1:]
		}
	}
	return nil
}

// Fields returns all fields as they are stored, FIELD=value, in the order of the file. A value may be any bytes; a field
// may occur more than once. What cannot be read is left out; Missing counts it.
func (e *Entry) Fields() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if e.Unindexed || e.file == nil {
			if e.Unindexed {
				yield(append([]byte("MESSAGE="), e.Message...))
			}
			return
		}
		for i := range e.file.img.items(e.obj) {
			b, ok := e.item(i)
			if ok && !yield(b) {
				return
			}
		}
	}
}

// Labels returns the fields that are stored as they are, FIELD=value, in the order of the file: all but the long ones that
// journald compresses. It is what names a sender; none of it has to be unpacked.
func (e *Entry) Labels() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if e.Unindexed || e.file == nil {
			return
		}
		m := e.file.img
		for i := range m.items(e.obj) {
			if o, ok := m.find(m.dataAt(e.obj, i), kindData); ok && o.flags == 0 && !yield(m.raw(o)) {
				return
			}
		}
	}
}

// Missing returns how many of the entry's fields cannot be read.
func (e *Entry) Missing() int {
	if e.Unindexed || e.file == nil {
		return 0
	}
	n := 0
	for i := range e.file.img.items(e.obj) {
		if _, ok := e.item(i); !ok {
			n++
		}
	}
	return n
}

// item returns the i-th field of the entry.
func (e *Entry) item(i int) ([]byte, bool) {
	m := e.file.img
	o, ok := m.find(m.dataAt(e.obj, i), kindData)
	if !ok {
		return nil, false
	}
	b, err := e.file.unpack.fresh(m, o)
	if err != nil || bytes.IndexByte(b, '=') < 0 {
		return nil, false
	}
	return b, true
}

// message returns the first MESSAGE of the entry that match accepts, nil accepts all. whole is false if an object that
// the entry names is damaged.
func (f *File) message(entry object, match func([]byte) bool) (text []byte, whole bool) {
	m := f.img
	whole = true
	for i := range m.items(entry) {
		o, ok := m.find(m.dataAt(entry, i), kindData)
		if !ok {
			whole = false
			continue
		}
		b := m.raw(o)
		if o.flags == 0 && (len(b) < messageLen || m.u64(o.off+m.payload) != messageWord) {
			continue
		}
		b, err := f.unpack.payload(m, o)
		if err != nil {
			whole = false
			continue
		}
		if bytes.HasPrefix(b, []byte("MESSAGE=")) && (match == nil || match(b[messageLen:])) {
			return b[messageLen:], whole
		}
	}
	return nil, whole
}

// text returns the message that a DATA object holds, if it holds one.
func (f *File) text(o object) ([]byte, bool) {
	b, err := f.unpack.payload(f.img, o)
	if err != nil || !bytes.HasPrefix(b, []byte("MESSAGE=")) {
		return nil, false
	}
	return b[messageLen:], true
}
