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

func unixDialer(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// listen serves a scenario with a socket of that mode at path until stop is called or the test ends.
func listen(t *testing.T, mode SocketMode, path string) (stop func(), err error) {
	t.Helper()
	srv := must(New(Scenario{Name: "small", Socket: mode}))(t)
	stop, err = Listen(t.Context(), srv, path)
	if err == nil {
		t.Cleanup(stop)
	}
	return stop, err
}

// TestListen listens in each mode, where there is no file and where there is one. A client that connects and sends
// nothing is cut off at once by stop, and not after the two minutes for which gRPC waits.
func TestListen(t *testing.T) {
	for _, test := range []struct {
		name string
		put  func(path string) error // nil for none
		mode SocketMode
		err  string // part of Listen's; empty for none
	}{
		{name: "listen"},
		{name: "refuse", mode: SocketRefuse},
		{name: "stale", put: func(path string) error {
			lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			lis.SetUnlinkOnClose(false)
			return lis.Close()
		}},
		{name: "in use", err: "another process listens there already", put: func(path string) error {
			_, err := listen(t, SocketListen, path)
			return err
		}},
		{name: "file", err: "a file that is not a socket", put: func(path string) error {
			return os.WriteFile(path, []byte("precious"), 0o600)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cri.sock")
			if test.put != nil {
				must(0, test.put(path))(t)
			}
			stop, err := listen(t, test.mode, path)
			info, errStat := os.Lstat(path)
			if errStat != nil || test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), path) || errStat != nil {
					t.Errorf("%v, %v, want %q", err, errStat, test.err)
				}
				return
			}
			if info.Mode() != os.ModeSocket|socketMode {
				t.Errorf("the socket has mode %v", info.Mode())
			}
			if test.mode == SocketListen {
				conn := dial(t, "passthrough:///"+path, unixDialer)
				defer conn.Close()
				client := runtimeapi.NewRuntimeServiceClient(conn)
				must(client.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
			}
			conn, err := unixDialer(t.Context(), path)
			if refused := errors.Is(err, syscall.ECONNREFUSED); refused != (test.mode == SocketRefuse) || !refused && err != nil {
				t.Errorf("connecting: %v", err)
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
			if _, err := os.Lstat(path); err == nil {
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
