package remote

import (
	"maps"
	"sync"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A memory holds the entries of the last whole list of one RPC by their bytes on the wire. From one relist to the next hardly
// any entry changes, and decoding one, with its maps of labels and annotations, costs many times what finding it again does.
// Positions are of no use: containerd lists in the order of a Go map.
//
// It keeps no more than one list: a whole list forgets what it does not have. A list with a filter takes from the memory and
// adds nothing, or the list of a single pod would empty it.
type memory[M proto.Message] struct {
	empty func() M

	mu    sync.Mutex
	known map[string]*remembered[M]
	round uint64 // counts whole lists
}

// A remembered is a decoded entry. It is shared by all lists that have it.
type remembered[M proto.Message] struct {
	entry M
	round uint64 // of the last whole list that had it
}

func newMemory[M proto.Message](empty func() M) *memory[M] {
	return &memory[M]{empty: empty, known: map[string]*remembered[M]{}}
}

// decode returns the entries of a list's message. It reports false for a message that is anything but entries, each of them well
// formed: that is for the plain decoder to judge.
func (m *memory[M]) decode(message []byte, whole bool) (entries []M, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries = make([]M, 0, len(m.known))
	if whole {
		m.round++
	}
	for len(message) > 0 {
		num, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 || num != 1 || kind != protowire.BytesType { // all lists of CRI have their entries in field 1
			return nil, m.forget(whole)
		}
		raw, size := protowire.ConsumeBytes(message[tag:])
		if size < 0 {
			return nil, m.forget(whole)
		}
		entry, err := m.entry(raw, whole)
		if err != nil {
			return nil, m.forget(whole)
		}
		entries = append(entries, entry)
		message = message[tag+size:]
	}
	if whole {
		maps.DeleteFunc(m.known, func(_ string, r *remembered[M]) bool { return r.round != m.round })
	}
	return entries, true
}

// entry finds or decodes one entry. One of a whole list is remembered.
func (m *memory[M]) entry(raw []byte, whole bool) (entry M, err error) {
	r := m.known[string(raw)]
	if r == nil {
		r = &remembered[M]{entry: m.empty()}
		if err := proto.Unmarshal(raw, r.entry); err != nil {
			return entry, err
		}
		if whole {
			m.known[string(raw)] = r
		}
	}
	if whole {
		r.round = m.round
	}
	return r.entry, nil
}

// forget drops all after a whole list that could not be decoded, whose first entries may be remembered already: a row of such
// lists would add up. It returns false.
func (m *memory[M]) forget(whole bool) bool {
	if whole {
		clear(m.known)
	}
	return false
}

// A listCodec is gRPC's codec but for the answers to one list RPC. Its name is empty so that the content type stays plain
// application/grpc, as the kubelet's.
type listCodec[M proto.Message] struct {
	encoding.CodecV2
	memory *memory[M]
	whole  bool // the list was asked for without a filter
	fill   func(answer any, entries []M)
}

func (listCodec[M]) Name() string { return "" }

func (c listCodec[M]) Unmarshal(data mem.BufferSlice, answer any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	entries, ok := c.memory.decode(buf.ReadOnlyData(), c.whole)
	if !ok {
		return c.CodecV2.Unmarshal(data, answer)
	}
	c.fill(answer, entries)
	return nil
}

func (s *Service) containerCodec(filter *runtimeapi.ContainerFilter) encoding.CodecV2 {
	return listCodec[*runtimeapi.Container]{
		CodecV2: encoding.GetCodecV2(protocodec.Name), memory: s.containers, whole: proto.Size(filter) == 0,
		fill: func(answer any, entries []*runtimeapi.Container) {
			answer.(*runtimeapi.ListContainersResponse).Containers = entries
		},
	}
}

func (s *Service) sandboxCodec(filter *runtimeapi.PodSandboxFilter) encoding.CodecV2 {
	return listCodec[*runtimeapi.PodSandbox]{
		CodecV2: encoding.GetCodecV2(protocodec.Name), memory: s.sandboxes, whole: proto.Size(filter) == 0,
		fill: func(answer any, entries []*runtimeapi.PodSandbox) {
			answer.(*runtimeapi.ListPodSandboxResponse).Items = entries
		},
	}
}
