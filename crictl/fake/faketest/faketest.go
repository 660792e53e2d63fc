// Package faketest serves scenarios of the embedded runtime in memory. Only tests use it.
package faketest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
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

// Listen serves a scenario at a new socket until the test ends, with calls reported as ServeWatched does.
func Listen(t testing.TB, s fake.Scenario, watch func(rpc, id string) (ended func())) (path string) {
	t.Helper()
	srv, err := fake.New(s)
	if err != nil {
		t.Fatal(err)
	}
	srv.Watch, path = watch, filepath.Join(t.TempDir(), "s")
	stop, err := fake.Listen(context.Background(), srv, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return path
}

// Sockets are sockets in memory, by their paths.
type Sockets struct{ listeners sync.Map }

// Listen makes a socket. One that was there before is replaced.
func (s *Sockets) Listen(path string) (net.Listener, error) {
	lis := bufconn.Listen(1 << 20)
	s.listeners.Store(path, lis)
	return lis, nil
}

// Dial connects to a socket. One whose listener is closed refuses.
func (s *Sockets) Dial(ctx context.Context, path string) (net.Conn, error) {
	lis, ok := s.listeners.Load(path)
	if !ok {
		return nil, syscall.ENOENT
	}
	conn, err := lis.(*bufconn.Listener).DialContext(ctx)
	if err != nil && ctx.Err() == nil {
		err = syscall.ECONNREFUSED
	}
	return conn, err
}

// ServeHTTP serves requests in memory, so also in fake time, until the test ends. It returns the dialer of its clients.
func ServeHTTP(t testing.TB, h http.Handler) func(ctx context.Context, network, address string) (net.Conn, error) {
	lis, at := bufconn.Listen(1<<20), &http.Server{Handler: h}
	at.SetKeepAlivesEnabled(false) // bufconn may time out in a second request
	var served sync.WaitGroup
	served.Go(func() { _ = at.Serve(lis) })
	t.Cleanup(func() {
		_ = at.Close()
		served.Wait()
	})
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
}
