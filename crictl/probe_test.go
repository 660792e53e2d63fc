package crictl

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/fake"
)

// serve accepts connections at a new socket and hands each to do. It ends with the test.
func serve(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
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
	path := filepath.Join(t.TempDir(), "s")
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
	for _, tc := range []struct {
		name  string
		path  func(t *testing.T) string
		want  ConnectState
		first string // part of FirstByte
	}{
		{"missing", func(t *testing.T) string { return t.TempDir() + "/s" }, ConnectMissing, ""},
		{"directory", func(t *testing.T) string { return t.TempDir() }, ConnectNotSocket, ""},
		{"refused", func(t *testing.T) string { return host{"s": "socket"}.root(t) + "/s" }, ConnectRefused, ""},
		{"backlogged", backlogged, ConnectBacklogged, ""},
		{"HTTP/1", says("HTTP/1.1 400 Bad Request\r\n\r\n"), ConnectForeign, `"HTTP/1.1 400`},
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
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if tc.interrupted {
					time.AfterFunc(time.Second, cancel)
				}
				got := Dialer(func(context.Context, string) (net.Conn, error) {
					here, there := net.Pipe()
					go func() {
						_, _ = io.ReadFull(there, make([]byte, len(http2Hello)))
						_, _ = io.WriteString(there, tc.says)
						_, _ = io.Copy(io.Discard, there)
					}()
					return here, nil
				}).Probe(ctx, "/run/x.sock")
				if got.State != tc.want || tc.says != "" && got.FirstByte != strconv.QuoteToASCII(tc.says) {
					t.Errorf("got %+v, want %s", got, tc.want)
				}
			})
		})
	}
}
