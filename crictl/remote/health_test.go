package remote

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kdiag/kdiag/internal/testkit"
)

// serveHealth serves on loopback until the test ends, with a health service if that is not nil. A check of "slow" is
// not answered.
func serveHealth(t *testing.T, service healthapi.HealthServer) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	srv := grpc.NewServer(grpc.UnaryInterceptor(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		if req.(*healthapi.HealthCheckRequest).GetService() == "slow" {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err() // which may reach the client before its own deadline
		}
		return next(ctx, req)
	}))
	if service != nil {
		healthapi.RegisterHealthServer(srv, service)
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	return l.Addr().String()
}

func TestCheckHealth(t *testing.T) {
	service := health.NewServer()
	service.SetServingStatus("ill", healthapi.HealthCheckResponse_NOT_SERVING)
	well, without := serveHealth(t, service), serveHealth(t, nil)
	const soon = 200 * time.Millisecond
	for _, tt := range []struct {
		addr, service string
		timeout       time.Duration
		want          string // start of the error; empty for none
	}{
		{well, "", time.Minute, ""},
		{well, "ill", time.Minute, `service unhealthy (responded with "NOT_SERVING")`},
		{without, "", time.Minute, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"},
		{well, "slow", soon, "timeout: "},
		{"127.0.0.1:1", "", soon, `timeout: failed to connect service "127.0.0.1:1" within 200ms: context deadline exceeded`},
	} {
		err := CheckHealth(t.Context(), tt.addr, tt.service, tt.timeout)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
