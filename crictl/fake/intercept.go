package fake

import (
	"context"
	"errors"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// interceptors apply a scenario's faults and latencies to every RPC of the embedded runtime.
type interceptors struct {
	rules     *Rules
	store     *store
	streaming bool
}

// unary is the gRPC interceptor of the calls with one answer.
func (i *interceptors) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	ctx, verdict, err := i.before(ctx, path.Base(info.FullMethod), req)
	if err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	return resp, after(ctx, verdict, resp, err)
}

// stream is the gRPC interceptor of the streaming calls. A runtime without streaming lists does not know the methods at
// all: gRPC itself answers for it, whatever else hangs.
func (i *interceptors) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	service, method := path.Split(info.FullMethod)
	if !i.streaming && method != "GetContainerEvents" {
		return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, path.Base(service))
	}
	return handler(srv, &ruledStream{ServerStream: stream, ctx: stream.Context(), interceptors: i, method: method})
}

// before makes a call wait or fail as the scenario describes. The context it returns carries the call's latency to
// perItem.
func (i *interceptors) before(ctx context.Context, method string, req any) (context.Context, Verdict, error) {
	verdict := i.rules.Judge(method, sync.OnceValue(func() Target { return i.store.target(req) }))
	err := verdict.Wait(ctx)
	if errors.Is(err, ErrEnded) {
		err = errStopping()
	}
	if verdict.Paced() {
		ctx = context.WithValue(ctx, verdictKey{}, verdict)
	}
	return ctx, verdict, err
}

// after applies the call's fault to its answer.
func after(ctx context.Context, verdict Verdict, answer any, err error) error {
	if verdict.Drop() {
		CutCall(ctx)
		return status.Error(codes.Unavailable, "the connection was cut")
	}
	if size := verdict.Oversize(); size > 0 && err == nil {
		oversize(answer, size)
	}
	return err
}

// oversize pads an answer of the generated types.
func oversize(answer any, size int) {
	if m, ok := answer.(proto.Message); ok {
		unknown := m.ProtoReflect().GetUnknown() // lists share theirs: it must not be written to
		m.ProtoReflect().SetUnknown(append(unknown[:len(unknown):len(unknown)], Padding(size-proto.Size(m))...))
	}
}

// A ruledStream applies the rules when the request has arrived, which names the object of the call.
type ruledStream struct {
	grpc.ServerStream
	ctx          context.Context
	interceptors *interceptors
	method       string
	verdict      Verdict
}

func (s *ruledStream) Context() context.Context { return s.ctx }

func (s *ruledStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	var err error
	s.ctx, s.verdict, err = s.interceptors.before(s.ctx, s.method, m)
	return err
}

func (s *ruledStream) SendMsg(m any) error {
	if err := after(s.ctx, s.verdict, m, nil); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

type verdictKey struct{}

// perItem waits for the latency of n items of a list, if the call has one.
func perItem(ctx context.Context, n int) error {
	verdict, _ := ctx.Value(verdictKey{}).(Verdict)
	err := verdict.PerItem(ctx, n)
	if errors.Is(err, ErrEnded) {
		err = errStopping()
	}
	return err
}
