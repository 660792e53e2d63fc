package fake

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// socketPath returns a path short enough for a socket, wherever the tests run.
func socketPath(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "fake"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "cri.sock")
}

func unixDialer(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// listen serves a scenario with a socket of that mode at path until stop is called or the test ends.
func listen(t *testing.T, mode SocketMode, path string) (stop func(), err error) {
	t.Helper()
	s := small()
	s.Socket = mode
	srv := must(New(s))(t)
	stop, err = Listen(t.Context(), srv, path)
	if err == nil {
		t.Cleanup(stop)
	}
	return stop, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestListen listens in each mode. A client that connects and sends nothing is cut off at once by stop, and not after
// the two minutes for which gRPC waits.
func TestListen(t *testing.T) {
	for mode, want := range map[SocketMode]error{
		SocketListen: nil, SocketRefuse: syscall.ECONNREFUSED,
	} {
		t.Run(string(mode), func(t *testing.T) {
			path := socketPath(t)
			stop := must(listen(t, mode, path))(t)
			if info, err := os.Stat(path); err == nil && info.Mode() != os.ModeSocket|socketMode {
				t.Errorf("the socket has mode %v", info.Mode())
			}
			if mode == SocketListen {
				conn := dial(t, "passthrough:///"+path, unixDialer)
				defer conn.Close()
				client := runtimeapi.NewRuntimeServiceClient(conn)
				must(client.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
			}
			conn, err := unixDialer(t.Context(), path)
			if !errors.Is(err, want) {
				t.Errorf("connecting: %v, want %v", err, want)
			}
			stopped := make(chan bool)
			go func() {
				stop()
				stop() // again does nothing
				close(stopped)
			}()
			select {
			case <-stopped:
			case <-time.After(time.Minute):
				t.Fatal("stop waits for the client")
			}
			if exists(path) {
				t.Error("the socket is still there")
			}
			if conn != nil {
				if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the connection after stop: %v", err)
				}
			}
		})
	}
}

func TestListenReplacesStaleSocketsOnly(t *testing.T) {
	inUse := func(t *testing.T, path string) error {
		_, err := listen(t, SocketListen, path)
		return err
	}
	for _, test := range []struct {
		name string
		put  func(t *testing.T, path string) error
		mode SocketMode
		want string // part of the error; empty for none
	}{
		{"stale", func(_ *testing.T, path string) error {
			lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			lis.SetUnlinkOnClose(false)
			return lis.Close()
		}, SocketListen, ""},
		{"in use", inUse, SocketRefuse, "another process listens there already"},
		{"file", func(_ *testing.T, path string) error {
			return os.WriteFile(path, []byte("precious"), 0o600)
		}, SocketListen, "a file that is not a socket"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := socketPath(t)
			if err := test.put(t, path); err != nil {
				t.Fatal(err)
			}
			_, err := listen(t, test.mode, path)
			if (err == nil) != (test.want == "") ||
				err != nil && (!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if !exists(path) {
				t.Error("what was there is gone")
			}
		})
	}
}
