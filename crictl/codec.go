package crictl

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

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
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encoding a %T, which is no protobuf message", v)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reply)
	if !ok {
		return fmt.Errorf("decoding into a %T", v)
	}
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
