package fault

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestObjects selects containers, also those that no earlier call named, and one by an abbreviated id.
func TestObjects(t *testing.T) {
	backend := runtime(t)
	proxy := idOf(t, backend, "shop", "proxy")
	ids := []string{idOf(t, backend, "shop", "app"), idOf(t, backend, "ledger", "app"), proxy, proxy[:12], "nobody"}
	for _, test := range []struct {
		name   string
		object fake.Object
		want   string // an x for each of ids that fails
	}{
		{"pod", fake.Object{Pod: "sh*"}, "x-xx-"},
		{"container", fake.Object{Container: "proxy"}, "--xx-"},
		{"id pattern", fake.Object{ID: "no*"}, "----x"},
		{"sandbox", fake.Object{Sandbox: true}, "-----"},
	} {
		f := start(t, backend, fake.Fault{RPC: "ContainerStatus", Error: "Aborted: x", Object: test.object})
		got := ""
		for _, id := range ids {
			if f.status(t, id) == codes.Aborted {
				got += "x"
			} else {
				got += "-"
			}
		}
		testkit.Equal(t, test.name, test.want, got)
	}
}

// TestAnswers makes an answer larger than a kubelet takes, or not quite, and a list that takes an hour for each item.
func TestAnswers(t *testing.T) {
	backend := runtime(t)
	id := idOf(t, backend, "shop", "proxy")
	for size, want := range map[int]codes.Code{17 << 20: codes.ResourceExhausted, 15 << 20: codes.OK} {
		f := start(t, backend, fake.Fault{RPC: "ContainerStatus", Oversize: size})
		if got := f.status(t, id); got != want || f.version(t) != codes.OK {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
	f := start(t, backend)
	testkit.Must(t, f.SetFaults(nil, []fake.Latency{{RPC: "ListContainers", PerItem: fake.Duration(time.Hour)}}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := codeOf(ctx, f.ListContainers, &runtimeapi.ListContainersRequest{})
	testkit.Equal(t, "a slow list", codes.DeadlineExceeded, got)
}

// TestDropCutsTheConnection drops a call, which the runtime has served: other calls on the connection end too.
func TestDropCutsTheConnection(t *testing.T) {
	backend := runtime(t)
	id := idOf(t, backend, "shop", "proxy")
	f := start(t, backend, fake.Fault{RPC: "StopContainer", Drop: true})
	events, err := f.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil || f.version(t) != codes.OK {
		t.Fatal(err)
	}
	stop := &runtimeapi.StopContainerRequest{ContainerId: id}
	testkit.Equal(t, "StopContainer", codes.Unavailable, codeOf(t.Context(), f.StopContainer, stop))
	for err == nil {
		_, err = events.Recv() // that the container stopped, perhaps
	}
	if errors.Is(err, io.EOF) || status.Code(err) != codes.Unavailable {
		t.Errorf("the stream of events: %v", err)
	}
	answer, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id},
		grpc.WaitForReady(true))
	if err != nil || answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("the container: %v, %v", answer.GetStatus().GetState(), err)
	}
}

// TestSetFaults replaces the faults, or ends the proxy, while a call hangs: it goes on, or meets the new fault.
func TestSetFaults(t *testing.T) {
	f := start(t, runtime(t))
	set := func(faults ...fake.Fault) error { return f.SetFaults(faults, nil) }
	for _, test := range []struct {
		change func() error
		want   codes.Code
	}{
		{func() error { return set() }, codes.OK},
		{func() error { return set(fake.Fault{RPC: "Version", Error: "DataLoss: gone"}) }, codes.DataLoss},
		{func() error { f.stop(); return f.SetDown(true) }, codes.Unavailable},
	} {
		testkit.Must(t, set(fake.Fault{RPC: "*", Hang: true}))
		got := make(chan codes.Code, 1)
		go func() { got <- f.version(t) }()
		testkit.Equal(t, "injection", Injection{RPC: "Version"}, <-f.injected)
		testkit.Must(t, test.change())
		testkit.Equal(t, "the call that hung", test.want, <-got)
		for len(f.injected) > 0 {
			<-f.injected
		}
	}
	if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// TestSetDown takes a proxy down with a call in flight: it refuses connections, and comes back on the same path.
func TestSetDown(t *testing.T) {
	f := start(t, runtime(t))
	testkit.Must(t, f.SetFaults([]fake.Fault{{RPC: "Status", Hang: true}}, nil))
	hung := make(chan codes.Code, 1)
	go func() { hung <- codeOf(t.Context(), f.Status, &runtimeapi.StatusRequest{}) }()
	<-f.injected
	testkit.Must(t, errors.Join(f.SetDown(true), f.SetDown(true)))
	testkit.Equal(t, "a call when it goes down", codes.Unavailable, <-hung)
	var d net.Dialer
	if _, err := d.DialContext(t.Context(), "unix", f.path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting: %v", err)
	}
	testkit.Must(t, f.SetDown(false))
	_, err := f.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	testkit.Must(t, err)
}

// runtime serves a runtime with two pods on a socket until the test ends.
func runtime(t *testing.T) string { return watched(t, nil) }

// watched is runtime with calls reported as fake.Server.Watch does.
func watched(t *testing.T, watch func(rpc, id string) (ended func()), faults ...fake.Fault) (path string) {
	t.Helper()
	return faketest.Listen(t, fake.Scenario{Name: "shop", Faults: faults, Pods: []fake.PodGroup{
		{Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app"}, {Name: "proxy"}}},
		{Namespace: "pay", Name: "ledger", Containers: []fake.ContainerGroup{{Name: "app"}}},
	}}, watch)
}

// A front is a proxy that runs, and a client of it.
type front struct {
	*Proxy
	runtimeapi.RuntimeServiceClient
	conn     *grpc.ClientConn
	path     string
	injected chan Injection
	stop     func() // may be called early
}

// start puts a proxy in front of a socket until the test ends.
func start(t *testing.T, backend string, faults ...fake.Fault) *front {
	t.Helper()
	f := &front{path: filepath.Join(t.TempDir(), "proxy.sock"), injected: make(chan Injection, 1000)}
	var err error
	f.Proxy, err = New(Config{
		Backend: backend, Listen: f.path, Faults: faults, Log: func(i Injection) { f.injected <- i },
	})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Must(t, <-done)
	})
	t.Cleanup(f.stop)
	f.conn = dial(t, f.path)
	f.RuntimeServiceClient = runtimeapi.NewRuntimeServiceClient(f.conn)
	return f
}

// codeOf makes a call and returns its code.
func codeOf[Q, R any](
	ctx context.Context, do func(context.Context, *Q, ...grpc.CallOption) (*R, error), req *Q,
) codes.Code {
	_, err := do(ctx, req)
	return status.Code(err)
}

// status asks for a container's status.
func (f *front) status(t *testing.T, id string) codes.Code {
	return codeOf(t.Context(), f.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id})
}

// version returns the code of a call of Version.
func (f *front) version(t *testing.T) codes.Code {
	return codeOf(t.Context(), f.Version, &runtimeapi.VersionRequest{})
}

// dial connects to a socket as a kubelet does, with its limit of 16 MiB.
func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// idOf returns the id of a container of the shop, from the runtime itself.
func idOf(t *testing.T, backend, pod, name string) string {
	t.Helper()
	list, err := runtimeapi.NewRuntimeServiceClient(dial(t, backend)).ListContainers(t.Context(),
		&runtimeapi.ListContainersRequest{})
	for _, c := range list.GetContainers() {
		if c.GetMetadata().GetName() == name && c.GetLabels()["io.kubernetes.pod.name"] == pod {
			return c.GetId()
		}
	}
	t.Fatalf("there is no container %s of %s: %v", name, pod, err)
	return ""
}

// serveEcho serves a runtime that returns all that it is sent: messages, the metadata of the caller as header and
// trailer, and whether there is a deadline. With the metadata "fail" it ends with an error.
func serveEcho(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "echo.sock")
	lis, err := net.Listen("unix", path)
	testkit.Must(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(echo),
		grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return path
}

func echo(_ any, s grpc.ServerStream) error {
	in, _ := metadata.FromIncomingContext(s.Context())
	_, deadline := s.Context().Deadline()
	name, _ := grpc.MethodFromServerStream(s)
	header := metadata.Pairs("method", name, "deadline", strconv.FormatBool(deadline))
	if err := s.SetHeader(metadata.Join(header, metadata.MD{"ask-bin": in["ask-bin"]})); err != nil {
		return err
	}
	s.SetTrailer(metadata.MD{"end-bin": in["ask-bin"]})
	for {
		var message frame
		err := s.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			break
		}
		if err = errors.Join(err, s.SendMsg(&message)); err != nil {
			return err
		}
	}
	if len(in["fail"]) == 0 {
		return nil
	}
	return status.Error(codes.DataLoss, "lost: 100% \n of it")
}

// A result is all that a caller sees of a call.
type result struct {
	Messages        []string
	Header, Trailer metadata.MD
	Err             string
}

// exchange makes a call on a connection, message by message.
func exchange(ctx context.Context, conn *grpc.ClientConn, method string, messages ...string) (r result) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))
	if err != nil {
		return result{Err: err.Error()}
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
			r.Err = err.Error()
			return r
		}
		r.Messages = append(r.Messages, string(m.data))
	}
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
			message := "\x01\xff no message at all"
			if strings.HasSuffix(method, "/ListContainers") {
				message = strings.Repeat("0123456789abcdef", 20<<20/16)
			}
			want := exchange(ctx, direct, method, message)
			diff := cmp.Diff(want, exchange(ctx, through, method, message))
			if diff != "" || len(want.Messages) != 1 {
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
	testkit.Equal(t, "calls that are counted", calls, f.Stats()["Status"].Calls)
	testkit.Must(t, f.conn.Close())
	stacks, end := make([]byte, 1<<20), time.Now().Add(time.Minute)
	for strings.Contains(string(stacks[:goruntime.Stack(stacks, true)]), "crictl/fault.(*") {
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", stacks)
		}
		goruntime.Gosched() // a reader of an unknown RPC may be on its way out
	}
}
