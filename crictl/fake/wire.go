package fake

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listField is the field number of the entries in all list responses, unary and streamed:
// ListContainersResponse.containers, StreamPodSandboxesResponse.pod_sandboxes and so on are all field 1 of
// runtime.v1's api.proto.
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

// encode makes a list of objects.
func encode[T interface{ encoded() []byte }](objects []T) *entries {
	list := &entries{}
	for _, object := range objects {
		entry := object.encoded()
		if list.wire == nil { // growing step by step would copy a large list many times
			list.wire = make([]byte, 0, len(objects)*(len(entry)+len(entry)/16+4))
		}
		list.add(entry)
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

// An encodedList keeps the unfiltered list until something changes, so that a node's 100,000 containers cost a copy,
// not an encoding, per call.
type encodedList struct {
	mu   sync.Mutex
	list *entries
}

func (l *encodedList) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

// get returns the kept list, or the one that encode makes. The caller holds the store's lock, so that nothing changes
// in between.
func (l *encodedList) get(encode func() *entries) *entries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = encode()
	}
	return l.list
}

// encoded returns the container as lists carry it. The caller holds the store's lock for writing: encoding again what
// has not changed would cost ten times as much as all the rest of a list.
func (c *container) encoded() []byte {
	if c.wire == nil {
		c.wire = marshal(&runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Image: c.image, ImageRef: c.imageID, ImageId: c.imageID, State: c.state, CreatedAt: c.created,
			Labels: c.labels, Annotations: c.annotations(),
		})
	}
	return c.wire
}

// encoded returns the sandbox as lists carry it.
func (sb *sandbox) encoded() []byte {
	return marshal(&runtimeapi.PodSandbox{
		Id: sb.id, Metadata: sb.meta, State: sb.state(), CreatedAt: sb.created, Labels: sb.labels, Annotations: sb.annots,
		RuntimeHandler: sb.handler,
	})
}

func marshal(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err) // gRPC has checked what clients sent, and Parse what scenarios hold
	}
	return data
}
