package crictl

import (
	gocmp "cmp"
	"context"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
)

// newClient returns a client of a runtime in this process.
func newClient(t *testing.T, opts Options, s fake.Scenario) *Client {
	t.Helper()
	opts.Dialer = faketest.Serve(t, s)
	c, err := Dial("/run/fake.sock", opts)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCallOutcomes(t *testing.T) {
	const s = fake.Duration(time.Second)
	for _, tc := range []struct {
		name    string
		fault   fake.Fault    // of Version
		parent  time.Duration // deadline of the command; 0 for one much later
		cancel  time.Duration // when the command is interrupted; 0 for never
		close   bool          // the client is closed then instead
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
		{
			name: "interrupted", fault: fake.Fault{Hang: true}, cancel: time.Second, want: Canceled, err: "canceled",
			elapsed: time.Second,
		},
		{
			name: "closed", fault: fake.Fault{Hang: true}, cancel: time.Second, close: true, want: Canceled,
			elapsed: time.Second,
		},
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
			name: "canceled by the runtime", fault: fake.Fault{Error: "Canceled: ctx"}, want: Unknown,
			err: "the runtime answered Canceled: ctx",
		},
		{name: "not CRI", fault: fake.Fault{Error: "Unimplemented: none"}, want: Unimplemented, err: "none"},
		{
			name: "control characters", fault: fake.Fault{Error: "Internal: a\x1b[2Jb\nc"}, want: Internal,
			err: `a\x1b[2Jb\nc`,
		},
		{
			name: "long error", fault: fake.Fault{Error: "Internal: " + strings.Repeat("ä", 5000)}, want: Internal,
			err: strings.Repeat("ä", 99) + "..." + strings.Repeat("ä", 99),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late []time.Duration
				start := time.Now()
				tc.fault.RPC = "Version"
				c := newClient(t, Options{Late: func() { late = append(late, time.Since(start)) }},
					fake.Scenario{Faults: []fake.Fault{tc.fault}})
				ctx, cancel := context.WithTimeout(t.Context(), gocmp.Or(tc.parent, time.Hour))
				defer cancel()
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, func() {
						if tc.close {
							_ = c.Close()
						} else {
							cancel()
						}
					})
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Options{RPCTimeout: time.Second}, fake.Scenario{})
				var back atomic.Bool
				returned := c.dial
				c.dial = func(ctx context.Context, p string) (net.Conn, error) {
					if p != "/run/fake.sock" {
						t.Errorf("dialled %q", p)
					}
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
		})
	}
}

// TestCalls compares each request byte by byte with the kubelet's, and the kept part of the answer. The kubelet's lists
// have an empty filter, not none.
func TestCalls(t *testing.T) {
	type kept struct {
		Answer any
		Object string
		Items  int
	}
	of := func(answer any, call Call) kept { return kept{answer, call.Object, call.Items} }
	ctx, pod, created := t.Context(), Pod{Namespace: "n", Name: "p", UID: "u"}, time.Unix(1767225600, 5).UnixNano()
	for _, tt := range []struct {
		method           string
		call             func(c *Client) kept
		request, respond proto.Message
		want             kept
	}{
		{
			"Version", func(c *Client) kept { return of(c.Version(ctx)) }, &runtimeapi.VersionRequest{Version: "0.1.0"},
			&runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2", RuntimeApiVersion: "v1"},
			kept{Answer: &Version{"containerd", "v2", "v1"}},
		},
		{
			"Status", func(c *Client) kept { return of(c.Status(ctx)) }, &runtimeapi.StatusRequest{},
			&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
				Conditions: []*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Reason: "NoCNI", Message: "m"}},
			}},
			kept{Answer: &Status{Conditions: []Condition{{"NetworkReady", false, "NoCNI", "m"}}}},
		},
		{
			"PodSandboxStatus", func(c *Client) kept { return of(c.PodSandboxStatus(ctx, "s")) },
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: "s"},
			&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
				Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u", Attempt: 2},
				State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: created,
			}},
			kept{&PodSandbox{ID: "s", Pod: &pod, State: SandboxNotReady, CreatedAt: created, Attempt: 2}, "s", 0},
		},
		{
			"ContainerStatus", func(c *Client) kept { return of(c.ContainerStatus(ctx, "c")) },
			&runtimeapi.ContainerStatusRequest{ContainerId: "c"},
			&runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 4},
				State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: created,
				FinishedAt: time.Time{}.UnixNano(), ExitCode: 137, Reason: "OOMKilled",
				Labels: map[string]string{LabelPodName: "p", LabelPodNamespace: "n", LabelPodUID: "u"},
			}},
			kept{&ContainerStatus{
				Container: Container{
					ID: "c", Name: "app", Pod: &pod, State: ContainerExited, CreatedAt: created, Attempt: 4,
				},
				ExitCode: 137, Reason: "OOMKilled",
			}, "c", 0},
		},
		{
			"ListImages", func(c *Client) kept { return of(nil, c.ListImages(ctx)) }, &runtimeapi.ListImagesRequest{},
			&runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: "a"}, {Id: "b"}}},
			kept{Items: 2},
		},
		{
			"ImageFsInfo", func(c *Client) kept { return of(nil, c.ImageFsInfo(ctx)) }, &runtimeapi.ImageFsInfoRequest{},
			&runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{}}},
			kept{Items: 1},
		},
		{
			"RuntimeConfig", func(c *Client) kept { return of(c.CgroupDriver(ctx)) },
			&runtimeapi.RuntimeConfigRequest{},
			&runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{}},
			kept{Answer: "systemd"},
		},
		{
			"ListContainers", func(c *Client) kept {
				return of(nil, c.ListContainers(ctx, Filter{}, ModeUnary).Calls[0])
			},
			&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{}},
			&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c"}}},
			kept{Items: 1},
		},
		{
			"ListPodSandbox", func(c *Client) kept {
				return of(nil, c.ListPodSandbox(ctx, Filter{}, ModeUnary).Calls[0])
			},
			&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{}},
			&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s"}}},
			kept{Items: 1},
		},
	} {
		t.Run(tt.method, func(t *testing.T) {
			c := answering(t, tt.method, func(req []byte) []byte {
				if diff := cmp.Diff(string(mustMarshal(t, tt.request)), string(req)); diff != "" {
					t.Errorf("request (-kubelet +kdiag):\n%s", diff)
				}
				return mustMarshal(t, tt.respond)
			})
			if diff := cmp.Diff(tt.want, tt.call(c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	_, call := answering(t, "Version", func([]byte) []byte { return []byte("\xff\xff\xff") }).Version(ctx)
	if call.Code != Internal || !strings.HasPrefix(call.Err, "the answer could not be decoded") {
		t.Errorf("garbage: %+v", call)
	}
}

// answering returns a client of a real gRPC server that answers one method, by the bytes of its request.
func answering(t *testing.T, method string, answer func(req []byte) []byte) *Client {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(
		func(_ any, s grpc.ServerStream) error {
			var message []byte
			full, _ := grpc.MethodFromServerStream(s)
			if err := s.RecvMsg(&message); err != nil || path.Base(full) != method {
				return status.Error(codes.Unimplemented, full)
			}
			message = answer(message)
			return s.SendMsg(&message)
		}))
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
	c, err := Dial("/run/test.sock", Options{RPCTimeout: time.Minute, Dialer: dial})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// rawCodec lets a server send bytes that are no message at all.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
