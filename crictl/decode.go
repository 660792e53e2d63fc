package crictl

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

var (
	errMalformed = errors.New("malformed protobuf")
	// errUTF8 is returned for a string field that is not UTF-8, which the generated decoder rejects too.
	errUTF8 = errors.New("a string is not valid UTF-8")
)

// maxEntries bounds a list before memory is allocated for it. An entry that has only an id takes 66 bytes, so a real
// list of that many would exceed 256 MiB; without the bound, a message of empty entries would take 40 times its size.
const maxEntries = 4 << 20

// idLength is the length of the ids of containerd and CRI-O: 32 random bytes in hexadecimal.
const idLength = 64

// A listDecoder collects the entries of list messages: of one unary response, of the messages of a stream, or of
// several filtered responses. It accepts and rejects what the generated types accept and reject, and the entries hold
// what those types would hold: unknown fields are skipped, the last of a repeated scalar or map key wins, embedded
// messages merge.
type listDecoder[T any] struct {
	entries []T
	intern  *interner
	layout  *layout
	build   func(in *interner, f *fields, size int) T
}

func newContainerDecoder() *listDecoder[Container] {
	return &listDecoder[Container]{intern: newInterner(), layout: &containerLayout, build: buildContainer}
}

func newSandboxDecoder() *listDecoder[PodSandbox] {
	return &listDecoder[PodSandbox]{intern: newInterner(), layout: &sandboxLayout, build: buildSandbox}
}

// decode adds the entries of one message, or none if the message is malformed.
func (d *listDecoder[T]) decode(data mem.BufferSlice) error {
	n, err := eachEntry(data, nil)
	if err != nil {
		return err
	}
	if n > maxEntries {
		return fmt.Errorf("a list of %d entries exceeds the limit of %d", n, maxEntries)
	}
	before := len(d.entries)
	d.entries = slices.Grow(d.entries, n)
	d.intern.reserve(min(n*idLength, data.Len()))
	var f fields
	_, err = eachEntry(data, func(b []byte, size int) error {
		f = fields{}
		if err := f.decode(b, d.layout); err != nil {
			return err
		}
		d.entries = append(d.entries, d.build(d.intern, &f, size))
		return nil
	})
	if err != nil {
		d.entries = d.entries[:before]
	}
	return err
}

// reset drops the entries and keeps the strings.
func (d *listDecoder[T]) reset() { d.entries = d.entries[:0] }

// maxHeader is the length of the longest field header: two varints.
const maxHeader = 2 * 10

// eachEntry counts the entries of a list message, which are field 1 in all lists of CRI, and unless do is nil calls it
// with every entry and with the size of the entry and its header. The bytes are valid only during the call. The message
// stays in the buffers in which gRPC received it: only what spans several of them is copied.
func eachEntry(data mem.BufferSlice, do func(entry []byte, size int) error) (count int, err error) {
	r := data.Reader()
	defer func() { _ = r.Close() }()
	var pieces [][]byte
	var joined []byte
	peek := func(n int) []byte { // of at most r.Remaining() bytes
		if pieces, _ = r.Peek(n, pieces[:0]); len(pieces) == 1 {
			return pieces[0]
		}
		joined = joined[:0]
		for _, p := range pieces {
			joined = append(joined, p...)
		}
		return joined
	}
	for r.Remaining() > 0 {
		header := peek(min(maxHeader, r.Remaining()))
		tag, tagSize := protowire.ConsumeVarint(header)
		num, typ := protowire.DecodeTag(tag)
		if tagSize < 0 || num < protowire.MinValidNumber || num > protowire.MaxValidNumber {
			return 0, errMalformed
		}
		if num != 1 || typ != protowire.BytesType {
			if err := skipField(r, num, typ, tagSize); err != nil {
				return 0, err
			}
			continue
		}
		n, nSize := protowire.ConsumeVarint(header[tagSize:])
		if nSize < 0 || n > uint64(r.Remaining()-tagSize-nSize) {
			return 0, errMalformed
		}
		count++
		_, _ = r.Discard(tagSize + nSize)
		if do != nil {
			if err := do(peek(int(n)), tagSize+nSize+int(n)); err != nil {
				return 0, err
			}
		}
		_, _ = r.Discard(int(n)) // cannot fail: so many bytes remain
	}
	return count, nil
}

// skipField skips a field that is no entry. No list has such a field today, so copying the rest of the message is fine.
func skipField(r *mem.Reader, num protowire.Number, typ protowire.Type, tagSize int) error {
	rest, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n := protowire.ConsumeFieldValue(num, typ, rest[tagSize:])
	if n < 0 {
		return errMalformed
	}
	r.Reset(mem.BufferSlice{mem.SliceBuffer(rest[tagSize+n:])})
	return nil
}

// A slot is where the value of a field goes.
type slot uint8

const (
	unknown slot = iota // skipped
	ignored             // a string that is checked and not kept
	// Strings that are kept.
	slotID
	slotSandboxID
	slotName
	slotNamespace
	slotUID
	slotKey   // of the map entry being read
	slotValue // of the map entry being read
	slotLabelName
	slotLabelPod
	slotLabelNamespace
	slotLabelUID
	slotRestartCount
	slotConfigSource
	// Varints.
	slotState
	slotCreatedAt
	slotAttempt
	// Messages.
	slotMap
	slotContainerMetadata
	slotSandboxMetadata
	slotImageSpec
)

// A layout maps the field numbers of a message to slots. The highest number in use is ImageSpec's image_ref.
type layout [21]slot

// The messages of runtime.v1 that a list holds, and a map<string, string>.
var (
	containerLayout = layout{
		1: slotID, 2: slotSandboxID, 3: slotContainerMetadata, 4: slotImageSpec, 5: ignored, 6: slotState,
		7: slotCreatedAt, 8: slotMap, 9: slotMap, 10: ignored,
	}
	sandboxLayout = layout{
		1: slotID, 2: slotSandboxMetadata, 3: slotState, 4: slotCreatedAt, 5: slotMap, 6: slotMap, 7: ignored,
	}
	containerMetadataLayout = layout{1: slotName, 2: slotAttempt}
	sandboxMetadataLayout   = layout{1: slotName, 2: slotUID, 3: slotNamespace, 4: slotAttempt}
	imageSpecLayout         = layout{1: ignored, 2: slotMap, 18: ignored, 19: ignored, 20: ignored}
	mapLayout               = layout{1: slotKey, 2: slotValue}
)

// fields are the values of one entry, by slot. Strings are views into the message.
type fields struct {
	text   [slotState][]byte
	number [slotMap - slotState]uint64
}

// decode reads a message into the slots of its layout.
func (f *fields) decode(b []byte, l *layout) error {
	for len(b) > 0 {
		// Nearly every field is a short string with a low number: two bytes of header.
		if len(b) >= 2 && b[0] >= 8 && b[0] < 0x80 && b[0]&7 == byte(protowire.BytesType) && b[1] < 0x80 {
			end := 2 + int(b[1])
			if end > len(b) {
				return errMalformed
			}
			if to := l[b[0]>>3]; to != unknown {
				if err := f.set(to, b[2:end]); err != nil {
					return err
				}
			}
			b = b[end:]
			continue
		}
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		b = b[n:]
		to := unknown
		if int(num) < len(l) {
			to = l[num]
		}
		switch typ {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errMalformed
			}
			if err := f.set(to, v); err != nil {
				return err
			}
			b = b[n:]
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errMalformed
			}
			if slotState <= to && to < slotMap {
				f.number[to-slotState] = v
			}
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return errMalformed
			}
			b = b[n:]
		}
	}
	return nil
}

// set stores the value of a field of bytes.
func (f *fields) set(to slot, v []byte) error {
	switch to {
	case slotMap:
		return f.mapEntry(v)
	case slotContainerMetadata:
		return f.decode(v, &containerMetadataLayout)
	case slotSandboxMetadata:
		return f.decode(v, &sandboxMetadataLayout)
	case slotImageSpec:
		return f.decode(v, &imageSpecLayout)
	case unknown, slotState, slotCreatedAt, slotAttempt: // a known field of another type is an unknown field
		return nil
	}
	if !utf8.Valid(v) {
		return errUTF8
	}
	f.text[to] = v
	return nil
}

// mapEntry stores the value of a label or annotation that is kept.
func (f *fields) mapEntry(b []byte) error {
	key, value, ok := shortMapEntry(b)
	if ok && !utf8.Valid(b) {
		return errUTF8
	}
	if !ok {
		f.text[slotKey], f.text[slotValue] = nil, nil
		if err := f.decode(b, &mapLayout); err != nil {
			return err
		}
		key, value = f.text[slotKey], f.text[slotValue]
	}
	switch string(key) {
	case LabelContainerName:
		f.text[slotLabelName] = value
	case LabelPodName:
		f.text[slotLabelPod] = value
	case LabelPodNamespace:
		f.text[slotLabelNamespace] = value
	case LabelPodUID:
		f.text[slotLabelUID] = value
	case AnnotationRestartCount:
		f.text[slotRestartCount] = value
	case AnnotationConfigSource:
		f.text[slotConfigSource] = value
	}
	return nil
}

// shortMapEntry splits a map entry in the form that every encoder writes: key, then value, both shorter than 128 bytes.
// The four bytes of headers are ASCII then, so b is valid UTF-8 exactly when key and value are.
func shortMapEntry(b []byte) (key, value []byte, ok bool) {
	if len(b) < 4 || b[0] != 0x0a || b[1] >= 0x80 || len(b) < int(b[1])+4 {
		return nil, nil, false
	}
	k := 2 + int(b[1])
	return b[2:k], b[k+2:], b[k] == 0x12 && b[k+1] < 0x80 && len(b) == k+2+int(b[k+1])
}

// either returns the text in slot a, or in b when a is empty.
func (f *fields) either(a, b slot) []byte {
	if len(f.text[a]) > 0 {
		return f.text[a]
	}
	return f.text[b]
}

func buildContainer(in *interner, f *fields, size int) Container {
	sandboxID, pod := in.sandbox(f.text[slotSandboxID], f.text[slotLabelNamespace], f.text[slotLabelPod],
		f.text[slotLabelUID])
	restarts, err := strconv.ParseUint(string(f.text[slotRestartCount]), 10, 32)
	if err != nil {
		restarts = 0
	}
	return Container{
		ID:           in.copy(f.text[slotID]),
		SandboxID:    sandboxID,
		Name:         in.name(f.either(slotName, slotLabelName)),
		Pod:          pod,
		CreatedAt:    int64(f.number[slotCreatedAt-slotState]),
		Attempt:      uint32(f.number[slotAttempt-slotState]),
		RestartCount: uint32(restarts),
		Size:         uint32(size),
		State:        containerState(int32(f.number[0])),
	}
}

func buildSandbox(in *interner, f *fields, size int) PodSandbox {
	return PodSandbox{
		ID: in.copy(f.text[slotID]),
		Pod: in.pod(f.either(slotNamespace, slotLabelNamespace), f.either(slotName, slotLabelPod),
			f.either(slotUID, slotLabelUID)),
		ConfigSource: in.name(f.text[slotConfigSource]),
		CreatedAt:    int64(f.number[slotCreatedAt-slotState]),
		Attempt:      uint32(f.number[slotAttempt-slotState]),
		Size:         uint32(size),
		State:        sandboxState(int32(f.number[0])),
	}
}
