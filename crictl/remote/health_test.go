package remote

import (
	"cmp"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
)

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

// serveHealth serves on loopback until the test ends, with a health service if that is not nil. A check of "slow" calls
// asked, and is not answered.
func serveHealth(t *testing.T, service healthapi.HealthServer, asked func()) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnaryInterceptor(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		if req.(*healthapi.HealthCheckRequest).GetService() == "slow" {
			asked()
			<-ctx.Done()
		}
		return next(ctx, req)
	}))
	if service != nil {
		healthapi.RegisterHealthServer(srv, service)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) }) // ends with Stop
	t.Cleanup(func() {
		srv.Stop()
		serving.Wait()
	})
	return l.Addr().String()
}

func TestCheckHealth(t *testing.T) {
	asked := due{t.Context(), make(chan struct{})}
	service := health.NewServer()
	service.SetServingStatus("ill", healthapi.HealthCheckResponse_NOT_SERVING)
	well, without := serveHealth(t, service, func() { close(asked.done) }), serveHealth(t, nil, nil)
	for _, tt := range []struct {
		name, addr, service string
		timeout             time.Duration // 0 for a minute
		want                string        // start of the error; empty for none
	}{
		{name: "serving", addr: well},
		{name: "not serving", addr: well, service: "ill", want: `service unhealthy (responded with "NOT_SERVING")`},
		{
			name: "no health service", addr: without,
			want: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown",
		},
		{name: "slow", addr: well, service: "slow", want: "timeout: health rpc did not complete within 1m0s"},
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
