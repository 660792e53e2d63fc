package crictl

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A Dialer connects to the unix socket at path. Tests replace it to reach a runtime in the same process.
type Dialer func(ctx context.Context, path string) (net.Conn, error)

// NewConn prepares a gRPC connection to the runtime at endpoint without connecting. A nil dial connects to the
// socket. retry sets the pauses between attempts to connect; options are added last. The error is an *EndpointError
// when endpoint is not a unix socket address.
func NewConn(
	endpoint string, dial Dialer, retry grpc.ConnectParams, options ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	url, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = dialUnix
	}
	path := pathOf(url)
	// The target is a constant because the dialer knows the path; passthrough keeps DNS and its service config out.
	conn, err := grpc.NewClient("passthrough:///runtime", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // what gRPC sends for a unix target, and what the kubelet therefore sends
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithConnectParams(retry),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for %s: %w", url, err)
	}
	return conn, nil
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}
