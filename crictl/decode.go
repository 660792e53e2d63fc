package crictl

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// A listDecoder gathers the entries of list messages: of one unary answer, of the messages of a stream, or of several
// filtered answers. It accepts and rejects what the generated types accept and reject, and keeps what they would hold:
// unknown fields are skipped, the last of a repeated scalar or map key counts, embedded messages merge.
type listDecoder[T any] struct {
	entries []T
	intern  *interner
	entry   func(in *interner, b []byte, size int) (T, error)
}

func newContainerDecoder() *listDecoder[Container] {
	return &listDecoder[Container]{intern: newInterner(), entry: decodeContainer}
}

func newSandboxDecoder() *listDecoder[PodSandbox] {
	return &listDecoder[PodSandbox]{intern: newInterner(), entry: decodeSandbox}
}

// idLength is the length of the ids that containerd and CRI-O give: 32 random bytes in hexadecimal.
const idLength = 64

// decode adds the entries of one message. Of a message that is rejected nothing is kept.
func (d *listDecoder[T]) decode(data mem.BufferSlice) error {
	n, err := countEntries(data)
	if err != nil {
		return err
	}
	before := len(d.entries)
	d.entries = slices.Grow(d.entries, n)
	d.intern.reserve(min(n*idLength, data.Len()))
	err = eachEntry(data, func(b []byte, size int) error {
		e, err := d.entry(d.intern, b, size)
		d.entries = append(d.entries, e)
		return err
	})
	if err != nil {
		d.entries = d.entries[:before]
	}
	return err
}

// reset forgets the entries, not the strings.
func (d *listDecoder[T]) reset() { d.entries = d.entries[:0] }

// field is one field of a message, of the types that CRI's lists use.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	value []byte // of a field of bytes
	n     uint64 // of a varint
}

// is reports whether f has the number and type of a known field. A known number with another type is an unknown field.
func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// next reads the first field of b and returns what follows it. Fields of other types are skipped over: they come back
// with their number and no value.
func (f *field) next(b []byte) ([]byte, error) {
	// Nearly every field is one of bytes, with a number below 16 and shorter than 128: two bytes of header.
	if len(b) >= 2 && b[0] < 0x80 && b[0] >= 8 && b[0]&7 == byte(protowire.BytesType) && b[1] < 0x80 {
		end := 2 + int(b[1])
		if end > len(b) {
			return nil, errMalformed
		}
		f.num, f.typ, f.value = protowire.Number(b[0]>>3), protowire.BytesType, b[2:end]
		return b[end:], nil
	}
	return f.nextSlow(b)
}

func (f *field) nextSlow(b []byte) ([]byte, error) {
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return nil, errMalformed
	}
	b = b[n:]
	f.num, f.typ = protowire.DecodeTag(tag)
	if f.num < protowire.MinValidNumber || f.num > protowire.MaxValidNumber {
		return nil, errMalformed
	}
	switch f.typ {
	case protowire.BytesType:
		f.value, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.n, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(f.num, f.typ, b)
	}
	if n < 0 {
		return nil, errMalformed
	}
	return b[n:], nil
}

// facts are the strings of one entry, as views into the message.
type facts struct {
	id, sandboxID                []byte
	name, namespace, uid         []byte // of the metadata
	labelName                    []byte // container name
	podNamespace, podName, podID []byte // of the labels
	restartCount, configSource   []byte // of the annotations
	createdAt                    int64
	state                        int32
	attempt                      uint32
}

// decodeContainer reads one runtime.v1.Container:
//
//	id=1 pod_sandbox_id=2 metadata=3 image=4 image_ref=5 state=6 created_at=7 labels=8 annotations=9 image_id=10
func decodeContainer(in *interner, b []byte, size int) (Container, error) {
	var x facts
	var f field
	var err error
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return Container{}, err
		}
		switch f.typ {
		case protowire.BytesType:
			err = x.containerBytes(&f)
		case protowire.VarintType:
			switch f.num {
			case 6:
				x.state = int32(f.n)
			case 7:
				x.createdAt = int64(f.n)
			}
		}
		if err != nil {
			return Container{}, err
		}
	}
	sandboxID, pod := in.sandbox(x.sandboxID, x.podNamespace, x.podName, x.podID)
	return Container{
		ID:           in.copy(x.id),
		SandboxID:    sandboxID,
		Name:         in.name(either(x.name, x.labelName)),
		Pod:          pod,
		CreatedAt:    x.createdAt,
		Attempt:      x.attempt,
		RestartCount: count(x.restartCount),
		Size:         uint32(size),
		State:        containerState(x.state),
	}, nil
}

func (x *facts) containerBytes(f *field) error {
	switch f.num {
	case 1:
		x.id = f.value
	case 2:
		x.sandboxID = f.value
	case 3:
		return x.containerMetadata(f.value)
	case 4:
		return checkImageSpec(f.value)
	case 8:
		return x.label(f.value)
	case 9:
		return x.annotation(f.value)
	case 5, 10: // image_ref, image_id
	default:
		return nil
	}
	return checkText(f.value)
}

// decodeSandbox reads one runtime.v1.PodSandbox:
//
//	id=1 metadata=2 state=3 created_at=4 labels=5 annotations=6 runtime_handler=7
func decodeSandbox(in *interner, b []byte, size int) (PodSandbox, error) {
	var x facts
	var f field
	var err error
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return PodSandbox{}, err
		}
		switch f.typ {
		case protowire.BytesType:
			err = x.sandboxBytes(&f)
		case protowire.VarintType:
			switch f.num {
			case 3:
				x.state = int32(f.n)
			case 4:
				x.createdAt = int64(f.n)
			}
		}
		if err != nil {
			return PodSandbox{}, err
		}
	}
	return PodSandbox{
		ID:           in.copy(x.id),
		Pod:          in.pod(either(x.namespace, x.podNamespace), either(x.name, x.podName), either(x.uid, x.podID)),
		ConfigSource: in.name(x.configSource),
		CreatedAt:    x.createdAt,
		Attempt:      x.attempt,
		Size:         uint32(size),
		State:        sandboxState(x.state),
	}, nil
}

func (x *facts) sandboxBytes(f *field) error {
	switch f.num {
	case 1:
		x.id = f.value
	case 2:
		return x.sandboxMetadata(f.value)
	case 5:
		return x.label(f.value)
	case 6:
		return x.annotation(f.value)
	case 7: // runtime_handler
	default:
		return nil
	}
	return checkText(f.value)
}

// containerMetadata reads runtime.v1.ContainerMetadata: name=1 attempt=2. A second one merges into the first.
func (x *facts) containerMetadata(b []byte) error {
	var f field
	var err error
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.BytesType):
			x.name = f.value
			err = checkText(f.value)
		case f.is(2, protowire.VarintType):
			x.attempt = uint32(f.n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sandboxMetadata reads runtime.v1.PodSandboxMetadata: name=1 uid=2 namespace=3 attempt=4.
func (x *facts) sandboxMetadata(b []byte) error {
	var f field
	var err error
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return err
		}
		if f.is(4, protowire.VarintType) {
			x.attempt = uint32(f.n)
		}
		if f.typ != protowire.BytesType || f.num > 3 {
			continue
		}
		if err := checkText(f.value); err != nil {
			return err
		}
		switch f.num {
		case 1:
			x.name = f.value
		case 2:
			x.uid = f.value
		case 3:
			x.namespace = f.value
		}
	}
	return nil
}

// checkImageSpec reads runtime.v1.ImageSpec, of which nothing is kept, for validity alone:
// image=1 annotations=2 user_specified_image=18 runtime_handler=19 image_ref=20.
func checkImageSpec(b []byte) error {
	var f field
	var err error
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return err
		}
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case 2:
			_, _, err = mapEntry(f.value)
		case 1, 18, 19, 20:
			err = checkText(f.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *facts) label(b []byte) error {
	key, value, err := mapEntry(b)
	if err != nil {
		return err
	}
	switch string(key) {
	case LabelPodName:
		x.podName = value
	case LabelPodNamespace:
		x.podNamespace = value
	case LabelPodUID:
		x.podID = value
	case LabelContainerName:
		x.labelName = value
	}
	return nil
}

func (x *facts) annotation(b []byte) error {
	key, value, err := mapEntry(b)
	if err != nil {
		return err
	}
	switch string(key) {
	case AnnotationRestartCount:
		x.restartCount = value
	case AnnotationConfigSource:
		x.configSource = value
	}
	return nil
}

// mapEntry reads one entry of a map<string, string>: key=1 value=2.
func mapEntry(b []byte) (key, value []byte, err error) {
	// The form that every encoder writes: a key and a value, both shorter than 128 bytes. The four bytes of headers are
	// ASCII then, so the whole is valid UTF-8 exactly when key and value are.
	if len(b) >= 4 && b[0] == 0x0a && b[1] < 0x80 && len(b) >= int(b[1])+4 {
		k := 2 + int(b[1])
		if b[k] == 0x12 && b[k+1] < 0x80 && len(b) == k+2+int(b[k+1]) {
			return b[2:k], b[k+2:], checkText(b)
		}
	}
	return mapEntrySlow(b)
}

func mapEntrySlow(b []byte) (key, value []byte, err error) {
	var f field
	for len(b) > 0 {
		if b, err = f.next(b); err != nil {
			return nil, nil, err
		}
		if f.typ != protowire.BytesType || f.num > 2 {
			continue
		}
		if err := checkText(f.value); err != nil {
			return nil, nil, err
		}
		if f.num == 1 {
			key = f.value
		} else {
			value = f.value
		}
	}
	return key, value, nil
}

func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return errText
	}
	return nil
}

func either(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// count reads a decimal count; text that is none counts as 0.
func count(b []byte) uint32 {
	if len(b) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
