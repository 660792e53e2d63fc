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
		want    Code
		err     string // part of Err
		elapsed time.Duration
	}{
		{name: "answered", server: version, want: OK},
		{name: "slow", server: slow(3*time.Second, version), want: OK, elapsed: 3 * time.Second},
		{name: "hung", server: hang, want: DeadlineExceeded, err: "deadline", elapsed: 5 * time.Second},
		{
			name: "command's deadline first", server: hang, parent: 2 * time.Second, want: Canceled, err: "deadline",
			elapsed: 2 * time.Second,
		},
		{name: "interrupted", server: hang, cancel: time.Second, want: Canceled, err: "canceled", elapsed: time.Second},
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
			name: "long error", server: fail(status.Error(codes.Internal, strings.Repeat("x", 5000))), want: Internal,
			err: strings.Repeat("x", 199) + "..." + strings.Repeat("x", 198),
		},
		{
			name: "garbage", want: Internal, err: "the answer could not be decoded",
			server: func(_ context.Context, _ []byte, send func([]byte) error) error {
				return send([]byte("\xff\xff\xff"))
			},
		},
		{name: "no answer at all", server: fail(nil), want: Internal},
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
					time.AfterFunc(tc.cancel, cancel)
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

func TestCalls(t *testing.T) {
	created := time.Unix(1767225600, 5)
	images := &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: "a"}, {Id: "b"}}}
	handlers := map[string]handler{}
	for method, m := range map[string]proto.Message{
		"Version": &runtimeapi.VersionResponse{
			RuntimeName: "containerd", RuntimeVersion: "v2",
			RuntimeApiVersion: "v1",
		},
		"Status": &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
			Conditions: []*runtimeapi.RuntimeCondition{{
				Type: "NetworkReady", Reason: "NetworkPluginNotReady",
				Message: "m",
			}},
		}},
		"PodSandboxStatus": &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u", Attempt: 2},
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: created.UnixNano(),
		}},
		"ContainerStatus": &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 4},
			State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: created.UnixNano(),
			FinishedAt: time.Time{}.UnixNano(), ExitCode: 137, Reason: "OOMKilled",
			Labels: map[string]string{LabelPodName: "p", LabelPodNamespace: "n", LabelPodUID: "u"},
		}},
		"ListImages":    images,
		"ImageFsInfo":   &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{}}},
		"ImageStatus":   &runtimeapi.ImageStatusResponse{Image: images.Images[0]},
		"RuntimeConfig": &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{}},
	} {
		handlers[method] = answer(t, m)
	}
	type answered struct {
		Answer any
		Object string
		Items  int
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{}, handlers)
		of := func(answer any, call Call) answered { return answered{answer, call.Object, call.Items} }
		got := []answered{
			of(c.Version(t.Context())), of(c.Status(t.Context())), of(c.PodSandboxStatus(t.Context(), "s")),
			of(c.ContainerStatus(t.Context(), "c")), of(c.HasImage(t.Context(), "i")), of(c.CgroupDriver(t.Context())),
			of(nil, c.ListImages(t.Context())), of(nil, c.ImageFsInfo(t.Context())),
		}
		pod := Pod{Namespace: "n", Name: "p", UID: "u"}
		want := []answered{
			{Answer: &Version{"containerd", "v2", "v1"}},
			{Answer: &Status{Conditions: []Condition{{"NetworkReady", false, "NetworkPluginNotReady", "m"}}}},
			{
				&PodSandbox{ID: "s", Pod: &pod, State: SandboxNotReady, CreatedAt: created.UnixNano(), Attempt: 2}, "s",
				0,
			},
			{&ContainerStatus{
				Container: Container{
					ID: "c", Name: "app", Pod: &pod, State: ContainerExited,
					CreatedAt: created.UnixNano(), Attempt: 4,
				},
				ExitCode: 137, Reason: "OOMKilled",
			}, "c", 0},
			{true, "i", 0},
			{Answer: "systemd"},
			{Items: 2},
			{Items: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestRequestsLookLikeTheKubelets compares requests byte by byte. The kubelet's lists have an empty filter, not none.
func TestRequestsLookLikeTheKubelets(t *testing.T) {
	want, got, handlers := map[string]string{}, map[string]string{}, map[string]handler{}
	for method, m := range map[string]proto.Message{
		"Version":          &runtimeapi.VersionRequest{Version: "0.1.0"},
		"ContainerStatus":  &runtimeapi.ContainerStatusRequest{ContainerId: "c"},
		"PodSandboxStatus": &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "s"},
		"ListContainers":   &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{}},
		"ListPodSandbox":   &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{}},
	} {
		want[method] = string(mustMarshal(t, m))
		handlers[method] = func(_ context.Context, req []byte, send func([]byte) error) error {
			got[method] = string(req)
			return send(nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{}, handlers)
		c.Version(t.Context())
		c.ContainerStatus(t.Context(), "c")
		c.PodSandboxStatus(t.Context(), "s")
		c.ListContainers(t.Context(), Filter{}, ModeUnary)
		c.ListPodSandbox(t.Context(), Filter{}, ModeUnary)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kubelet +kdiag):\n%s", diff)
	}
}

func TestRefusedSize(t *testing.T) {
	for text, want := range map[string]int{
		"trying to send message larger than max (20971520 vs. 16777216)": 20971520,
		"grpc: received message larger than max (20971521 vs. 16777216)": 20971521,
		"larger than max (x vs. 5)":                                      0,
		"larger than max (99999999999999999999 vs. 16)":                  0,
		"too many requests": 0,
	} {
		if size, ok := refusedSize(text); ok != (want != 0) || ok && size != want {
			t.Errorf("%q: got %d, %t", text, size, ok)
		}
	}
}
