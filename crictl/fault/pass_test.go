package fault

import (
	"context"
	"errors"
	"io"
	goruntime "runtime"
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

// TestTransparent compares calls of known and unknown RPCs, with any bytes, with and without the proxy, which limits no
// size either: 16 MiB is the limit of both ends of CRI.
func TestTransparent(t *testing.T) {
	backend := serveEcho(t)
	direct, through := dial(t, backend), start(t, backend).conn
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "ask-bin", "\x00\xff"), time.Hour)
	defer cancel()
	for _, method := range []string{
		"/runtime.v1.RuntimeService/ListContainers", "/runtime.v1.RuntimeService/GetContainerEvents",
		"/runtime.v1.ImageService/PullImage", "/runtime.v9.NewService/Thing",
	} {
		for _, ctx := range []context.Context{ctx, metadata.AppendToOutgoingContext(t.Context(), "fail", "1")} {
			message := "\x01\xff no message at all" + strings.Repeat("0123456789abcdef", 20<<20/16)
			want := exchange(ctx, direct, method, message)
			if diff := want.diff(exchange(ctx, through, method, message)); diff != "" || len(want.Messages) != 1 {
				t.Errorf("%s (-direct +through the proxy):\n%.2000s", method, diff)
			}
		}
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
