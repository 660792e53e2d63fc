package remote

import (
	"cmp"
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

// A healthServer answers from a table, and never for "slow".
type healthServer struct {
	healthapi.UnimplementedHealthServer
	answers map[string]healthapi.HealthCheckResponse_ServingStatus
	asked   func() // called by a check of "slow"
}

// A due is a context whose deadline passes when done is closed, and not by the clock.
type due struct {
	context.Context
	done chan struct{}
}

func (d due) Done() <-chan struct{} { return d.done }

func (d due) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (d healthServer) Check(
	ctx context.Context, req *healthapi.HealthCheckRequest,
) (*healthapi.HealthCheckResponse, error) {
	if req.GetService() == "slow" {
		d.asked()
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
func serveHealth(t *testing.T, d *healthServer) (addr string) {
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
	asked := due{t.Context(), make(chan struct{})}
	well := serveHealth(t, &healthServer{answers: map[string]healthapi.HealthCheckResponse_ServingStatus{
		"": healthapi.HealthCheckResponse_SERVING, "ill": healthapi.HealthCheckResponse_NOT_SERVING,
	}, asked: func() { close(asked.done) }})
	without := serveHealth(t, nil)
	for _, tt := range []struct {
		name, addr, service string
		timeout             time.Duration // 0 for a minute
		want                string        // start of the error; empty for none
	}{
		{name: "serving", addr: well},
		{
			name: "not serving", addr: well, service: "ill",
			want: `service unhealthy (responded with "NOT_SERVING")`,
		},
		{
			name: "no health service", addr: without,
			want: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown",
		},
		{
			name: "slow", addr: well, service: "slow",
			want: "timeout: health rpc did not complete within 1m0s",
		},
		{
			name: "nothing listens", addr: "127.0.0.1:1", timeout: 200 * time.Millisecond,
			want: `timeout: failed to connect service "127.0.0.1:1" within 200ms: context deadline exceeded`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if tt.service == "slow" {
				ctx = asked
			}
			err := CheckHealth(ctx, tt.addr, tt.service, cmp.Or(tt.timeout, time.Minute))
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
