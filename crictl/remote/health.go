package remote

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// CheckHealth asks the gRPC health service (grpc.health.v1.Health) at a TCP address how a service does, as a
// kubelet's probe does: in plain text, on a new connection, within the timeout. It returns nil for SERVING alone. An
// error has the text of the kubelet's event (pkg/probe/grpc/grpc.go upstream).
func CheckHealth(ctx context.Context, addr, service string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/kdiag"),
		grpc.WithContextDialer(dialProbed))
	if err != nil {
		return fmt.Errorf("error: failed to connect service at %q: %w", addr, err)
	}
	defer conn.Close()
	// A server that is not up yet may come up in time, so connections that are refused are tried again.
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("timeout: failed to connect service %q within %v: %w", addr, timeout, ctx.Err())
		}
	}
	resp, err := healthapi.NewHealthClient(conn).Check(ctx, &healthapi.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return fmt.Errorf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			status.Convert(err).Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("timeout: health rpc did not complete within %v", timeout)
	default:
		return fmt.Errorf("error: health rpc probe failed: %w", err)
	}
	if s := resp.GetStatus(); s != healthapi.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", s)
	}
	return nil
}

// dialProbed makes a connection whose port is free again a second after its end: probes make many.
func dialProbed(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
				&syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
	return d.DialContext(ctx, "tcp", addr)
}
