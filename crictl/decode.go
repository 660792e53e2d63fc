package crictl

import (
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

var errMalformed = errors.New("malformed protobuf")

// codec moves messages between gRPC and this package. Requests are generated messages; answers go into a *reply, which
// keeps their size and chooses the decoder. Its name is empty so that the content type is plain application/grpc,
// as the kubelet sends it.
type codec struct{}

// A decoder takes one message. data is valid only during the call.
type decoder interface {
	decode(data mem.BufferSlice) error
}

// A reply receives the messages of one call.
type reply struct {
	into  decoder
	bytes int   // size of all messages received
	err   error // why a message could not be decoded
}

func (codec) Name() string { return "" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r := v.(*reply)
	r.bytes += data.Len()
	r.err = r.into.decode(data)
	return r.err
}

// message decodes with the generated types, for the answers that are small.
type message struct{ proto.Message }

func (m *message) decode(data mem.BufferSlice) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m.Message)
}

// A listDecoder collects the entries of list messages: of one unary response, of the messages of a stream, or of
// several filtered responses. The entries are equal to the generated types: unknown fields are skipped, the last of a
// repeated scalar or map key wins, embedded messages merge. Unlike the generated types, it reads only the fields that
// are kept, and does not check that strings are UTF-8.
type listDecoder[T any] struct {
	entries []T
	intern  interner
	entry   func(b []byte, in *interner, size int) (T, error)
}

func newContainerDecoder() *listDecoder[Container] {
	return &listDecoder[Container]{intern: newInterner(), entry: decodeContainer}
}

func newSandboxDecoder() *listDecoder[PodSandbox] {
	return &listDecoder[PodSandbox]{intern: newInterner(), entry: decodeSandbox}
}

// decode adds the entries of one message, or none if the message is malformed.
func (d *listDecoder[T]) decode(data mem.BufferSlice) error {
	before := len(d.entries)
	if err := d.add(data.Reader()); err != nil {
		d.entries = d.entries[:before]
		return err
	}
	return nil
}

const (
	entryTag  = 1<<3 | uint64(protowire.BytesType) // the entries are field 1 in all lists of CRI
	maxHeader = 2 * 10                             // bytes of the longest field header: two varints
	// leastEntry is the size, in bytes, of a smaller entry than any of a kubelet's. It bounds the memory that is
	// allocated before a list is decoded.
	leastEntry = 256
)

// add decodes the entries one by one. The message stays in the buffers in which gRPC received it: only an entry that
// spans several of them is copied.
func (d *listDecoder[T]) add(r *mem.Reader) error {
	defer r.Close()
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
	for first := true; r.Remaining() > 0; {
		header := peek(min(maxHeader, r.Remaining()))
		tag, n := protowire.ConsumeVarint(header)
		if n < 0 {
			return errMalformed
		}
		if tag != entryTag { // no list has such a field today, so copying the rest is fine
			rest, err := io.ReadAll(r)
			num, typ, tagSize := protowire.ConsumeTag(rest)
			if n = protowire.ConsumeFieldValue(num, typ, rest[max(tagSize, 0):]); tagSize < 0 || n < 0 || err != nil {
				return errMalformed
			}
			r.Reset(mem.BufferSlice{mem.SliceBuffer(rest[tagSize+n:])})
			continue
		}
		size, sizeLen := protowire.ConsumeVarint(header[n:])
		if n += sizeLen; sizeLen < 0 || size > uint64(r.Remaining()-n) {
			return errMalformed
		}
		_, _ = r.Discard(n)
		if first {
			d.entries = slices.Grow(d.entries, r.Remaining()/max(int(size), leastEntry)+1)
			first = false
		}
		entry, err := d.entry(peek(int(size)), &d.intern, n+int(size))
		if err != nil {
			return err
		}
		d.entries = append(d.entries, entry)
		_, _ = r.Discard(int(size))
	}
	return nil
}

// A part is a field of an entry that is kept. The texts come first, then the numbers, then the embedded messages.
type part uint8

const (
	none part = iota // a text that is not kept
	id
	sandboxID
	name // this and the next two from the metadata
	namespace
	uid
	labelContainer
	labelName
	labelNamespace
	labelUID
	labelHash // this and the next three from the workload's controller
	labelJob
	labelSet
	labelRevision
	source
	key // of the label or annotation that is being read, as the next
	value
	texts // how many texts there are
	state
	createdAt
	attempt
	numbers // the end of the numbers
	metadata
	labels
	annotations
)

// A layout holds the part that each field of a message is, by the field's number.
type layout [9]part

// The messages of the two lists.
var (
	containerFields   = layout{1: id, 2: sandboxID, 3: metadata, 6: state, 7: createdAt, 8: labels}
	containerMetadata = layout{1: name, 2: attempt}
	sandboxFields     = layout{1: id, 2: metadata, 3: state, 4: createdAt, 5: labels, 6: annotations}
	sandboxMetadata   = layout{1: name, 2: uid, 3: namespace, 4: attempt}
	pairFields        = layout{1: key, 2: value}
)

// An entry holds the parts of one entry of a list. The texts are views into the message.
type entry struct {
	text   [texts][]byte
	number [numbers]uint64
}

// read reads the fields of a message; meta is the layout of the metadata in it.
func (e *entry) read(b []byte, fields, meta *layout) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		b = b[n:]
		p := none
		if int(num) < len(fields) {
			p = fields[num]
		}
		var err error
		switch typ {
		case protowire.BytesType:
			var v []byte
			switch v, n = protowire.ConsumeBytes(b); {
			case p < texts:
				e.text[p] = v
			case p == metadata:
				err = e.read(v, meta, nil)
			case p == labels, p == annotations:
				err = e.readPair(v, p)
			}
		case protowire.VarintType:
			var x uint64
			if x, n = protowire.ConsumeVarint(b); p > texts && p < numbers {
				e.number[p] = x
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 || err != nil {
			return errMalformed
		}
		b = b[n:]
	}
	return nil
}

// readPair reads a label or an annotation.
func (e *entry) readPair(b []byte, of part) error {
	e.text[key], e.text[value] = nil, nil
	err := e.read(b, &pairFields, nil)
	p := none
	switch string(e.text[key]) {
	case LabelContainerName:
		p = labelContainer
	case LabelPodName:
		p = labelName
	case LabelPodNamespace:
		p = labelNamespace
	case LabelPodUID:
		p = labelUID
	case LabelTemplateHash:
		p = labelHash
	case LabelJob, LabelJobOld:
		p = labelJob
	case LabelSetPod, LabelPodIndex:
		p = labelSet
	case LabelRevision:
		p = labelRevision
	case AnnotationConfigSource:
		p = source
	}
	if (p == source) == (of == annotations) {
		e.text[p] = e.text[value]
	}
	return err
}

// either returns the text of the first part, or where that is empty of the second.
func (e *entry) either(a, b part) []byte {
	if len(e.text[a]) > 0 {
		return e.text[a]
	}
	return e.text[b]
}

// decodeContainer decodes a runtime.v1.Container.
func decodeContainer(b []byte, in *interner, size int) (Container, error) {
	var e entry
	if err := e.read(b, &containerFields, &containerMetadata); err != nil {
		return Container{}, err
	}
	return Container{
		ID: in.copy(e.text[id]), SandboxID: in.shared(e.text[sandboxID]),
		Name:      in.shared(e.either(name, labelContainer)),
		Pod:       in.pod(e.text[labelNamespace], e.text[labelName], e.text[labelUID]),
		CreatedAt: int64(e.number[createdAt]), Attempt: uint32(e.number[attempt]), Size: uint32(size),
		State: containerState(int32(e.number[state])),
	}, nil
}

// decodeSandbox decodes a runtime.v1.PodSandbox.
func decodeSandbox(b []byte, in *interner, size int) (PodSandbox, error) {
	var e entry
	if err := e.read(b, &sandboxFields, &sandboxMetadata); err != nil {
		return PodSandbox{}, err
	}
	pod := in.pod(e.either(namespace, labelNamespace), e.either(name, labelName), e.either(uid, labelUID))
	return PodSandbox{
		ID: in.copy(e.text[id]), Pod: pod, ConfigSource: in.shared(e.text[source]),
		Owner: ownerOf(pod.Name, string(e.text[labelHash]), in.shared(e.text[labelJob]), string(e.text[labelSet]),
			string(e.text[labelRevision])),
		CreatedAt: int64(e.number[createdAt]), Attempt: uint32(e.number[attempt]), Size: uint32(size),
		State: sandboxState(int32(e.number[state])),
	}, nil
}

// An interner makes the strings of one list. Strings that repeat in it (pods, container names, sandbox ids) are stored
// once; everything is cut from a few large chunks instead of being allocated piece by piece. The chunks live as long as
// any string in them, which suits a list: its entries are kept or dropped together.
type interner struct {
	chunk   strings.Builder // never grown beyond its capacity, so that strings cut from it stay where they are
	strings map[string]string
	pods    map[Pod]*Pod
}

const chunkSize = 64 << 10 // bytes

func newInterner() interner {
	return interner{strings: map[string]string{}, pods: map[Pod]*Pod{}}
}

// copy returns b as a string, cut from the chunk.
func (in *interner) copy(b []byte) string {
	if in.chunk.Cap()-in.chunk.Len() < len(b) {
		in.chunk = strings.Builder{}
		in.chunk.Grow(max(len(b), chunkSize))
	}
	start := in.chunk.Len()
	in.chunk.Write(b)
	return in.chunk.String()[start:]
}

// shared returns the one copy of a string that repeats.
func (in *interner) shared(b []byte) string {
	if s, ok := in.strings[string(b)]; ok {
		return s
	}
	s := in.copy(b)
	in.strings[s] = s
	return s
}

// pod returns the one Pod of these facts.
func (in *interner) pod(namespace, name, uid []byte) *Pod {
	if p := in.pods[Pod{Namespace: string(namespace), Name: string(name), UID: string(uid)}]; p != nil {
		return p
	}
	p := &Pod{Namespace: in.shared(namespace), Name: in.copy(name), UID: in.copy(uid)}
	in.pods[*p] = p
	return p
}
