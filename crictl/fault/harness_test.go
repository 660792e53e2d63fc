package fault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shortDir makes a folder for sockets: those of t.TempDir may be longer than the kernel takes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fault-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// runtime serves a runtime with two pods on a socket until the test ends.
func runtime(t *testing.T) string {
	t.Helper()
	server, err := fake.New(fake.Scenario{Name: "shop", Pods: []fake.PodGroup{
		{Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app"}, {Name: "proxy"}}},
		{Namespace: "pay", Name: "ledger", Containers: []fake.ContainerGroup{{Name: "app"}}},
	}})
	must(t, err)
	path := filepath.Join(shortDir(t), "cri.sock")
	stop, err := fake.Listen(context.Background(), server, path)
	must(t, err)
	t.Cleanup(stop)
	return path
}

// A front is a proxy that runs, and a client of it.
type front struct {
	*fault.Proxy
	runtimeapi.RuntimeServiceClient
	conn     *grpc.ClientConn
	path     string
	injected chan fault.Injection
	stop     func() // may be called early
}

// start puts a proxy in front of a socket until the test ends.
func start(t *testing.T, backend string, faults ...fake.Fault) *front {
	t.Helper()
	f := &front{path: filepath.Join(shortDir(t), "proxy.sock"), injected: make(chan fault.Injection, 1000)}
	var err error
	f.Proxy, err = fault.New(fault.Config{
		Backend: backend, Listen: f.path, Faults: faults, Log: func(i fault.Injection) { f.injected <- i },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
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
func (f *front) status(t *testing.T, id string, timeout time.Duration) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return codeOf(ctx, f.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id})
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
	must(t, err)
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

// plain is a codec for texts of bytes.
type plain struct{}

func (plain) Name() string { return "" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// An echo is a runtime that returns what it is sent: all messages, the metadata of the caller as header and trailer,
// and whether there is a deadline. With the metadata "fail" it ends with a status that has details, with "wait" when
// the caller goes.
type echo struct {
	path    string
	arrived chan struct{} // a call that waits has arrived
	gone    chan struct{} // and has ended
}

func serveEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{filepath.Join(shortDir(t), "echo.sock"), make(chan struct{}, 1000), make(chan struct{}, 1000)}
	lis, err := net.Listen("unix", e.path)
	must(t, err)
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
	header := metadata.Pairs("method", name, "deadline", strconv.FormatBool(deadline))
	if err := s.SetHeader(metadata.Join(header, metadata.MD{"ask-bin": in["ask-bin"]})); err != nil {
		return err
	}
	s.SetTrailer(metadata.MD{"end-bin": in["ask-bin"]})
	for {
		var message []byte
		err := s.RecvMsg(&message)
		if err == nil {
			err = s.SendMsg(&message)
		}
		if errors.Is(err, io.EOF) && len(in["fail"]) == 0 {
			return nil
		} else if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	st, err := status.New(codes.DataLoss, "lost: 100% \n of it").WithDetails(durationpb.New(5))
	if err != nil {
		return err
	}
	return st.Err()
}
