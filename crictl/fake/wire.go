package fake

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// listField is the field number of the entries in all list responses, unary and streamed: ListContainersResponse.containers,
// StreamPodSandboxesResponse.pod_sandboxes and so on are all field 1 of runtime.v1's api.proto.
const listField = 1

// streamBatch is the number of entries in one message of a streaming list, as in containerd.
const streamBatch = 5000

// entries is a list as it goes over the wire: field 1, once for each entry.
type entries struct {
	wire  []byte
	count int
	ends  []int // where each batch of streamBatch entries ends in wire; the last is len(wire) unless the list is empty
}

// add appends one entry, the inside of a message.
func (e *entries) add(message []byte) {
	e.wire = protowire.AppendTag(e.wire, listField, protowire.BytesType)
	e.wire = protowire.AppendBytes(e.wire, message)
	e.count++
	if full := len(e.ends); e.count > full*streamBatch {
		e.ends = append(e.ends, len(e.wire))
	} else {
		e.ends[full-1] = len(e.wire)
	}
}

// encode makes a list of objects. Its buffer is sized by the first of them: growing step by step would copy a large list
// many times.
func encode[T interface{ appendWire([]byte) []byte }](objects []T) *entries {
	list := &entries{}
	var scratch []byte
	for i, object := range objects {
		scratch = object.appendWire(scratch[:0])
		if i == 0 {
			list.wire = make([]byte, 0, len(objects)*(len(scratch)+len(scratch)/16+4))
		}
		list.add(scratch)
	}
	return list
}

// batches returns the list in messages of at most streamBatch entries.
func (e *entries) batches() [][]byte {
	all := make([][]byte, 0, len(e.ends))
	from := 0
	for _, end := range e.ends {
		all = append(all, e.wire[from:end:end])
		from = end
	}
	return all
}

// An encodedList keeps the unfiltered list until something changes, so that a node's 100,000 containers cost a copy, not an
// encoding, per call.
type encodedList struct {
	mu   sync.Mutex
	list *entries
}

func (l *encodedList) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

// get returns the kept list, or the one that encode makes. The caller holds the store's lock, so that nothing changes in between.
func (l *encodedList) get(encode func() *entries) *entries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = encode()
	}
	return l.list
}

// appendWire appends the container as runtime.v1.Container. Written by hand because the generated encoder needs its maps
// built first, which costs ten times as much.
func (c *container) appendWire(b []byte) []byte {
	b = appendText(b, 1, c.id)
	b = appendText(b, 2, c.sandbox.id)
	b = appendMessage(b, 3, func(b []byte) []byte {
		return appendNumber(appendText(b, 1, c.name), 2, uint64(c.attempt))
	})
	b = appendMessage(b, 4, func(b []byte) []byte {
		return appendText(appendText(b, 1, c.image.GetImage()), 18, c.image.GetUserSpecifiedImage())
	})
	b = appendText(b, 5, c.imageID)
	b = appendNumber(b, 6, uint64(c.state))
	b = appendNumber(b, 7, uint64(c.created))
	b = append(b, c.tail...)
	b = append(b, c.annotTail...)
	if c.counted {
		b = appendPair(b, 9, annotationRestartCount, strconv.FormatUint(uint64(c.attempt), 10))
	}
	return appendText(b, 10, c.imageID)
}

// appendWire appends the sandbox as runtime.v1.PodSandbox.
func (sb *sandbox) appendWire(b []byte) []byte {
	b = appendText(b, 1, sb.id)
	b = appendMessage(b, 2, func(b []byte) []byte {
		b = appendText(b, 1, sb.meta.GetName())
		b = appendText(b, 2, sb.meta.GetUid())
		b = appendText(b, 3, sb.meta.GetNamespace())
		return appendNumber(b, 4, uint64(sb.meta.GetAttempt()))
	})
	b = appendNumber(b, 3, uint64(sb.state()))
	b = appendNumber(b, 4, uint64(sb.created))
	b = append(b, sb.tail...)
	return appendText(b, 7, sb.handler)
}

// appendMap appends a map<string, string> in the order of its keys.
func appendMap(b []byte, field protowire.Number, m map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendPair(b, field, key, m[key])
	}
	return b
}

// appendPair appends one entry of a map. Its key and value are written even if they are empty, as the generated encoder does.
func appendPair(b []byte, field protowire.Number, key, value string) []byte {
	return appendMessage(b, field, func(b []byte) []byte {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
		return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), value)
	})
}

// appendMessage appends a message whose length is known only once it is written.
func appendMessage(b []byte, field protowire.Number, inside func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = inside(b)
	length := len(b) - start
	var prefix [10]byte
	return slices.Insert(b, start, protowire.AppendVarint(prefix[:0], uint64(length))...)
}

// appendText appends a string field; proto3 leaves out empty ones.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// appendNumber appends an integer field; proto3 leaves out zeros.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}
