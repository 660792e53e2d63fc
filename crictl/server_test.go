package crictl

import (
	"context"
	"net"
	"path"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A handler answers one RPC of any method: it gets the request's bytes and sends any number of messages.
type handler func(ctx context.Context, req []byte, send func([]byte) error) error

// rawCodec lets a server send what is no message at all.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// newClient returns a client of a real gRPC server in this process. Methods without a handler are Unimplemented.
func newClient(t *testing.T, opts Options, handlers map[string]handler, more ...grpc.ServerOption) *Client {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	unknown := grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(s)
		h := handlers[path.Base(full)]
		if h == nil {
			return unimplemented(full)
		}
		var req []byte
		if err := s.RecvMsg(&req); err != nil {
			return err
		}
		return h(s.Context(), req, func(b []byte) error { return s.SendMsg(&b) })
	})
	server := grpc.NewServer(append(more, unknown, grpc.ForceServerCodecV2(rawCodec{}))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	opts.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
	c, err := Dial("/run/test.sock", opts)
	must(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		server.Stop()
		<-done
	})
	return c
}

// answer sends one message.
func answer(t *testing.T, m proto.Message) handler {
	data := mustMarshal(t, m)
	return func(_ context.Context, _ []byte, send func([]byte) error) error { return send(data) }
}

func fail(err error) handler {
	return func(context.Context, []byte, func([]byte) error) error { return err }
}

// hang answers nothing until the caller gives up.
func hang(ctx context.Context, _ []byte, _ func([]byte) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow answers after d.
func slow(d time.Duration, h handler) handler {
	return func(ctx context.Context, req []byte, send func([]byte) error) error {
		time.Sleep(d)
		return h(ctx, req, send)
	}
}
