package fault

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

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

// A result is all that a caller sees of a call.
type result struct {
	Messages        []string
	Header, Trailer metadata.MD
	Status          *status.Status
}

// exchange makes a call on a connection, message by message.
func exchange(ctx context.Context, conn *grpc.ClientConn, method string, messages ...string) (r result) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))
	if err != nil {
		return result{Status: status.Convert(err)}
	}
	for _, m := range messages {
		_ = stream.SendMsg(&frame{[]byte(m)})
	}
	_ = stream.CloseSend()
	r.Header, _ = stream.Header()
	for {
		var m frame
		err := stream.RecvMsg(&m)
		if err != nil {
			r.Trailer = stream.Trailer()
			if !errors.Is(err, io.EOF) {
				r.Status = status.Convert(err)
			}
			return r
		}
		r.Messages = append(r.Messages, string(m.data))
	}
}

func (r result) diff(other result) string {
	return cmp.Diff(r, other, protocmp.Transform(), cmp.Transformer("status",
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

// TestTransparent compares calls of every RPC, with any bytes, with and without the proxy.
func TestTransparent(t *testing.T) {
	backend := serveEcho(t)
	direct, through := dial(t, backend), start(t, backend).conn
	noise := make([]byte, 300)
	rng := rand.NewChaCha8([32]byte{1})
	same := func(ctx context.Context, method string, messages ...string) result {
		t.Helper()
		want := exchange(ctx, direct, method, messages...)
		if diff := want.diff(exchange(ctx, through, method, messages...)); diff != "" {
			t.Errorf("%s (-direct +through the proxy):\n%s", method, diff)
		}
		return want
	}
	for _, method := range everyMethod() {
		_, _ = rng.Read(noise)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "ask-bin", string(noise[:20]))
		r := same(ctx, method, string(noise))
		if !slices.Equal(r.Messages, []string{string(noise)}) || r.Status != nil || r.Header["deadline"][0] != "false" {
			t.Fatalf("%s: the echo is wrong: %v", method, r)
		}
		if same(metadata.AppendToOutgoingContext(ctx, "fail", "1"), method, string(noise)).Status == nil {
			t.Fatal("the echo does not fail")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if r := same(ctx, everyMethod()[0]); r.Header["deadline"][0] != "true" {
		t.Error("the deadline is not passed on")
	}
	// The proxy limits nothing; 16 MiB is the limit of both ends of CRI.
	large := strings.Repeat("0123456789abcdef", 40<<20/16)
	r := exchange(t.Context(), through, "/runtime.v1.RuntimeService/ListContainers", large)
	if r.Status != nil || !slices.Equal(r.Messages, []string{large}) {
		t.Errorf("40 MiB: %d messages, %v", len(r.Messages), r.Status)
	}
}

// TestCancelledCalls gives up calls: they end at the runtime too, and no goroutine of the proxy stays behind.
func TestCancelledCalls(t *testing.T) {
	const calls = 200
	arrived, gone := make(chan bool, 1), make(chan bool, 1)
	f := start(t, watched(t, func(string, string) func() {
		arrived <- true
		return func() { gone <- true }
	}, fake.Fault{RPC: "Status", Hang: true}))
	for range calls {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan codes.Code, 1)
		go func() { got <- codeOf(ctx, f.Status, &runtimeapi.StatusRequest{}) }()
		<-arrived
		cancel()
		<-gone
		if code := <-got; code != codes.Canceled {
			t.Fatal(code)
		}
	}
	f.stop() // waits for the handlers
	if got := f.Stats()["Status"].Calls; got != calls {
		t.Errorf("%d calls are counted", got)
	}
	must(t, f.conn.Close())
	stacks, end := make([]byte, 1<<20), time.Now().Add(time.Minute)
	for strings.Contains(string(stacks[:goruntime.Stack(stacks, true)]), "crictl/fault.(*") {
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", stacks)
		}
		goruntime.Gosched() // a reader of an unknown RPC may be on its way out
	}
}
