package fault_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// heard is all that a caller sees of a call.
type heard struct {
	Messages        [][]byte
	Header, Trailer metadata.MD
	Status          *status.Status
}

// tell makes a call on a socket, message by message, and returns what is heard.
func tell(ctx context.Context, conn *grpc.ClientConn, method string, messages ...[]byte) heard {
	var h heard
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(plain{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))
	if err != nil {
		return heard{Status: status.Convert(err)}
	}
	for _, m := range messages {
		_ = stream.SendMsg(&m)
	}
	_ = stream.CloseSend()
	h.Header, _ = stream.Header()
	for {
		var m []byte
		err := stream.RecvMsg(&m)
		if err != nil {
			h.Trailer = stream.Trailer()
			if !errors.Is(err, io.EOF) {
				h.Status = status.Convert(err)
			}
			return h
		}
		h.Messages = append(h.Messages, m)
	}
}

func (h heard) diff(other heard) string {
	return cmp.Diff(h, other, protocmp.Transform(), cmp.Transformer("status",
		func(s *status.Status) proto.Message { return s.Proto() }))
}

// everyMethod lists the full names of all RPCs, and some that no runtime has yet.
func everyMethod() []string {
	all := []string{"/runtime.v1.RuntimeService/TimeTravel", "/runtime.v9.NewService/Thing"}
	for _, service := range []grpc.ServiceDesc{
		runtimeapi.RuntimeService_ServiceDesc,
		runtimeapi.ImageService_ServiceDesc,
	} {
		for _, m := range service.Methods {
			all = append(all, "/"+service.ServiceName+"/"+m.MethodName)
		}
		for _, m := range service.Streams {
			all = append(all, "/"+service.ServiceName+"/"+m.StreamName)
		}
	}
	return all
}

// TestTransparent: whatever the RPC and whatever its bytes, a caller hears the same with and without the proxy.
func TestTransparent(t *testing.T) {
	e := serveEcho(t)
	direct, through := dial(t, e.path), start(t, e.path).conn
	noise := make([]byte, 300)
	rng := rand.NewChaCha8([32]byte{1})
	for _, method := range everyMethod() {
		_, _ = rng.Read(noise)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "ask-bin", string(noise[:20]))
		want := tell(ctx, direct, method, noise)
		if len(want.Messages) != 1 || !bytes.Equal(want.Messages[0], noise) || want.Status != nil ||
			want.Header["deadline"][0] != "false" {
			t.Fatalf("%s: the echo is wrong: %v", method, want)
		}
		if diff := want.diff(tell(ctx, through, method, noise)); diff != "" {
			t.Errorf("%s (-direct +through the proxy):\n%s", method, diff)
		}
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "fail", "1"))
		want = tell(ctx, direct, method, noise)
		if diff := want.diff(tell(ctx, through, method, noise)); want.Status == nil || diff != "" {
			t.Errorf("%s, failing (-direct +through the proxy):\n%s", method, diff)
		}
		cancel()
	}
	// A call without any message, and one with a deadline.
	ctx, cancel := context.WithTimeout(t.Context(), 1<<40)
	defer cancel()
	want := tell(ctx, direct, everyMethod()[0])
	if diff := want.diff(tell(ctx, through, everyMethod()[0])); diff != "" || want.Header["deadline"][0] != "true" {
		t.Errorf("without a message, with a deadline (-direct +through the proxy):\n%s", diff)
	}
}

// TestLargeMessages: the proxy limits nothing; 16 MiB is the limit of both ends of CRI.
func TestLargeMessages(t *testing.T) {
	e := serveEcho(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 40<<20/16)
	got := tell(t.Context(), start(t, e.path).conn, "/runtime.v1.RuntimeService/ListContainers", large)
	if got.Status != nil || len(got.Messages) != 1 || !bytes.Equal(got.Messages[0], large) {
		t.Errorf("%d messages, %v", len(got.Messages), got.Status)
	}
}

// TestCancelledCalls: what callers give up ends at the runtime too, and nothing of the proxy stays behind.
func TestCancelledCalls(t *testing.T) {
	const calls = 200
	e := serveEcho(t)
	f := start(t, e.path)
	for i := range calls {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "wait", "1"))
		heardAll := make(chan heard, 1)
		method := everyMethod()[i%len(everyMethod())]
		go func() { heardAll <- tell(ctx, f.conn, method, []byte{}) }()
		<-e.arrived
		cancel()
		<-e.gone
		if h := <-heardAll; h.Status.Code() != codes.Canceled {
			t.Fatalf("%v", h.Status)
		}
	}
	f.stop() // waits for the handlers
	if got := f.Stats()[last(everyMethod()[0])].Calls; got < calls/len(everyMethod()) {
		t.Errorf("%d calls are counted", got)
	}
	if err := f.conn.Close(); err != nil {
		t.Error(err)
	}
	stacks := make([]byte, 1<<20)
	for tries := 0; ; tries++ {
		text := string(stacks[:goruntime.Stack(stacks, true)])
		if !strings.Contains(text, "crictl/fault.(*") {
			break
		}
		if tries > 1_000_000 {
			t.Fatalf("goroutines are left:\n%s", text)
		}
		goruntime.Gosched() // a reader of an unknown RPC may be on its way out
	}
}

func last(method string) string { return method[strings.LastIndex(method, "/")+1:] }

// TestHeaderComesEarly: a stream on which nothing is said yet is known to be open, as that of container events.
func TestHeaderComesEarly(t *testing.T) {
	e := serveEcho(t)
	f := start(t, e.path)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "wait", "1"))
	defer cancel()
	events, err := f.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if header, err := events.Header(); err != nil || len(header["waiting"]) != 1 {
		t.Errorf("header %v, %v", header, err)
	}
}

// TestBackendGoesAndComes: a runtime that is down is Unavailable, and reached again once it is back.
func TestBackendGoesAndComes(t *testing.T) {
	backend := shortDir(t) + "/cri.sock"
	f := start(t, backend)
	version := func(opts ...grpc.CallOption) codes.Code {
		_, err := f.Version(t.Context(), &runtimeapi.VersionRequest{}, opts...)
		return status.Code(err)
	}
	await := func(want codes.Code) {
		t.Helper()
		for tries := 0; version() != want; tries++ {
			if tries > 1_000_000 {
				t.Fatalf("it does not become %s", want)
			}
		}
	}
	await(codes.Unavailable)
	stop := listenFake(t, shop(), backend)
	await(codes.OK)
	stop()
	await(codes.Unavailable)
	listenFake(t, shop(), backend)
	await(codes.OK)
}

func TestSocket(t *testing.T) {
	backend := runtime(t, shop())
	f := start(t, backend)
	info, err := os.Stat(f.path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if _, err := newProxy(f.path); err == nil || !strings.Contains(err.Error(), "another process listens there already") {
		t.Errorf("a second proxy on one socket: %v", err)
	}
	f.stop()
	if _, err := os.Stat(f.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
	if err := f.SetFaults([]fake.Fault{{RPC: "Nothing", Hang: true}}, nil); err == nil {
		t.Error("a fault of no RPC is taken")
	}
}
