package crictl

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
)

// A due is a context whose deadline passes when the one in it is cancelled, and not by the clock.
type due struct{ context.Context }

func (d due) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d due) Err() error {
	if d.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// drained waits until the peer has read all that was written to it.
func drained(t *testing.T, c net.Conn) {
	raw, err := c.(syscall.Conn).SyscallConn()
	for unread := 1; err == nil && unread > 0; runtime.Gosched() {
		if ctlErr := raw.Control(func(fd uintptr) {
			unread,
				err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}); err == nil {
			err = ctlErr
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// socketPath is a path short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kd")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve accepts connections at a new socket and hands each to do. It ends with the test.
func serve(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	path := socketPath(t)
	lis, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn)
			}()
		}
	}()
	return path
}

// backlogged is a listener whose queue is full and that accepts nothing.
func backlogged(t *testing.T) string {
	t.Helper()
	path := socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 0))
	for range 10 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return path
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the listen queue never got full")
	return ""
}

func TestProbe(t *testing.T) {
	// says answers HTTP/2's hello with these texts, one write each, and hangs up.
	says := func(texts ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			return serve(t, func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, len(http2Hello)))
				for _, text := range texts {
					_, _ = io.WriteString(c, text)
				}
			})
		}
	}
	settings := strings.Split("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "")
	for _, tc := range []struct {
		name  string
		path  func(t *testing.T) string
		want  ConnectState
		first string // part of FirstByte
	}{
		{"missing", socketPath, ConnectMissing, ""},
		{"directory", func(t *testing.T) string { return t.TempDir() }, ConnectNotSocket, ""},
		{"refused", func(t *testing.T) string { return host{"s": "socket"}.root(t) + "/s" }, ConnectRefused, ""},
		{"backlogged", backlogged, ConnectBacklogged, ""},
		{"HTTP/1", says("HTTP/1.1 400 Bad Request\r\n\r\n"), ConnectForeign, `"HTTP/1.1 400`},
		{"hangs up", says(), ConnectForeign, ""},
		{"settings byte by byte", says(settings...), ConnectOK, ""},
		{"ttrpc", func(t *testing.T) string {
			path := says()(t)
			must(t, os.Rename(path, path+".ttrpc"))
			return path + ".ttrpc"
		}, ConnectForeign, ""},
		{"gRPC", func(t *testing.T) string {
			return listen(t, fake.Scenario{Name: "x"}, nil)
		}, ConnectOK, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got := Probe(ctx, tc.path(t))
			if got.State != tc.want || got.TTRPC != (tc.name == "ttrpc") ||
				!strings.Contains(got.FirstByte, tc.first) ||
				(got.Err == "") != (tc.want == ConnectOK) {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
			if (tc.want == ConnectOK || tc.first != "") && got.PeerPID != os.Getpid() {
				t.Errorf("peer is %d, want this process", got.PeerPID)
			}
		})
	}
}

// TestProbeEnds probes servers that do not complete an answer before the context ends.
func TestProbeEnds(t *testing.T) {
	for _, tc := range []struct {
		name, says  string
		interrupted bool
		want        ConnectState
	}{
		{"silent", "", false, ConnectSilent},
		{"half a frame", "\x00\x00\x06\x04", false, ConnectForeign},
		{"interrupted", "", true, ConnectCanceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if !tc.interrupted {
				ctx = due{ctx}
			}
			got := Probe(ctx, serve(t, func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, len(http2Hello)))
				_, _ = io.WriteString(c, tc.says)
				drained(t, c)
				end()
				_, _ = io.Copy(io.Discard, c)
			}))
			if got.State != tc.want || tc.says != "" && got.FirstByte != strconv.QuoteToASCII(tc.says) ||
				tc.want == ConnectSilent && got.PeerPID != os.Getpid() {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

// TestFailedConnect has errors that no test can provoke as every user.
func TestFailedConnect(t *testing.T) {
	for err, want := range map[error]ConnectState{
		unix.EACCES: ConnectDenied, unix.ENOTDIR: ConnectMissing, unix.EPROTOTYPE: ConnectForeign,
		deadline.ErrAbandoned: ConnectFailed,
	} {
		if got := failedConnect(t.Context(), err); got.State != want || got.Err == "" {
			t.Errorf("%v: %+v, want %s", err, got, want)
		}
	}
}
