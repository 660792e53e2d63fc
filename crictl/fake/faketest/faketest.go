// Package faketest serves scenarios of the embedded runtime in memory. Only tests use it.
package faketest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kdiag/kdiag/crictl/fake"
)

// Serve serves a scenario until the test ends, and returns the dialer of its clients.
func Serve(t testing.TB, s fake.Scenario) func(ctx context.Context, path string) (net.Conn, error) {
	t.Helper()
	return ServeWatched(t, s, nil)
}

// ServeWatched is Serve with calls reported as fake.Server.Watch does.
func ServeWatched(
	t testing.TB, s fake.Scenario, watch func(rpc, id string) (ended func()),
) func(ctx context.Context, path string) (net.Conn, error) {
	t.Helper()
	srv, err := fake.New(s)
	if err != nil {
		t.Fatal(err)
	}
	srv.Watch = watch
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
}
