package crictl

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// A Dialer connects to the unix socket at path. Tests replace it to reach a runtime in the same process.
type Dialer func(ctx context.Context, path string) (net.Conn, error)

// Tuning of a connection to a runtime. The peer is on this host, behind a unix socket: the pauses between attempts to
// reach one that went away are short, so that its return shows at once, and the windows let large lists pass without
// waiting for updates.
const (
	reconnectBase = 10 * time.Millisecond
	reconnectMax  = 500 * time.Millisecond
	// connectPatience is how long a connection may wait for the server's first frame. It is longer than any command:
	// a frozen runtime must show as calls that miss their deadline, and when it thaws it answers this very connection.
	// When it dies instead, the kernel resets the connection, so nothing is lost by waiting.
	connectPatience = 24 * time.Hour
	streamWindow    = 16 << 20
	connWindow      = 32 << 20
)

// NewConn prepares a gRPC connection to the runtime at endpoint without connecting. A nil dial connects to the
// socket. The options are added last. The error is an *EndpointError when endpoint is not a unix socket address.
func NewConn(endpoint string, dial Dialer, options ...grpc.DialOption) (*grpc.ClientConn, error) {
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
		grpc.WithAuthority("localhost"), // as gRPC, and so the kubelet, sends for a unix target
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax,
			},
			MinConnectTimeout: connectPatience,
		}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
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
