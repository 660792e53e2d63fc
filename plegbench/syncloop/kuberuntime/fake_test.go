package kuberuntime

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

const (
	node     = "node-a"
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	running  = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited   = runtimeapi.ContainerState_CONTAINER_EXITED
)

// A recorded is the embedded runtime, each call of which it notes.
type recorded struct {
	*remote.Service
	mu       sync.Mutex
	calls    []string
	names    map[string]string        // of containers by their ids, and of sandboxes with their attempts
	stops    map[string]time.Duration // grace by container name
	image    *runtimeapi.Image        // of all containers
	exitCode int32
}

// note notes a call with the name of its object.
func (f *recorded) note(req any) (ended func(resp any, err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := ""
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		name = fmt.Sprint(req.GetConfig().GetMetadata().GetName(), " ", req.GetConfig().GetMetadata().GetAttempt())
	case *runtimeapi.CreateContainerRequest:
		name = req.GetConfig().GetMetadata().GetName()
	case interface{ GetContainerId() string }:
		name = f.names[req.GetContainerId()]
	case interface{ GetPodSandboxId() string }:
		name = f.names[req.GetPodSandboxId()]
	}
	rpc := strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Request")
	f.calls = append(f.calls, strings.TrimSpace(rpc+" "+name))
	return func(resp any, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch resp := resp.(type) {
		case *runtimeapi.RunPodSandboxResponse:
			f.names[resp.GetPodSandboxId()] = name
		case *runtimeapi.CreateContainerResponse:
			f.names[resp.GetContainerId()] = name
		case *runtimeapi.StopContainerResponse:
			if err == nil {
				f.stops[name] = time.Duration(req.(*runtimeapi.StopContainerRequest).GetTimeout()) * time.Second
			}
		}
	}
}

// took returns the calls since the last time.
func (f *recorded) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *recorded) ImageStatus(context.Context, string) (*runtimeapi.Image, error) {
	return f.image, nil
}

func (f *recorded) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	_, err := f.Service.ExecSync(ctx, id, cmd, timeout)
	return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: f.exitCode}, err
}

// A harness is a Manager with fakes around it.
type harness struct {
	*Manager
	cri              *recorded
	imageErr         error
	volumes          map[string]source.Volume
	gone, terminated map[types.UID]bool // pods that may lose all, and those that have merely terminated
	events           *record.FakeRecorder
}

// newHarness makes a Manager on the embedded runtime, in which these faults are in force.
func newHarness(t *testing.T, faults ...fake.Fault) *harness {
	t.Helper()
	r := &harness{
		events: record.NewFakeRecorder(1000),
		cri:    &recorded{names: map[string]string{}, stops: map[string]time.Duration{}},
	}
	var err error
	r.cri.Service, err = remote.Dial("/run/fake.sock", remote.Options{
		Log: logr.Discard(), Dialer: faketest.Serve(t, fake.Scenario{Faults: faults}), Trace: r.cri.note,
	})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = r.cri.Close() })
	image, err := r.cri.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "image:1"}, nil, nil)
	testkit.Must(t, err)
	r.cri.took()
	noResult := func(container.ID) (failed, known bool) { return false, false }
	r.Manager = New(Config{
		GCPolicy: DefaultGCPolicy(),
		CRI:      r.cri, Mounts: func(types.UID) map[string]source.Volume { return r.volumes }, Recorder: r.events,
		EnsureImage: func(context.Context, *v1.Pod, *v1.Container, *runtimeapi.PodSandboxConfig) (
			ref, message string, reason error,
		) {
			return image, "no such image", r.imageErr
		},
		Objects: volumemanager.NewFileObjects("testdata/objects"),
		Log:     logr.Discard(), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		NodeName: node, RuntimeName: "fake", RootDir: t.TempDir(), LogDir: t.TempDir(),
		MemoryCapacity: 1 << 30, Liveness: noResult, Startup: noResult,
		BackOff:      NewBackOff(10*time.Second, 5*time.Minute, 10*time.Minute),
		CgroupParent: func(*v1.Pod) string { return "" }, HostIPs: []string{"192.0.2.1", "fd00::1"},
		GCPeriod: time.Minute, SourcesReady: func() bool { return true },
		ShouldPodContentBeRemoved: func(uid types.UID) bool { return r.gone[uid] },
		ShouldPodRuntimeBeRemoved: func(uid types.UID) bool { return r.terminated[uid] },
	})
	return r
}

// recorded returns the events since the last time.
func (r *harness) recorded() []string { return looptest.Drain(r.events.Events) }

// now is the pod as the runtime has it.
func (r *harness) now(t *testing.T, p *v1.Pod) *container.PodStatus {
	t.Helper()
	defer r.cri.took()
	listed, err := r.GetPod(t.Context(), p.UID)
	if err != nil {
		return &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
	}
	st, err := r.GetPodStatus(t.Context(), listed)
	testkit.Must(t, err)
	return st
}

// sync syncs a pod once, in the state that it is in.
func (r *harness) sync(t *testing.T, p *v1.Pod) Result {
	t.Helper()
	return r.SyncPod(t.Context(), p, r.now(t, p))
}

// running starts a pod's containers, sidecars too, and returns it as the lists have it.
func (r *harness) running(t *testing.T, p *v1.Pod) *container.Pod {
	t.Helper()
	for res := r.sync(t, p); res.Changed(); res = r.sync(t, p) {
		testkit.Must(t, res.Err)
	}
	r.recorded()
	return r.now(t, p).RunningPod(r.RuntimeName)
}

// testPod is a pod with regular containers.
func testPod(names ...string) *v1.Pod {
	p := looptest.Pod("web", looptest.Annotated("note", "x"))
	p.UID, p.Labels, p.Spec.Containers = "uid-1", map[string]string{"app": "web"}, nil
	p.Spec.TerminationGracePeriodSeconds, p.Spec.DNSPolicy = new(int64(30)), v1.DNSDefault
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "image:1"})
	}
	return p
}

// failsWith expects an error's text.
func failsWith(t *testing.T, want string, r Result) {
	t.Helper()
	testkit.Equal(t, "error", want, testkit.Text(r.Err))
}
