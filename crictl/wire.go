package crictl

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed is every way in which bytes can fail to be a protobuf message.
var errMalformed = errors.New("malformed protobuf")

// errText is a string field that is not UTF-8, which proto3 forbids and the generated decoder rejects too.
var errText = errors.New("a string is not valid UTF-8")

// maxEntries bounds a list before memory is set aside for it. An entry with nothing but an id takes 66 bytes, so a list
// of that many would be over 256 MiB; more is not a list of a real runtime but two-byte entries by the million.
const maxEntries = 4 << 20

// wire reads the top level of a message that gRPC received in pieces, without joining them: a message of many
// megabytes is never copied as a whole. What straddles two pieces is copied to scratch, which is used again.
type wire struct {
	rest    mem.BufferSlice // after cur
	cur     []byte
	left    int // bytes in cur and rest
	scratch []byte
}

func newWire(data mem.BufferSlice) wire {
	w := wire{rest: data, left: data.Len()}
	w.refill()
	return w
}

// refill makes cur non-empty unless the message is at its end.
func (w *wire) refill() {
	for len(w.cur) == 0 && len(w.rest) > 0 {
		w.cur = w.rest[0].ReadOnlyData()
		w.rest = w.rest[1:]
	}
}

func (w *wire) advance(n int) {
	w.cur = w.cur[n:]
	w.left -= n
	if len(w.cur) == 0 {
		w.refill()
	}
}

// skip drops n bytes, which the caller knows to be there.
func (w *wire) skip(n int) {
	for n > 0 {
		step := min(n, len(w.cur))
		w.advance(step)
		n -= step
	}
}

// varint reads a varint and the number of bytes that it takes.
func (w *wire) varint() (uint64, int, error) {
	if v, n := protowire.ConsumeVarint(w.cur); n > 0 {
		w.advance(n)
		return v, n, nil
	}
	// Cut by the end of a piece, or bad: gather up to the longest varint and look again.
	var buf [10]byte
	have := copy(buf[:], w.cur)
	for _, piece := range w.rest {
		if have == len(buf) {
			break
		}
		have += copy(buf[have:], piece.ReadOnlyData())
	}
	v, n := protowire.ConsumeVarint(buf[:have])
	if n < 0 {
		return 0, 0, errMalformed
	}
	w.skip(n)
	return v, n, nil
}

// fieldTag reads the number and type of a field of the message, and the number of bytes that they take.
func (w *wire) fieldTag() (protowire.Number, protowire.Type, int, error) {
	num, typ, n, err := w.tag()
	if err == nil && num > protowire.MaxValidNumber {
		err = errMalformed
	}
	return num, typ, n, err
}

// tag is fieldTag without the upper limit of numbers, which nobody checks inside an unknown group.
func (w *wire) tag() (protowire.Number, protowire.Type, int, error) {
	v, n, err := w.varint()
	if err != nil {
		return 0, 0, 0, err
	}
	num, typ := protowire.DecodeTag(v)
	if num < protowire.MinValidNumber {
		return 0, 0, 0, errMalformed
	}
	return num, typ, n, nil
}

// length reads the length before a field of bytes, and the number of bytes that it takes. The bytes are there.
func (w *wire) length() (length, size int, err error) {
	v, n, err := w.varint()
	if err != nil {
		return 0, 0, err
	}
	if v > uint64(w.left) {
		return 0, 0, errMalformed
	}
	return int(v), n, nil
}

// bytes reads n bytes, which the caller knows to be there. They are valid until the next call.
func (w *wire) bytes(n int) []byte {
	if n <= len(w.cur) {
		b := w.cur[:n]
		w.advance(n)
		return b
	}
	w.scratch = w.scratch[:0]
	for n > 0 {
		step := min(n, len(w.cur))
		w.scratch = append(w.scratch, w.cur[:step]...)
		w.advance(step)
		n -= step
	}
	return w.scratch
}

// skipField drops the value of a field that nobody wants, as the generated decoder does with unknown fields.
func (w *wire) skipField(num protowire.Number, typ protowire.Type) error {
	switch typ {
	case protowire.VarintType:
		_, _, err := w.varint()
		return err
	case protowire.Fixed32Type:
		return w.skipExactly(4)
	case protowire.Fixed64Type:
		return w.skipExactly(8)
	case protowire.BytesType:
		n, _, err := w.length()
		if err != nil {
			return err
		}
		w.skip(n)
		return nil
	case protowire.StartGroupType:
		return w.skipGroup(num)
	}
	return errMalformed
}

func (w *wire) skipExactly(n int) error {
	if n > w.left {
		return errMalformed
	}
	w.skip(n)
	return nil
}

// skipGroup drops a group, an encoding that CRI does not use but unknown fields may. Nested groups are counted on a
// stack of their own as deep as protowire goes.
func (w *wire) skipGroup(num protowire.Number) error {
	open := []protowire.Number{num}
	for len(open) > 0 {
		num, typ, _, err := w.tag()
		if err != nil {
			return err
		}
		switch {
		case typ == protowire.EndGroupType:
			if num != open[len(open)-1] {
				return errMalformed
			}
			open = open[:len(open)-1]
		case typ == protowire.StartGroupType:
			if len(open) > protowire.DefaultRecursionLimit {
				return errMalformed
			}
			open = append(open, num)
		default:
			if err := w.skipField(num, typ); err != nil {
				return err
			}
		}
	}
	return nil
}

// countEntries counts the entries of a list message: all lists of CRI have them in field 1. It looks at the headers
// only, so it costs little more than a step per entry.
func countEntries(data mem.BufferSlice) (int, error) {
	n := 0
	w := newWire(data)
	for w.left > 0 {
		num, typ, _, err := w.fieldTag()
		if err != nil {
			return 0, err
		}
		if num == 1 && typ == protowire.BytesType {
			n++
		}
		if err := w.skipField(num, typ); err != nil {
			return 0, err
		}
	}
	if n > maxEntries {
		return 0, fmt.Errorf("a list of %d entries; more than %d are taken for nonsense", n, maxEntries)
	}
	return n, nil
}

// eachEntry calls do with every entry of a list message and the size of the entry with its field header. The bytes are
// valid during the call only.
func eachEntry(data mem.BufferSlice, do func(entry []byte, size int) error) error {
	w := newWire(data)
	for w.left > 0 {
		num, typ, tagSize, err := w.fieldTag()
		if err != nil {
			return err
		}
		if num != 1 || typ != protowire.BytesType {
			if err := w.skipField(num, typ); err != nil {
				return err
			}
			continue
		}
		n, lenSize, err := w.length()
		if err != nil {
			return err
		}
		if err := do(w.bytes(n), tagSize+lenSize+n); err != nil {
			return err
		}
	}
	return nil
}
