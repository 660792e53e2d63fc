package crictl

import (
	gocmp "cmp"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func unimplemented(method string) error {
	return status.Error(codes.Unimplemented, "unknown method "+method)
}

func TestCallOutcomes(t *testing.T) {
	version := answer(t, &runtimeapi.VersionResponse{RuntimeName: "containerd"})
	for _, tc := range []struct {
		name    string
		server  handler
		parent  time.Duration // deadline of the command; 0 for one much later
		cancel  time.Duration // when the command is interrupted; 0 for never
		close   bool          // the client is closed then instead
		want    Code
		err     string // part of Err
		elapsed time.Duration
	}{
		{name: "slow", server: slow(3*time.Second, version), want: OK, elapsed: 3 * time.Second},
		{name: "hung", server: hang, want: DeadlineExceeded, err: "deadline", elapsed: 5 * time.Second},
		{
			name: "command's deadline first", server: hang, parent: 2 * time.Second, want: Canceled, err: "deadline",
			elapsed: 2 * time.Second,
		},
		{name: "interrupted", server: hang, cancel: time.Second, want: Canceled, err: "canceled", elapsed: time.Second},
		{name: "closed", server: hang, cancel: time.Second, close: true, want: Canceled, elapsed: time.Second},
		{
			name:   "deadline of something behind the runtime",
			server: slow(time.Second, fail(status.Error(codes.DeadlineExceeded, "shim: no answer"))),
			want:   Unknown, err: "the runtime answered DeadlineExceeded: shim: no answer", elapsed: time.Second,
		},
		{
			name: "our deadline, reported by the runtime a moment early",
			server: slow(4900*time.Millisecond,
				fail(status.Error(codes.DeadlineExceeded, "context deadline exceeded"))),
			want: DeadlineExceeded, err: "context deadline", elapsed: 4900 * time.Millisecond,
		},
		{
			name: "canceled by the runtime", server: fail(status.Error(codes.Canceled, "ctx")), want: Unknown,
			err: "the runtime answered Canceled: ctx",
		},
		{name: "not CRI", server: fail(unimplemented("x")), want: Unimplemented, err: "unknown method"},
		{
			name: "control characters", server: fail(status.Error(codes.Internal, "a\x1b[2Jb\nc")), want: Internal,
			err: `a\x1b[2Jb\nc`,
		},
		{
			name: "long error", server: fail(status.Error(codes.Internal, strings.Repeat("ä", 5000))), want: Internal,
			err: strings.Repeat("ä", 99) + "..." + strings.Repeat("ä", 99),
		},
		{
			name: "garbage", want: Internal, err: "the answer could not be decoded",
			server: func(_ context.Context, _ []byte, send func([]byte) error) error {
				return send([]byte("\xff\xff\xff"))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late []time.Duration
				start := time.Now()
				c := newClient(t, Options{Late: func() { late = append(late, time.Since(start)) }},
					map[string]handler{"Version": tc.server})
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
				c, err := Dial("/run/x.sock", Options{
					RPCTimeout: time.Second,
					Dialer: func(ctx context.Context, p string) (net.Conn, error) {
						if p != "/run/x.sock" {
							t.Errorf("dialled %q", p)
						}
						return tc.dial(ctx, p)
					},
				})
				must(t, err)
				for range 3 { // the second and third call meet a connection in the making, or one that is backing off
					_, call := c.Version(t.Context())
					if call.Code != tc.want || !strings.Contains(call.Err, tc.err) || call.Elapsed != tc.elapsed {
						t.Errorf("got %+v", call)
					}
				}
				_ = c.Close()
			})
		})
	}
}

func TestReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := map[string]handler{"Version": answer(t, &runtimeapi.VersionResponse{RuntimeName: "x"})}
		var down atomic.Bool
		down.Store(true)
		c := newClient(t, Options{}, server)
		dial := c.dial
		c.dial = func(ctx context.Context, p string) (net.Conn, error) {
			if down.Load() {
				return nil, unix.ECONNREFUSED
			}
			return dial(ctx, p)
		}
		// Long enough for the pauses to have grown to their largest.
		for range 20 {
			if _, call := c.Version(t.Context()); call.Code != Unavailable || !strings.Contains(call.Err, "refused") {
				t.Errorf("got %+v", call)
			}
			time.Sleep(time.Second / 4)
		}
		down.Store(false)
		time.Sleep(time.Second)
		if _, call := c.Version(t.Context()); !call.OK() {
			t.Errorf("a second after the runtime came back: %+v", call)
		}
	})
}

// TestCalls compares each request byte by byte with the kubelet's, and what is kept of the answer. The kubelet's lists
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
			c := newClient(t, Options{RPCTimeout: time.Minute}, map[string]handler{
				tt.method: func(ctx context.Context, req []byte, send func([]byte) error) error {
					if diff := cmp.Diff(string(mustMarshal(t, tt.request)), string(req)); diff != "" {
						t.Errorf("request (-kubelet +kdiag):\n%s", diff)
					}
					return answer(t, tt.respond)(ctx, req, send)
				},
			})
			if diff := cmp.Diff(tt.want, tt.call(c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedSize(t *testing.T) {
	for text, want := range map[string]int{
		"grpc: received message larger than max (20971521 vs. 16777216)": 20971521,
		"larger than max (x vs. 5)":                                      0,
		"larger than max (99999999999999999999 vs. 16)":                  0,
	} {
		if size, ok := refusedSize(text); ok != (want != 0) || ok && size != want {
			t.Errorf("%q: got %d, %t", text, size, ok)
		}
	}
}
