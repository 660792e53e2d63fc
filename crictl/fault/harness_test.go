package fault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// shortDir makes a folder for sockets: those of t.TempDir may be longer than the kernel takes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fault-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// runtime serves a scenario on a socket until the test ends.
func runtime(t *testing.T, s fake.Scenario) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "cri.sock")
	listenFake(t, s, path)
	return path
}

// listenFake serves a scenario at path until stop is called or the test ends.
func listenFake(t *testing.T, s fake.Scenario, path string) (stop func()) {
	t.Helper()
	server, err := fake.New(s)
	if err != nil {
		t.Fatal(err)
	}
	stop, err = fake.Listen(context.Background(), server, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

// shop is a scenario with two pods.
func shop() fake.Scenario {
	return fake.Scenario{Name: "shop", Pods: []fake.PodGroup{
		{Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app"}, {Name: "proxy"}}},
		{Namespace: "pay", Name: "ledger", Containers: []fake.ContainerGroup{{Name: "app"}}},
	}}
}

// A front is a proxy that runs, and a client of it.
type front struct {
	*fault.Proxy
	runtimeapi.RuntimeServiceClient
	conn *grpc.ClientConn
	path string
	stop func() // may be called early
}

// start puts a proxy in front of a socket until the test ends.
func start(t *testing.T, backend string, faults ...fake.Fault) *front {
	t.Helper()
	return startWith(t, fault.Config{Backend: backend, Faults: faults})
}

func startWith(t *testing.T, cfg fault.Config) *front {
	t.Helper()
	cfg.Listen = filepath.Join(shortDir(t), "proxy.sock")
	proxy, err := fault.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- proxy.Run(ctx) }()
	var ended atomic.Bool
	stop := func() {
		cancel()
		if ended.Swap(true) {
			return
		}
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	conn := dial(t, cfg.Listen)
	return &front{
		Proxy: proxy, RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(conn), conn: conn,
		path: cfg.Listen, stop: stop,
	}
}

// dial connects to a socket as a kubelet does, with its limit of 16 MiB.
func dial(t *testing.T, path string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// idOf returns the id of a container, asked of the runtime itself.
func idOf(t *testing.T, backend, pod, name string) string {
	t.Helper()
	answer, err := runtimeapi.NewRuntimeServiceClient(dial(t, backend)).ListContainers(t.Context(),
		&runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range answer.GetContainers() {
		if c.GetMetadata().GetName() == name && c.GetLabels()["io.kubernetes.pod.name"] == pod {
			return c.GetId()
		}
	}
	t.Fatalf("there is no container %s of %s", name, pod)
	return ""
}

// plain is a codec for texts of bytes.
type plain struct{}

var _ encoding.CodecV2 = plain{}

func (plain) Name() string { return "" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// An echo is a runtime that says what it was told: all messages again, the metadata of the caller as header and
// trailer, and whether there is a deadline. With the metadata "fail" it ends with a status that has details, with
// "wait" when the caller goes.
type echo struct {
	path    string
	arrived chan struct{} // a call that waits has arrived
	gone    chan struct{} // and has ended
}

func serveEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{
		path: filepath.Join(shortDir(t), "echo.sock"), arrived: make(chan struct{}, 1000),
		gone: make(chan struct{}, 1000),
	}
	lis, err := net.Listen("unix", e.path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(plain{}), grpc.UnknownServiceHandler(e.handle),
		grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("the echo: %v", err)
		}
	})
	return e
}

func (e *echo) handle(_ any, s grpc.ServerStream) error {
	in, _ := metadata.FromIncomingContext(s.Context())
	_, deadline := s.Context().Deadline()
	if len(in["wait"]) > 0 {
		if err := s.SendHeader(metadata.Pairs("waiting", "yes")); err != nil {
			return err
		}
		e.arrived <- struct{}{}
		<-s.Context().Done()
		e.gone <- struct{}{}
		return s.Context().Err()
	}
	name, _ := grpc.MethodFromServerStream(s)
	header := metadata.Pairs("said", name, "deadline", strconv.FormatBool(deadline))
	if err := s.SetHeader(metadata.Join(header, metadata.MD{"ask-bin": in["ask-bin"]})); err != nil {
		return err
	}
	s.SetTrailer(metadata.MD{"end-bin": in["ask-bin"]})
	for {
		var message []byte
		err := s.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.SendMsg(&message)
		}
		if err != nil {
			return err
		}
	}
	if len(in["fail"]) == 0 {
		return nil
	}
	st, err := status.New(codes.DataLoss, "lost: 100% \n of it").WithDetails(durationpb.New(5))
	if err != nil {
		return err
	}
	return st.Err()
}
