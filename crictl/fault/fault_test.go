package fault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// newProxy makes a proxy in front of nothing.
func newProxy(listen string) (*fault.Proxy, error) {
	return fault.New(fault.Config{Backend: "/nobody.sock", Listen: listen})
}

const (
	short = 50 * time.Millisecond // what a caller waits for an answer that must not come
)

// status asks for a container's status with a deadline that a healthy call never misses, or with a short one.
func (f *front) status(t *testing.T, id string, patience time.Duration) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := f.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return status.Code(err)
}

// version returns the code of a call of Version.
func (f *front) version(t *testing.T) codes.Code {
	t.Helper()
	_, err := f.Version(t.Context(), &runtimeapi.VersionRequest{})
	return status.Code(err)
}

// TestObjects: a fault strikes whom it names, also those of whom nothing has passed through yet, and an abbreviated id.
func TestObjects(t *testing.T) {
	backend := runtime(t, shop())
	apps := []string{idOf(t, backend, "shop", "app"), idOf(t, backend, "ledger", "app")}
	proxyID := idOf(t, backend, "shop", "proxy")
	tests := []struct {
		name   string
		object fake.Object
		want   []bool // struck: app of shop, app of ledger, proxy of shop, an unknown one
	}{
		{"pod", fake.Object{Pod: "sh*"}, []bool{true, false, true, false}},
		{"pod and container", fake.Object{Pod: "shop", Container: "app"}, []bool{true, false, false, false}},
		{"namespace", fake.Object{Namespace: "pay"}, []bool{false, true, false, false}},
		{"id", fake.Object{ID: proxyID}, []bool{false, false, true, false}},
		{"id pattern", fake.Object{ID: "no*"}, []bool{false, false, false, true}},
		{"sandbox", fake.Object{Sandbox: true}, []bool{false, false, false, false}},
		{"everything", fake.Object{}, []bool{true, true, true, true}},
	}
	for _, test := range tests {
		f := start(t, backend, fake.Fault{RPC: "ContainerStatus", Error: "Aborted: struck", Object: test.object})
		var got []bool
		for _, id := range []string{apps[0], apps[1], proxyID, "nobody"} {
			got = append(got, f.status(t, id, time.Minute) == codes.Aborted)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	f := start(
		t,
		backend,
		fake.Fault{RPC: "ContainerStatus", Error: "Aborted", Object: fake.Object{Container: "proxy"}},
	)
	if got := f.status(t, proxyID[:12], time.Minute); got != codes.Aborted {
		t.Errorf("by an abbreviated id: %s", got)
	}
}

// TestNewObjects: what is made through the proxy is known by its names, before and after.
func TestNewObjects(t *testing.T) {
	f := start(
		t,
		runtime(t, shop()),
		fake.Fault{RPC: "CreateContainer", Error: "Aborted", Object: fake.Object{Pod: "new", Container: "bad"}},
		fake.Fault{RPC: "StartContainer", Error: "DataLoss", Object: fake.Object{Pod: "new", Container: "good"}},
		fake.Fault{
			RPC:    "StopPodSandbox",
			Error:  "OutOfRange",
			Object: fake.Object{Pod: "new", Sandbox: true},
			First:  1,
		},
		fake.Fault{RPC: "RunPodSandbox", Error: "NotFound", Object: fake.Object{Namespace: "worst"}},
	)
	run := func(namespace string) (string, error) {
		answer, err := f.RunPodSandbox(
			t.Context(),
			&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "new", Namespace: namespace, Uid: "u"},
			}},
		)
		return answer.GetPodSandboxId(), err
	}
	if _, err := run("worst"); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	sandbox, err := run("best")
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) (string, error) {
		answer, err := f.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{
					Name: name,
				}, Image: &runtimeapi.ImageSpec{Image: "docker.io/library/app:1"},
			},
		})
		return answer.GetContainerId(), err
	}
	if _, err := create("bad"); status.Code(err) != codes.Aborted {
		t.Error(err)
	}
	id, err := create("good")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); status.Code(
		err,
	) != codes.DataLoss {
		t.Error(err)
	}
	if _, err := f.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); status.Code(
		err,
	) != codes.OutOfRange {
		t.Error(err)
	}
	want := map[string]fault.Count{
		"RunPodSandbox": {Calls: 2, Faulted: 1}, "CreateContainer": {Calls: 2, Faulted: 1},
		"StartContainer": {Calls: 1, Faulted: 1}, "StopPodSandbox": {Calls: 1, Faulted: 1},
	}
	if diff := cmp.Diff(want, f.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// TestDeeds: each kind of fault, seen by a caller.
func TestDeeds(t *testing.T) {
	backend := runtime(t, shop())
	id := idOf(t, backend, "shop", "proxy")
	for name, test := range map[string]struct {
		fault    fake.Fault
		patience time.Duration
		want     codes.Code
	}{
		"hang":     {fake.Fault{Hang: true}, short, codes.DeadlineExceeded},
		"thaw":     {fake.Fault{Hang: true, Thaw: true, Until: fake.Duration(short)}, time.Minute, codes.OK},
		"delay":    {fake.Fault{Delay: fake.Duration(time.Millisecond)}, time.Minute, codes.OK},
		"error":    {fake.Fault{Error: "Unavailable: not yet"}, time.Minute, codes.Unavailable},
		"drop":     {fake.Fault{Drop: true}, time.Minute, codes.Unavailable},
		"oversize": {fake.Fault{Oversize: 17 << 20}, time.Minute, codes.ResourceExhausted},
		"large":    {fake.Fault{Oversize: 15 << 20}, time.Minute, codes.OK},
	} {
		test.fault.RPC = "ContainerStatus"
		f := start(t, backend, test.fault)
		if got := f.status(t, id, test.patience); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if got := f.version(t); got != codes.OK {
			t.Errorf("%s: Version afterwards: %s", name, got)
		}
	}
}

// TestDropCutsTheConnection: other calls on it die too, and what was asked for has been done.
func TestDropCutsTheConnection(t *testing.T) {
	backend := runtime(t, shop())
	id := idOf(t, backend, "shop", "proxy")
	f := start(t, backend, fake.Fault{RPC: "StopContainer", Drop: true})
	events, err := f.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if f.version(t) != codes.OK {
		t.Fatal("no answer")
	}
	if _, err := f.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); status.Code(
		err,
	) != codes.Unavailable {
		t.Errorf("StopContainer: %v", err)
	}
	for err == nil {
		_, err = events.Recv() // that the container stopped, perhaps
	}
	if errors.Is(err, io.EOF) || status.Code(err) != codes.Unavailable {
		t.Errorf("the stream of events: %v", err)
	}
	answer, err := runtimeapi.NewRuntimeServiceClient(dial(t, backend)).ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil || answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("the container: %v, %v", answer.GetStatus().GetState(), err)
	}
}

// TestSetFaults: a call that hangs goes on when the fault is taken back, and is struck anew by another.
func TestSetFaults(t *testing.T) {
	struck := make(chan fault.Injection, 10)
	f := startWith(t, fault.Config{
		Backend: runtime(t, shop()), Faults: []fake.Fault{{
			RPC:  "*",
			Hang: true,
		}}, Log: func(s fault.Injection) { struck <- s },
	})
	for _, test := range []struct {
		faults []fake.Fault
		want   codes.Code
	}{
		{nil, codes.OK},
		{[]fake.Fault{{RPC: "Version", Error: "DataLoss: gone"}}, codes.DataLoss},
	} {
		if err := f.SetFaults([]fake.Fault{{RPC: "Nobody"}}, nil); err == nil {
			t.Error("a bad fault is taken")
		}
		if err := f.SetFaults([]fake.Fault{{RPC: "*", Hang: true}}, nil); err != nil {
			t.Fatal(err)
		}
		got := make(chan codes.Code, 1)
		go func() { got <- f.version(t) }()
		want := fault.Injection{RPC: "Version"}
		if diff := cmp.Diff(want, <-struck); diff != "" {
			t.Errorf("strike (-want +got):\n%s", diff)
		}
		if err := f.SetFaults(test.faults, nil); err != nil {
			t.Fatal(err)
		}
		if code := <-got; code != test.want {
			t.Errorf("the call that hung: %s, want %s", code, test.want)
		}
	}
}

// TestEndReleasesHungCalls: Run ends although a call hangs without a deadline.
func TestEndReleasesHungCalls(t *testing.T) {
	struck := make(chan fault.Injection, 1)
	f := startWith(t, fault.Config{
		Backend: runtime(t, shop()), Faults: []fake.Fault{{
			RPC:  "*",
			Hang: true,
		}}, Log: func(s fault.Injection) { struck <- s },
	})
	got := make(chan codes.Code, 1)
	go func() { got <- f.version(t) }()
	<-struck
	f.stop()
	if code := <-got; code != codes.Unavailable {
		t.Errorf("%s", code)
	}
	if err := f.SetDown(true); err != nil {
		t.Errorf("SetDown after the end: %v", err)
	}
}

func TestSetConditions(t *testing.T) {
	f := start(t, runtime(t, shop()))
	conditions := func() map[string]string {
		answer, err := f.Status(t.Context(), &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, c := range answer.GetStatus().GetConditions() {
			all[c.GetType()] = "false " + c.GetReason() + " " + c.GetMessage()
			if c.GetStatus() {
				all[c.GetType()] = "true"
			}
		}
		if !answer.GetFeatures().GetSupplementalGroupsPolicy() {
			t.Error("the rest of the answer is lost")
		}
		return all
	}
	healthy := map[string]string{"RuntimeReady": "true", "NetworkReady": "true"}
	if diff := cmp.Diff(healthy, conditions()); diff != "" {
		t.Error(diff)
	}
	f.SetConditions(
		[]fake.Condition{{Type: "NetworkReady", Reason: "CNI", Message: "gone"}, {Type: "Own", Status: true}},
	)
	if diff := cmp.Diff(map[string]string{"RuntimeReady": "true", "NetworkReady": "false CNI gone", "Own": "true"},
		conditions()); diff != "" {
		t.Error(diff)
	}
	f.SetConditions(nil)
	if diff := cmp.Diff(healthy, conditions()); diff != "" {
		t.Error(diff)
	}
}

// TestSetDown: what is down refuses connections, has cut those that it had, and comes back on the same path.
func TestSetDown(t *testing.T) {
	f := start(t, runtime(t, shop()))
	var hung sync.WaitGroup
	for round := range 3 {
		if got := f.version(t); got != codes.OK {
			t.Fatalf("%s", got)
		}
		if err := f.SetFaults([]fake.Fault{{RPC: "Status", Hang: true}}, nil); err != nil {
			t.Fatal(err)
		}
		hung.Go(func() {
			if _, err := f.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Unavailable {
				t.Errorf("a call when it goes down: %v", err)
			}
		})
		for f.Stats()["Status"].Faulted <= round {
			_ = f.version(t) // until the call hangs
		}
		for range 2 {
			if err := f.SetDown(true); err != nil {
				t.Fatal(err)
			}
		}
		hung.Wait()
		if info, err := os.Stat(f.path); err != nil || info.Mode().Type() != os.ModeSocket {
			t.Errorf("the file: %v, %v", info, err)
		}
		var d net.Dialer
		if _, err := d.DialContext(t.Context(), "unix", f.path); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting: %v", err)
		}
		if err := f.SetDown(false); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if info, err := os.Stat(f.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file afterwards: %v, %v", info, err)
		}
	}
}
