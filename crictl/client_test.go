package crictl

import (
	gocmp "cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// newClient returns a client of a runtime in this process.
func newClient(t *testing.T, opts Options, s fake.Scenario) *Client {
	t.Helper()
	opts.Dialer = faketest.Serve(t, s)
	c, err := Dial("/run/fake.sock", opts)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCallOutcomes(t *testing.T) {
	const s = fake.Duration(time.Second)
	for _, tc := range []struct {
		name    string
		fault   fake.Fault    // of Version
		parent  time.Duration // deadline of the command; 0 for one much later
		want    Code
		err     string // part of Err
		elapsed time.Duration
	}{
		{name: "slow", fault: fake.Fault{Delay: 3 * s}, want: OK, elapsed: 3 * time.Second},
		{name: "hung", fault: fake.Fault{Hang: true}, want: DeadlineExceeded, err: "deadline", elapsed: 5 * time.Second},
		{
			name: "command's deadline first", fault: fake.Fault{Hang: true}, parent: 2 * time.Second, want: Canceled,
			err: "deadline", elapsed: 2 * time.Second,
		},
		{name: "interrupted", fault: fake.Fault{Hang: true}, want: Canceled, err: "canceled", elapsed: time.Second},
		{
			name:  "deadline of something behind the runtime",
			fault: fake.Fault{Delay: s, Error: "DeadlineExceeded: shim: no answer"},
			want:  Unknown, err: "the runtime answered DeadlineExceeded: shim: no answer", elapsed: time.Second,
		},
		{
			name:  "our deadline, reported by the runtime a moment early",
			fault: fake.Fault{Delay: 49 * s / 10, Error: "DeadlineExceeded: context deadline exceeded"},
			want:  DeadlineExceeded, err: "context deadline", elapsed: 4900 * time.Millisecond,
		},
		{
			name: "control characters, long", fault: fake.Fault{Error: "Internal: a\x1b\n" + strings.Repeat("ä", 5000)},
			want: Internal, err: `a\x1b\n` + strings.Repeat("ä", 99),
		},
	} {
		testkit.Bubble(t, tc.name, func(t *testing.T) {
			var late []time.Duration
			start := time.Now()
			tc.fault.RPC = "Version"
			c := newClient(t, Options{Late: func() { late = append(late, time.Since(start)) }},
				fake.Scenario{Faults: []fake.Fault{tc.fault}})
			ctx, cancel := context.WithTimeout(t.Context(), gocmp.Or(tc.parent, time.Hour))
			defer cancel()
			if tc.name == "interrupted" {
				time.AfterFunc(time.Second, cancel)
			}
			v, call := c.Version(ctx)
			synctest.Wait()
			if want := 5 * time.Second / 2; tc.elapsed > want != slices.Equal(late, []time.Duration{want}) {
				t.Errorf("it was late at %v", late)
			}
			if call.Method != "Version" || !call.Start.Equal(start) || call.Elapsed != tc.elapsed {
				t.Errorf("got %+v, want it to take %v", call, tc.elapsed)
			}
			if call.Code != tc.want || !strings.Contains(call.Err, tc.err) ||
				call.Hung() != (tc.want == DeadlineExceeded) {
				t.Errorf("got %+v, want %s %q", call, tc.want, tc.err)
			}
			if (v != nil) != call.OK() || (call.Err == "") != call.OK() {
				t.Errorf("version %v with %+v", v, call)
			}
		})
	}
}

// TestDialOutcomes calls a runtime that cannot be reached until the pauses between connections have grown to their
// largest. Within a second of its return it answers, unless a connection waits for its first frame.
func TestDialOutcomes(t *testing.T) {
	fails := func(errno unix.Errno) Dialer {
		return func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: errno}
		}
	}
	silent := func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		return here, nil
	}
	for _, tc := range []struct {
		name    string
		dial    Dialer
		want    Code
		err     string
		elapsed time.Duration
	}{
		{"refused", fails(unix.ECONNREFUSED), Unavailable, "connection refused", 0},
		{"backlogged", fails(unix.EAGAIN), DeadlineExceeded, "deadline", time.Second},
		{"accepts and sends nothing", silent, DeadlineExceeded, "deadline", time.Second},
	} {
		testkit.Bubble(t, tc.name, func(t *testing.T) {
			c := newClient(t, Options{RPCTimeout: time.Second}, fake.Scenario{})
			var back atomic.Bool
			returned := c.dial
			c.dial = func(ctx context.Context, p string) (net.Conn, error) {
				if back.Load() {
					return returned(ctx, p)
				}
				return tc.dial(ctx, p)
			}
			for range 20 {
				_, call := c.Version(t.Context())
				if call.Code != tc.want || !strings.Contains(call.Err, tc.err) || call.Elapsed != tc.elapsed {
					t.Errorf("got %+v", call)
				}
				time.Sleep(time.Second / 4)
			}
			back.Store(true)
			time.Sleep(time.Second)
			if _, call := c.Version(t.Context()); call.OK() != (tc.name != "accepts and sends nothing") {
				t.Errorf("a second after the runtime came back: %+v", call)
			}
		})
	}
}

// TestFollow has a call that hangs end when another process listens, and not before. The next call is answered.
func TestFollow(t *testing.T) {
	began := make(chan bool, 1)
	path := faketest.Listen(t, fake.Scenario{Name: "test", Faults: []fake.Fault{{RPC: "Version", Hang: true}}},
		func(string, string) func() {
			began <- true
			return func() {}
		})
	c, err := Dial(path, Options{})
	testkit.Must(t, err)
	defer c.Close()
	c.Follow(1) // there is no connection yet
	ended := make(chan Call, 1)
	go func() {
		_, call := c.WithTimeout(time.Hour).Version(t.Context())
		ended <- call
	}()
	<-began
	c.Follow(os.Getpid())
	if _, call := c.Status(t.Context()); !call.OK() || len(ended) > 0 {
		t.Errorf("the connection to the process that listens was cut: %+v", call)
	}
	<-began
	c.Follow(os.Getpid() + 1)
	testkit.Equal(t, "a call to a process that no longer listens", Unavailable, (<-ended).Code)
	_, call := c.Status(t.Context())
	testkit.Equal(t, "the call after it", OK, call.Code)
}

// serveNode serves ten pods, each with a running container, ten exited ones and eight dead sandboxes, and returns a
// client. Its lists of containers and of sandboxes have about 85 and 50 KB.
func serveNode(t *testing.T, streaming bool, limit int, faults ...fake.Fault) *Client {
	t.Helper()
	return newClient(t, Options{}, fake.Scenario{
		Streaming: streaming, Limits: fake.MessageLimits{Send: limit}, Faults: faults,
		Pods: []fake.PodGroup{
			{Name: "web", Count: 10, DeadBefore: 8, Containers: []fake.ContainerGroup{{Name: "app", Exited: 10}}},
		},
	})
}

func TestListContainers(t *testing.T) {
	const refused = "ResourceExhausted: grpc: trying to send message larger than max (900 vs. 16)"
	for _, tc := range []struct {
		name      string
		streaming bool
		limit     int // of the server's messages, in bytes; 0 for 16 MiB
		faults    []fake.Fault
		want      ListMode
		calls     []string // nil is not compared
		again     []string // of a second list by the same client
		partial   bool
		items     int // in a partial list
	}{
		{name: "streams", streaming: true, want: ModeStream, calls: []string{"StreamContainers OK"}},
		{
			name: "falls back and remembers", want: ModeUnary,
			calls: []string{"StreamContainers Unimplemented", "ListContainers OK"},
			again: []string{"ListContainers OK"},
		},
		{name: "one state of the node is too large", limit: 20 << 10, want: ModeFiltered},
		{name: "one state of a pod is too large", limit: 5 << 10, want: ModeFiltered, partial: true, items: 10},
		{
			name: "hung", streaming: true, faults: []fake.Fault{{RPC: "StreamContainers", Hang: true}},
			want: ModeStream, calls: []string{"StreamContainers DeadlineExceeded"}, partial: true,
		},
		{
			name: "a runtime that hangs is not asked further", want: ModeFiltered, partial: true,
			faults: []fake.Fault{
				{RPC: "ListContainers", Error: refused, First: 1}, {RPC: "ListContainers", Hang: true},
			},
			calls: []string{
				"StreamContainers Unimplemented", "ListContainers ResourceExhausted", "ListContainers DeadlineExceeded",
			},
		},
	} {
		testkit.Bubble(t, tc.name, func(t *testing.T) {
			whole := serveNode(t, false, 0).ListContainers(t.Context(), Filter{}, ModeUnary)
			c := serveNode(t, tc.streaming, tc.limit, tc.faults...)
			for i, calls := range [][]string{tc.calls, tc.again} {
				if i > 0 && calls == nil {
					break
				}
				list := c.ListContainers(t.Context(), Filter{}, "")
				if list.Mode != tc.want || list.Complete == tc.partial {
					t.Errorf("mode %s, complete %t; want %s, %t", list.Mode, list.Complete, tc.want, !tc.partial)
				}
				var made []string
				for _, call := range list.Calls {
					made = append(made, fmt.Sprintf("%s %s", call.Method, call.Code))
				}
				if calls != nil {
					testkit.Equal(t, "calls", calls, made)
				}
				byID := cmpopts.SortSlices(func(a, b Container) bool { return a.ID < b.ID })
				if tc.partial {
					testkit.Equal(t, "containers", tc.items, len(list.Containers))
				} else {
					testkit.Equal(t, "containers", whole.Containers, list.Containers, byID)
				}
				if (!tc.partial || tc.limit > 0) && list.Bytes != whole.Calls[0].Bytes {
					t.Errorf("%d bytes, want %d", list.Bytes, whole.Calls[0].Bytes)
				}
			}
		})
	}
}

// TestListSandboxesByPod lists sandboxes of which one message does not hold all dead ones. Pods that neither a
// container nor a ready sandbox names are missed, which the size shows.
func TestListSandboxesByPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := serveNode(t, false, 0).ListPodSandbox(t.Context(), Filter{}, "")
		c := serveNode(t, false, 15<<10)
		list := c.ListPodSandbox(t.Context(), Filter{}, "")
		if list.Mode != ModeFiltered || !list.Complete || list.Bytes != whole.Bytes || len(list.Sandboxes) != 90 {
			t.Errorf("mode %s, complete %t, %d bytes of %d, %d sandboxes of %d",
				list.Mode, list.Complete, list.Bytes, whole.Bytes, len(list.Sandboxes), len(whole.Sandboxes))
		}
		for i := range list.Sandboxes {
			if s := &list.Sandboxes[i]; s.State == SandboxReady {
				c.RemovePodSandbox(t.Context(), s.ID) // and its containers
			}
		}
		if list := c.ListPodSandbox(t.Context(), Filter{}, ""); list.Complete {
			t.Error("a list without the orphans is called complete")
		}
	})
}

// backlogged is a listener whose queue is full and that accepts nothing.
func backlogged(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	testkit.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	testkit.Must(t, unix.Listen(fd, 0))
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
	// says answers HTTP/2's hello with a text, and hangs up.
	says := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "s")
		lis, err := net.Listen("unix", path)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = lis.Close() })
		go func() {
			for conn, err := lis.Accept(); err == nil; conn, err = lis.Accept() {
				_, _ = io.ReadFull(conn, make([]byte, len(http2Hello)))
				_, _ = io.WriteString(conn, text)
				_ = conn.Close()
			}
		}()
		return path
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
		{"HTTP/1", func(t *testing.T) string {
			return says(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}, ConnectForeign, `"HTTP/1.1 400`},
		{"ttrpc", func(t *testing.T) string {
			path := says(t, "")
			testkit.Must(t, os.Rename(path, path+".ttrpc"))
			return path + ".ttrpc"
		}, ConnectForeign, ""},
		{"gRPC", func(t *testing.T) string {
			return faketest.Listen(t, fake.Scenario{Name: "x"}, nil)
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
		testkit.Bubble(t, tc.name, func(t *testing.T) {
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
	}
}
