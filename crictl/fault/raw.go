package fault

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// A frame is one message as it goes over the wire.
type frame struct{ data []byte }

// rawCodec passes messages on without looking at them. Its name is empty so that the content type is plain
// application/grpc, as CRI clients send it.
type rawCodec struct{}

func (rawCodec) Name() string { return "" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("sending a %T, which is no frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("receiving into a %T, which is no frame", v)
	}
	f.data = data.Materialize()
	return nil
}
