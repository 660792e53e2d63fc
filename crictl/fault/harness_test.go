package fault

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runtime serves a runtime with two pods on a socket until the test ends.
func runtime(t *testing.T) string { return watched(t, nil) }

// watched is runtime with calls reported as fake.Server.Watch does.
func watched(t *testing.T, watch func(rpc, id string) (ended func()), faults ...fake.Fault) (path string) {
	t.Helper()
	server, err := fake.New(fake.Scenario{Name: "shop", Faults: faults, Pods: []fake.PodGroup{
		{Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app"}, {Name: "proxy"}}},
		{Namespace: "pay", Name: "ledger", Containers: []fake.ContainerGroup{{Name: "app"}}},
	}})
	must(t, err)
	server.Watch = watch
	path = filepath.Join(t.TempDir(), "cri.sock")
	stop, err := fake.Listen(context.Background(), server, path)
	must(t, err)
	t.Cleanup(stop)
	return path
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

// serveEcho serves a runtime that returns all that it is sent: messages, the metadata of the caller as header and
// trailer, and whether there is a deadline. With the metadata "fail" it ends with a status that has details.
func serveEcho(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "echo.sock")
	lis, err := net.Listen("unix", path)
	must(t, err)
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
	st, err := status.New(codes.DataLoss, "lost: 100% \n of it").WithDetails(durationpb.New(5))
	if err != nil {
		return err
	}
	return st.Err()
}
