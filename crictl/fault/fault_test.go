package fault

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// TestObjects selects containers, also those that no earlier call named, and one by an abbreviated id.
func TestObjects(t *testing.T) {
	backend := runtime(t)
	proxy := idOf(t, backend, "shop", "proxy")
	ids := []string{idOf(t, backend, "shop", "app"), idOf(t, backend, "ledger", "app"), proxy, proxy[:12], "nobody"}
	for _, test := range []struct {
		name   string
		object fake.Object
		want   string // an x for each of ids that fails
	}{
		{"pod", fake.Object{Pod: "sh*"}, "x-xx-"},
		{"pod and container", fake.Object{Pod: "shop", Container: "app"}, "x----"},
		{"container", fake.Object{Container: "proxy"}, "--xx-"},
		{"namespace", fake.Object{Namespace: "pay"}, "-x---"},
		{"id", fake.Object{ID: proxy}, "--x--"},
		{"id pattern", fake.Object{ID: "no*"}, "----x"},
		{"sandbox", fake.Object{Sandbox: true}, "-----"},
	} {
		f := start(t, backend, fake.Fault{RPC: "ContainerStatus", Error: "Aborted: x", Object: test.object})
		got := ""
		for _, id := range ids {
			if f.status(t, id) == codes.Aborted {
				got += "x"
			} else {
				got += "-"
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestNewObjects makes a pod through the proxy: faults select it by its names, before it exists and after.
func TestNewObjects(t *testing.T) {
	f := start(t, runtime(t),
		fake.Fault{RPC: "CreateContainer", Error: "Aborted", Object: fake.Object{Pod: "new", Container: "bad"}},
		fake.Fault{RPC: "StartContainer", Error: "DataLoss", Object: fake.Object{Pod: "new", Container: "good"}},
		fake.Fault{
			RPC: "StopPodSandbox", Error: "OutOfRange", Object: fake.Object{Pod: "new", Sandbox: true},
			First: 1,
		},
		fake.Fault{RPC: "RunPodSandbox", Error: "NotFound", Object: fake.Object{Namespace: "worst"}},
	)
	pod := func(namespace string) *runtimeapi.RunPodSandboxRequest {
		return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "new", Namespace: namespace, Uid: "u"},
		}}
	}
	sandbox, err := f.RunPodSandbox(t.Context(), pod("best"))
	must(t, err)
	container := func(name string) *runtimeapi.CreateContainerRequest {
		return &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: name},
				Image:    &runtimeapi.ImageSpec{Image: "docker.io/library/app:1"},
			},
		}
	}
	made, err := f.CreateContainer(t.Context(), container("good"))
	must(t, err)
	got := []codes.Code{
		codeOf(t.Context(), f.RunPodSandbox, pod("worst")),
		codeOf(t.Context(), f.CreateContainer, container("bad")),
		codeOf(t.Context(), f.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}),
		codeOf(t.Context(), f.StopPodSandbox,
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()}),
	}
	if diff := cmp.Diff([]codes.Code{codes.NotFound, codes.Aborted, codes.DataLoss, codes.OutOfRange},
		got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if got, want := f.Stats()["RunPodSandbox"], (Count{Calls: 2, Faulted: 1}); got != want {
		t.Errorf("stats: %+v, want %+v", got, want)
	}
}

// TestAnswers makes an answer larger than a kubelet takes, or not quite, and a list that takes an hour for each item.
func TestAnswers(t *testing.T) {
	backend := runtime(t)
	id := idOf(t, backend, "shop", "proxy")
	for size, want := range map[int]codes.Code{17 << 20: codes.ResourceExhausted, 15 << 20: codes.OK} {
		f := start(t, backend, fake.Fault{RPC: "ContainerStatus", Oversize: size})
		if got := f.status(t, id); got != want || f.version(t) != codes.OK {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
	f := start(t, backend)
	must(t, f.SetFaults(nil, []fake.Latency{{RPC: "ListContainers", PerItem: fake.Duration(time.Hour)}}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := codeOf(ctx, f.ListContainers, &runtimeapi.ListContainersRequest{}); got != codes.DeadlineExceeded {
		t.Errorf("a slow list: %s", got)
	}
}

// TestDropCutsTheConnection drops a call, which the runtime has served: other calls on the connection end too.
func TestDropCutsTheConnection(t *testing.T) {
	backend := runtime(t)
	id := idOf(t, backend, "shop", "proxy")
	f := start(t, backend, fake.Fault{RPC: "StopContainer", Drop: true})
	events, err := f.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil || f.version(t) != codes.OK {
		t.Fatal(err)
	}
	stop := &runtimeapi.StopContainerRequest{ContainerId: id}
	if got := codeOf(t.Context(), f.StopContainer, stop); got != codes.Unavailable {
		t.Errorf("StopContainer: %v", got)
	}
	for err == nil {
		_, err = events.Recv() // that the container stopped, perhaps
	}
	if errors.Is(err, io.EOF) || status.Code(err) != codes.Unavailable {
		t.Errorf("the stream of events: %v", err)
	}
	answer, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id},
		grpc.WaitForReady(true))
	if err != nil || answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("the container: %v, %v", answer.GetStatus().GetState(), err)
	}
}

// TestSetFaults replaces the faults, or ends the proxy, while a call hangs: it goes on, or meets the new fault.
func TestSetFaults(t *testing.T) {
	f := start(t, runtime(t))
	set := func(faults ...fake.Fault) error { return f.SetFaults(faults, nil) }
	for _, test := range []struct {
		change func() error
		want   codes.Code
	}{
		{func() error { return set() }, codes.OK},
		{func() error { return set(fake.Fault{RPC: "Version", Error: "DataLoss: gone"}) }, codes.DataLoss},
		{func() error { f.stop(); return f.SetDown(true) }, codes.Unavailable},
	} {
		must(t, set(fake.Fault{RPC: "*", Hang: true}))
		if err := set(fake.Fault{RPC: "Nobody", Hang: true}); err == nil {
			t.Error("a fault of no RPC is taken")
		}
		got := make(chan codes.Code, 1)
		go func() { got <- f.version(t) }()
		if diff := cmp.Diff(Injection{RPC: "Version"}, <-f.injected); diff != "" {
			t.Errorf("injection (-want +got):\n%s", diff)
		}
		if err := test.change(); err != nil {
			t.Error(err)
		}
		if code := <-got; code != test.want {
			t.Errorf("the call that hung: %s, want %s", code, test.want)
		}
		for test.want == codes.DataLoss && len(f.injected) > 0 {
			<-f.injected
		}
	}
	if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// TestSetDown takes a proxy down with a call in flight: it refuses connections, and comes back on the same path.
func TestSetDown(t *testing.T) {
	f := start(t, runtime(t))
	must(t, f.SetFaults([]fake.Fault{{RPC: "Status", Hang: true}}, nil))
	hung := make(chan codes.Code, 1)
	go func() { hung <- codeOf(t.Context(), f.Status, &runtimeapi.StatusRequest{}) }()
	<-f.injected
	must(t, errors.Join(f.SetDown(true), f.SetDown(true)))
	if got := <-hung; got != codes.Unavailable {
		t.Errorf("a call when it goes down: %v", got)
	}
	var d net.Dialer
	if _, err := d.DialContext(t.Context(), "unix", f.path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting: %v", err)
	}
	must(t, f.SetDown(false))
	if _, err := f.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
