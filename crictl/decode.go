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
// byte for byte what the kubelet sends.
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
// several filtered responses. The entries hold what the generated types would hold: unknown fields are skipped, the
// last of a repeated scalar or map key wins, embedded messages merge. Only what is kept is looked at: unlike the
// generated types, it does not check that strings are UTF-8.
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
	entryTag  = 1<<3 | text // the entries are field 1 in all lists of CRI
	maxHeader = 2 * 10      // bytes of the longest field header: two varints
	// leastEntry is the size, in bytes, of a smaller entry than those of kubelets. It bounds the memory that is
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

// eachField calls do with the tag and the value of each field of a message: bytes or a number. Fields of other types
// are skipped.
func eachField(b []byte, do func(tag uint64, v []byte, n uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		b = b[n:]
		var v []byte
		var x uint64
		switch typ {
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := do(uint64(num)<<3|uint64(typ), v, x); err != nil {
			return err
		}
	}
	return nil
}

// Types of fields, in the last three bits of a tag.
const (
	text   = uint64(protowire.BytesType)
	number = uint64(protowire.VarintType)
)

// labels are the values of the labels and annotations that are kept, as views into the message.
type labels struct{ container, pod, namespace, uid, source []byte }

// add reads one map entry.
func (l *labels) add(b []byte) error {
	var key, value []byte
	err := eachField(b, func(tag uint64, v []byte, _ uint64) error {
		switch tag {
		case 1<<3 | text:
			key = v
		case 2<<3 | text:
			value = v
		}
		return nil
	})
	switch string(key) {
	case LabelContainerName:
		l.container = value
	case LabelPodName:
		l.pod = value
	case LabelPodNamespace:
		l.namespace = value
	case LabelPodUID:
		l.uid = value
	case AnnotationConfigSource:
		l.source = value
	}
	return err
}

// decodeContainer decodes a runtime.v1.Container.
func decodeContainer(b []byte, in *interner, size int) (Container, error) {
	c := Container{Size: uint32(size)}
	var id, sandbox, name []byte
	var l labels
	err := eachField(b, func(tag uint64, v []byte, n uint64) error {
		switch tag {
		case 1<<3 | text:
			id = v
		case 2<<3 | text:
			sandbox = v
		case 3<<3 | text:
			return eachField(v, func(tag uint64, v []byte, n uint64) error {
				switch tag {
				case 1<<3 | text:
					name = v
				case 2<<3 | number:
					c.Attempt = uint32(n)
				}
				return nil
			})
		case 6<<3 | number:
			c.State = containerState(int32(n))
		case 7<<3 | number:
			c.CreatedAt = int64(n)
		case 8<<3 | text:
			return l.add(v)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	c.ID, c.SandboxID, c.Name = in.copy(id), in.shared(sandbox), in.shared(either(name, l.container))
	c.Pod = in.pod(l.namespace, l.pod, l.uid)
	return c, nil
}

// decodeSandbox decodes a runtime.v1.PodSandbox.
func decodeSandbox(b []byte, in *interner, size int) (PodSandbox, error) {
	s := PodSandbox{Size: uint32(size)}
	var id, name, uid, namespace []byte
	var l, annotations labels
	err := eachField(b, func(tag uint64, v []byte, n uint64) error {
		switch tag {
		case 1<<3 | text:
			id = v
		case 2<<3 | text:
			return eachField(v, func(tag uint64, v []byte, n uint64) error {
				switch tag {
				case 1<<3 | text:
					name = v
				case 2<<3 | text:
					uid = v
				case 3<<3 | text:
					namespace = v
				case 4<<3 | number:
					s.Attempt = uint32(n)
				}
				return nil
			})
		case 3<<3 | number:
			s.State = sandboxState(int32(n))
		case 4<<3 | number:
			s.CreatedAt = int64(n)
		case 5<<3 | text:
			return l.add(v)
		case 6<<3 | text:
			return annotations.add(v)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	s.ID, s.ConfigSource = in.copy(id), in.shared(annotations.source)
	s.Pod = in.pod(either(namespace, l.namespace), either(name, l.pod), either(uid, l.uid))
	return s, nil
}

// either returns a, or b when a is empty.
func either(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// An interner makes the strings of one list. What repeats within it (pods, container names, sandbox ids) is stored
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
