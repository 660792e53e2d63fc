package kuberuntime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// A fakeCRI keeps what is created, and records each call.
type fakeCRI struct {
	mu         sync.Mutex
	calls      []string
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*runtimeapi.ContainerStatus
	inSandbox  map[string]string
	fail       map[string]error         // by call, such as "StartContainer" or "StartContainer main"
	takes      map[string]time.Duration // by call and container, such as "StopContainer main", or "RunPodSandbox"
	stops      map[string]time.Duration // grace by container name
	image      *runtimeapi.Image        // of all containers
	exitCode   int32
	next       int
}

// do records a call and acts, unless an error is set for it.
func (f *fakeCRI) do(name, object string, act func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.TrimSpace(name + " " + object)
	f.calls = append(f.calls, text)
	if err := cmp.Or(f.fail[text], f.fail[name]); err != nil {
		return err
	}
	return act()
}

// took returns the calls since the last time.
func (f *fakeCRI) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeCRI) id(kind string) string {
	f.next++
	return fmt.Sprint(kind, f.next)
}

// find finds a sandbox or container by id.
func find[T interface{ GetId() string }](all []T, id string) (found T, err error) {
	i := slices.IndexFunc(all, func(x T) bool { return x.GetId() == id })
	if i < 0 {
		return found, status.Error(codes.NotFound, id+" not found")
	}
	return all[i], nil
}

// name is the name of a container, or the id if there is none.
func (f *fakeCRI) name(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, _ := find(f.containers, id)
	return cmp.Or(c.GetMetadata().GetName(), id)
}

func (f *fakeCRI) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (id string, err error) {
	err = f.do("RunPodSandbox", fmt.Sprint(c.GetMetadata().GetAttempt()), func() error {
		id = f.id("sb")
		options := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
		f.sandboxes = append(f.sandboxes, &runtimeapi.PodSandboxStatus{
			Id: id, Metadata: c.GetMetadata(), CreatedAt: time.Now().UnixNano(), Labels: c.GetLabels(),
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
			Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
		})
		return nil
	})
	time.Sleep(f.takes["RunPodSandbox"])
	return id, err
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	return f.do("StopPodSandbox", id, func() error {
		s, err := find(f.sandboxes, id)
		if err == nil {
			s.State = notReady
		}
		return err
	})
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string) (s *runtimeapi.PodSandboxStatus, err error) {
	err = f.do("PodSandboxStatus", id, func() error { s, err = find(f.sandboxes, id); return err })
	return s, err
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	return f.do("RemovePodSandbox", id, func() error {
		f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandboxStatus) bool { return s.Id == id })
		return nil
	})
}

func (f *fakeCRI) ListPodSandbox(
	_ context.Context, filter *runtimeapi.PodSandboxFilter,
) (out []*runtimeapi.PodSandbox, err error) {
	uid, state := filter.GetLabelSelector()[container.PodUIDLabel], filter.GetState()
	err = f.do("ListPodSandbox", uid, func() error {
		for _, s := range f.sandboxes {
			if (uid == "" || s.Labels[container.PodUIDLabel] == uid) && (state == nil || state.State == s.State) {
				out = append(out, &runtimeapi.PodSandbox{
					Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels,
				})
			}
		}
		return nil
	})
	return out, err
}

func (f *fakeCRI) CreateContainer(
	_ context.Context, sandboxID string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	err = f.do("CreateContainer", c.GetMetadata().GetName(), func() error {
		id = f.id("c")
		f.containers = append(f.containers, &runtimeapi.ContainerStatus{
			Id: id, Metadata: c.GetMetadata(), CreatedAt: time.Now().UnixNano(), Labels: c.GetLabels(),
			Annotations: c.GetAnnotations(), Image: c.GetImage(), ImageRef: "ref", Mounts: c.GetMounts(),
		})
		f.inSandbox[id] = sandboxID
		return nil
	})
	return id, err
}

func (f *fakeCRI) StartContainer(_ context.Context, id string) error {
	return f.do("StartContainer", f.name(id), func() error {
		s, err := find(f.containers, id)
		s.State, s.StartedAt = running, time.Now().UnixNano()
		return err
	})
}

func (f *fakeCRI) StopContainer(_ context.Context, id string, grace time.Duration) error {
	name := f.name(id)
	if err := f.do("StopContainer", name, func() error { f.stops[name] = grace; return nil }); err != nil {
		return err
	}
	time.Sleep(min(f.takes["StopContainer "+name], grace))
	return f.exit(id, 137)
}

// exit ends a container.
func (f *fakeCRI) exit(id string, code int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := find(f.containers, id)
	if err == nil {
		s.State, s.ExitCode, s.FinishedAt = exited, code, time.Now().UnixNano()
	}
	return err
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	return f.do("RemoveContainer", f.name(id), func() error {
		f.containers = slices.DeleteFunc(f.containers, func(s *runtimeapi.ContainerStatus) bool { return s.Id == id })
		return nil
	})
}

func (f *fakeCRI) ListContainers(
	_ context.Context, filter *runtimeapi.ContainerFilter,
) (out []*runtimeapi.Container, err error) {
	uid, state := filter.GetLabelSelector()[container.PodUIDLabel], filter.GetState()
	err = f.do("ListContainers", uid, func() error {
		for _, s := range f.containers {
			if (uid == "" || s.Labels[container.PodUIDLabel] == uid) && (state == nil || state.State == s.State) {
				out = append(out, &runtimeapi.Container{
					Id: s.Id, PodSandboxId: f.inSandbox[s.Id], Metadata: s.Metadata, State: s.State,
					CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, Image: s.Image,
				})
			}
		}
		return nil
	})
	return out, err
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string) (s *runtimeapi.ContainerStatus, err error) {
	err = f.do("ContainerStatus", f.name(id), func() error { s, err = find(f.containers, id); return err })
	return s, err
}

func (f *fakeCRI) ImageStatus(context.Context, string) (*runtimeapi.Image, error) {
	return f.image, nil
}

func (f *fakeCRI) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	name := f.name(id)
	if err := f.do("ExecSync", fmt.Sprint(name, " ", cmd, " ", timeout), func() error { return nil }); err != nil {
		return nil, err
	}
	select {
	case <-time.After(f.takes["ExecSync "+name]):
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: f.exitCode}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// A harness is a Manager with fakes around it.
type harness struct {
	*Manager
	cri              *fakeCRI
	imageErr         error
	volumes          map[string]source.Volume
	gone, terminated map[types.UID]bool // pods that may lose all, and those that have merely terminated
	events           *record.FakeRecorder
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	r := &harness{events: record.NewFakeRecorder(1000), cri: &fakeCRI{
		inSandbox: map[string]string{}, fail: map[string]error{}, takes: map[string]time.Duration{}, stops: map[string]time.Duration{},
	}}
	noResult := func(container.ID) (failed, known bool) { return false, false }
	r.Manager = New(Config{
		GCPolicy: DefaultGCPolicy(),
		CRI:      r.cri, Mounts: func(types.UID) map[string]source.Volume { return r.volumes }, Recorder: r.events,
		EnsureImage: func(context.Context, *v1.Pod, *v1.Container, *runtimeapi.PodSandboxConfig) (
			ref, message string, reason error,
		) {
			return "sha256:1", "no such image", r.imageErr
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
	looptest.Must(t, err)
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
		looptest.Must(t, res.Err)
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
	looptest.Equal(t, "error", want, looptest.Text(r.Err))
}
