package fault

import "google.golang.org/grpc/mem"

// A frame is one message as it goes over the wire.
type frame struct{ data []byte }

// rawCodec passes messages on without looking at them. Its name is empty so that the content type is plain
// application/grpc, as CRI clients send it.
type rawCodec struct{}

func (rawCodec) Name() string { return "" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).data = data.Materialize()
	return nil
}
