package journalfile

import (
	"bytes"
	"iter"
)

// An Entry is one record of a journal. It and all its bytes are valid only during the call that hands it over.
type Entry struct {
	// Realtime is in microseconds since 1970, UTC. It is 0 if the time of the entry is damaged, and if the text was
	// found in a damaged file but no entry that it belongs to: then there are no labels, and the text is handed over
	// whatever Since, Until and Boot are.
	Realtime uint64
	Message  []byte // the text: the value of the field MESSAGE that matched

	file *File // nil if the text belongs to no entry
	obj  object
}

// messageWord is "MESSAGE=" as a little-endian word.
const messageWord = 0x3D4547415353454D

const messageLen = 8

// Labels returns the fields that are not compressed, FIELD=value, in the order of the file. The fields that name a
// sender are among them: journald compresses only long ones.
func (e *Entry) Labels() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if e.file == nil {
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

// message returns the first MESSAGE of the entry that match accepts. whole is false if an object that
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
		if text, ok := cutMessage(b); ok && match(text) {
			return text, whole
		}
	}
	return nil, whole
}

// cutMessage returns the text of a payload that is a MESSAGE.
func cutMessage(payload []byte) ([]byte, bool) { return bytes.CutPrefix(payload, []byte("MESSAGE=")) }

// text returns the message that the DATA object at off holds, if it holds one.
func (f *File) text(off uint64) ([]byte, bool) {
	o, ok := f.img.find(off, kindData)
	if !ok {
		return nil, false
	}
	b, err := f.unpack.payload(f.img, o)
	if err != nil {
		return nil, false
	}
	return cutMessage(b)
}
