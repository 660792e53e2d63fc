package fake

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A client is the generated client of a served scenario.
type client struct {
	runtimeapi.RuntimeServiceClient
	server *Server
}

// serve serves a scenario in memory until the test ends.
func serve(t *testing.T, s Scenario) *client {
	t.Helper()
	srv := must(New(s))(t)
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	conn := dial(t, "passthrough:///bufconn", func(ctx context.Context, _ string) (net.Conn, error) {
		return lis.DialContext(ctx)
	})
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve after Stop: %v", err)
		}
	})
	return &client{runtimeapi.NewRuntimeServiceClient(conn), srv}
}

func dial(t *testing.T, target string, dialer func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	return must(grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30))))(t)
}

func codeOf(err error) codes.Code { return status.Code(err) }

// must fails the test on an error and returns the answer otherwise.
func must[T any](answer T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
}
