package crictl

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// A due is a context whose deadline passes when end is called, and not by the clock.
type due struct {
	context.Context
	done chan struct{}
	late time.Duration // how long what AfterFunc is told to call has to wait: a busy machine
}

func newDue(t *testing.T) *due { return &due{Context: t.Context(), done: make(chan struct{})} }

func (d *due) end() { close(d.done) }

func (d *due) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d *due) Done() <-chan struct{} { return d.done }

func (d *due) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (d *due) AfterFunc(f func()) (stop func() bool) {
	var once sync.Once
	go func() {
		<-d.done
		time.Sleep(d.late)
		once.Do(f)
	}()
	return func() (stopped bool) {
		once.Do(func() { stopped = true })
		return stopped
	}
}

// drained waits until the peer has read all that was written to it.
func drained(t *testing.T, c net.Conn) {
	raw, err := c.(syscall.Conn).SyscallConn()
	for unread := 1; err == nil && unread > 0; runtime.Gosched() {
		if ctlErr := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err == nil {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve accepts connections at a new socket and hands each to do. It ends with the test.
func serve(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	path := socketPath(t)
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
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
	hello := func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, len(http2Hello))) }
	for _, tc := range []struct {
		name  string
		path  func(t *testing.T) string
		want  ConnectState
		first string // part of FirstByte
		ttrpc bool
		// mute is a server of which no whole answer comes until end ends the context.
		mute func(c net.Conn, end func())
	}{
		{name: "missing", path: socketPath, want: ConnectMissing},
		{name: "directory", path: func(t *testing.T) string { return t.TempDir() }, want: ConnectNotSocket},
		{name: "TCP", path: func(*testing.T) string { return "tcp://127.0.0.1:1" }, want: ConnectFailed},
		{
			name: "refused", want: ConnectRefused,
			path: func(t *testing.T) string {
				path := socketPath(t)
				if err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0); err != nil {
					t.Fatal(err)
				}
				return path
			},
		},
		{name: "backlogged", path: backlogged, want: ConnectBacklogged},
		{
			name: "silent", want: ConnectSilent,
			mute: func(c net.Conn, end func()) { hello(c); end(); _, _ = io.Copy(io.Discard, c) },
		},
		{
			name: "HTTP/1", want: ConnectForeign, first: `"HTTP/1.1 400`,
			path: func(t *testing.T) string {
				return serve(t, func(c net.Conn) { hello(c); _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
			},
		},
		{
			name: "hangs up", want: ConnectForeign,
			path: func(t *testing.T) string { return serve(t, hello) },
		},
		{
			name: "half a frame", want: ConnectForeign, first: `"\x00\x00\x06\x04"`,
			mute: func(c net.Conn, end func()) {
				hello(c)
				_, _ = io.WriteString(c, "\x00\x00\x06\x04")
				drained(t, c)
				end()
				_, _ = io.Copy(io.Discard, c)
			},
		},
		{
			name: "another frame first", want: ConnectForeign, first: `"\x00\x00\b\a\x00`,
			path: func(t *testing.T) string {
				return serve(t, func(c net.Conn) {
					hello(c)
					_, _ = io.WriteString(c, "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
				})
			},
		},
		{
			name: "settings byte by byte", want: ConnectOK,
			path: func(t *testing.T) string {
				return serve(t, func(c net.Conn) {
					hello(c)
					for _, b := range []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00") {
						_, _ = c.Write([]byte{b})
					}
				})
			},
		},
		{
			name: "ttrpc", want: ConnectForeign, ttrpc: true,
			path: func(t *testing.T) string {
				path := serve(t, hello)
				if err := os.Rename(path, path+".ttrpc"); err != nil {
					t.Fatal(err)
				}
				return path + ".ttrpc"
			},
		},
		{
			name: "gRPC", want: ConnectOK,
			path: func(t *testing.T) string {
				path := socketPath(t)
				lis, err := net.Listen("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				s := grpc.NewServer()
				go func() { _ = s.Serve(lis) }()
				t.Cleanup(s.Stop)
				return path
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var path string
			if tc.mute != nil {
				d := newDue(t)
				end := sync.OnceFunc(d.end)
				ctx, path = d, serve(t, func(c net.Conn) { tc.mute(c, end) })
			} else {
				path = tc.path(t)
			}
			got := Probe(ctx, path)
			if got.State != tc.want || got.TTRPC != tc.ttrpc || !strings.Contains(got.FirstByte, tc.first) {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
			if (got.Err == "") != (tc.want == ConnectOK) {
				t.Errorf("state %s with error %q", got.State, got.Err)
			}
			connected := tc.want == ConnectOK || tc.want == ConnectSilent || tc.first != ""
			if connected && got.PeerPID != os.Getpid() {
				t.Errorf("peer is %d, want this process", got.PeerPID)
			}
		})
	}
}

func TestProbeInterrupted(t *testing.T) {
	greeted := make(chan struct{})
	path := serve(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2Hello)))
		close(greeted)
		_, _ = io.Copy(io.Discard, c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-greeted
		cancel()
	}()
	if got := Probe(ctx, path); got.State != ConnectCanceled {
		t.Errorf("got %+v", got)
	}
}

func TestProbeDenied(t *testing.T) {
	if !asNobody(t) {
		return
	}
	path := serve(t, nil)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if got := Probe(t.Context(), path); got.State != ConnectDenied {
		t.Errorf("got %+v", got)
	}
}
