package remote

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// A doctor is a health service that answers as it is told.
type doctor struct {
	healthapi.UnimplementedHealthServer
	answers map[string]healthapi.HealthCheckResponse_ServingStatus
}

func (d doctor) Check(ctx context.Context, req *healthapi.HealthCheckRequest) (*healthapi.HealthCheckResponse, error) {
	if req.GetService() == "slow" {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	answer, ok := d.answers[req.GetService()]
	if !ok {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthapi.HealthCheckResponse{Status: answer}, nil
}

// serveHealth serves on loopback until the test ends, with a health service or, for nil, without.
func serveHealth(t *testing.T, d *doctor) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	if d != nil {
		healthapi.RegisterHealthServer(srv, d)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	return l.Addr().String()
}

func TestCheckHealth(t *testing.T) {
	well := serveHealth(t, &doctor{answers: map[string]healthapi.HealthCheckResponse_ServingStatus{
		"": healthapi.HealthCheckResponse_SERVING, "ill": healthapi.HealthCheckResponse_NOT_SERVING,
	}})
	without := serveHealth(t, nil)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, addr, service string
		timeout             time.Duration
		want                string // start of the error; empty for none
	}{
		{name: "serving", addr: well, timeout: time.Minute},
		{name: "not serving", addr: well, service: "ill", timeout: time.Minute, want: `service unhealthy (responded with "NOT_SERVING")`},
		{name: "unknown service", addr: well, service: "x", timeout: time.Minute, want: "error: health rpc probe failed: rpc error: code = NotFound"},
		{
			name: "no health service", addr: without, timeout: time.Minute,
			want: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health",
		},
		{name: "slow", addr: well, service: "slow", timeout: 300 * time.Millisecond, want: "timeout: health rpc did not complete within 300ms"},
		{
			name: "nobody there", addr: nobody, timeout: 200 * time.Millisecond,
			want: `timeout: failed to connect service "` + nobody + `" within 200ms: context deadline exceeded`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := CheckHealth(t.Context(), tt.addr, tt.service, tt.timeout)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
