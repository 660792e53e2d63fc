package fake

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func newServer(t *testing.T, mode SocketMode) *Server {
	t.Helper()
	s := small()
	s.Socket = mode
	srv, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// socketPath returns a path short enough for a socket, wherever the tests run.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "cri.sock")
}

func unixDialer(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

func mustListen(t *testing.T, ctx context.Context, srv *Server, path string) func() {
	t.Helper()
	stop, err := Listen(ctx, srv, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestListenServes(t *testing.T) {
	path := socketPath(t)
	stop := mustListen(t, t.Context(), newServer(t, SocketListen), path)
	conn := dial(t, "passthrough:///"+path, unixDialer)
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	got := must(client.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
	if got.GetRuntimeName() != "containerd" || got.GetRuntimeApiVersion() != "v1" {
		t.Errorf("version %v", got)
	}
	stop()
	stop() // again does nothing
	if exists(path) {
		t.Error("the socket is still there after stop")
	}
	if _, err := unixDialer(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("connecting after stop: %v", err)
	}
}

func TestListenModes(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		path := socketPath(t)
		mustListen(t, t.Context(), newServer(t, SocketMissing), path)
		if exists(path) {
			t.Error("there is a file")
		}
	})
	t.Run("refuse", func(t *testing.T) {
		path := socketPath(t)
		stop := mustListen(t, t.Context(), newServer(t, SocketRefuse), path)
		if _, err := unixDialer(t.Context(), path); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting: %v", err)
		}
		stop()
		if exists(path) {
			t.Error("the stale file is still there after stop")
		}
	})
	t.Run("silent", func(t *testing.T) {
		path := socketPath(t)
		stop := mustListen(t, t.Context(), newServer(t, SocketSilent), path)
		var conns []net.Conn
		for range 3 {
			conns = append(conns, must(unixDialer(t.Context(), path))(t))
		}
		ended := make(chan error, 1)
		go func() {
			_, err := conns[0].Read(make([]byte, 1))
			ended <- err
		}()
		stop()
		if err := <-ended; err == nil {
			t.Error("the silent server said something")
		}
		if exists(path) {
			t.Error("the socket is still there after stop")
		}
	})
}

// TestStopEndsSilentClients: a client that connects and says nothing does not hold up Stop for gRPC's two minutes.
func TestStopEndsSilentClients(t *testing.T) {
	path := socketPath(t)
	stop := mustListen(t, t.Context(), newServer(t, SocketListen), path)
	conn := must(unixDialer(t.Context(), path))(t)
	defer conn.Close()
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("Stop waits for the client")
	}
}

func TestListenReplacesStaleSocketsOnly(t *testing.T) {
	t.Run("stale", func(t *testing.T) {
		path := socketPath(t)
		lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		lis.SetUnlinkOnClose(false)
		if err := lis.Close(); err != nil {
			t.Fatal(err)
		}
		mustListen(t, t.Context(), newServer(t, SocketListen), path)
		conn := must(unixDialer(t.Context(), path))(t)
		t.Cleanup(func() { _ = conn.Close() })
	})
	listen := func(t *testing.T, path string) { mustListen(t, t.Context(), newServer(t, SocketListen), path) }
	tests := []struct {
		name string
		put  func(t *testing.T, path string)
		mode SocketMode
		want string
	}{
		{"in use", listen, SocketListen, "another process listens there already"},
		{"in use, to be missing", listen, SocketMissing, "another process listens there already"},
		{"file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, SocketListen, "a file that is no socket"},
		{"symlink", func(t *testing.T, path string) {
			if err := os.Symlink("/dev/null", path); err != nil {
				t.Fatal(err)
			}
		}, SocketListen, "a file that is no socket"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := socketPath(t)
			test.put(t, path)
			_, err := Listen(t.Context(), newServer(t, test.mode), path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if !exists(path) {
				t.Error("what was there is gone")
			}
		})
	}
}
