package fake

import (
	"context"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// unary applies the scenario's faults and latencies to the calls with one answer.
func (s *Server) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	rpc, target := path.Base(info.FullMethod), sync.OnceValue(func() Target { return s.store.target(req) })
	if s.Watch != nil {
		defer s.Watch(rpc, target().ID)()
	}
	verdict := s.rules.Judge(rpc, target)
	if err := verdict.Wait(ctx); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err == nil {
		err = verdict.WaitItems(ctx, items(resp))
	}
	if verdict.Fault.Drop {
		return nil, Drop(ctx)
	}
	if m, ok := resp.(proto.Message); ok && err == nil && verdict.Fault.Oversize > 0 {
		m.ProtoReflect().SetUnknown(Padding(verdict.Fault.Oversize - proto.Size(m)))
	}
	return resp, err
}

// items counts the entries of a list answer, which are field 1 in all lists of CRI.
func items(resp any) int {
	m, ok := resp.(proto.Message)
	if !ok {
		return 0
	}
	first := m.ProtoReflect().Descriptor().Fields().ByNumber(1)
	if first == nil || !first.IsList() {
		return 0
	}
	return m.ProtoReflect().Get(first).List().Len()
}

// stream applies them to the calls with a stream of answers. A runtime without streaming lists does not know the
// methods at all: gRPC itself answers then, even if everything hangs.
func (s *Server) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	service, method := path.Split(info.FullMethod)
	if !s.scenario.Streaming && method != "GetContainerEvents" {
		return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, path.Base(service))
	}
	verdict := s.rules.Judge(method, func() Target { return Target{} })
	if err := verdict.Wait(stream.Context()); err != nil {
		return err
	}
	if verdict.Fault.Drop {
		return Drop(stream.Context())
	}
	return handler(srv, &pacedStream{stream, verdict})
}

// A pacedStream waits for the latency of the items of each answer.
type pacedStream struct {
	grpc.ServerStream
	verdict Verdict
}

func (s *pacedStream) SendMsg(m any) error {
	if err := s.verdict.WaitItems(s.Context(), items(m)); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// Padding returns an encoded unknown field of at least n bytes, and a few more at most. It is empty when n is not
// positive. Appended to an encoded message it changes the size and not the content: no message of CRI has the largest
// field number of protobuf, so every decoder skips it.
func Padding(n int) []byte {
	if n <= 0 {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.BytesType),
		make([]byte, n))
}
