package kuberuntime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

const node = "node-a"

// A fakeCRI keeps what is created, and writes down each call.
type fakeCRI struct {
	mu         sync.Mutex
	calls      []string
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*runtimeapi.ContainerStatus
	inSandbox  map[string]string
	configs    map[string]*runtimeapi.ContainerConfig
	fail       map[string]error         // by call, such as "StartContainer" or "StartContainer main"
	takes      map[string]time.Duration // of StopContainer and ExecSync, by container name
	ip         string
	stops      map[string]time.Duration // grace by container name
	exitCode   int32
	next       int
}

func newFakeCRI() *fakeCRI {
	return &fakeCRI{
		inSandbox: map[string]string{}, configs: map[string]*runtimeapi.ContainerConfig{}, fail: map[string]error{},
		takes: map[string]time.Duration{}, stops: map[string]time.Duration{}, ip: "10.0.0.1",
	}
}

func notFound(what string) error { return status.Error(codes.NotFound, what+" not found") }

// call notes a call and returns the error that is set for it. A hang is ended by ctx.
func (f *fakeCRI) call(name, object string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := name
	if object != "" {
		text += " " + object
	}
	f.calls = append(f.calls, text)
	if err := f.fail[text]; err != nil {
		return err
	}
	return f.fail[name]
}

func (f *fakeCRI) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeCRI) id(kind string) string {
	f.next++
	return fmt.Sprintf("%s%d", kind, f.next)
}

func (f *fakeCRI) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	if err := f.call("RunPodSandbox", fmt.Sprint(c.GetMetadata().GetAttempt())); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &runtimeapi.PodSandboxStatus{
		Id: f.id("sb"), Metadata: c.GetMetadata(), CreatedAt: time.Now().UnixNano(), Labels: c.GetLabels(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: f.ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: c.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}
	f.sandboxes = append(f.sandboxes, s)
	return s.Id, nil
}

// sandbox returns a sandbox by id. The lock is held.
func (f *fakeCRI) sandbox(id string) *runtimeapi.PodSandboxStatus {
	for _, s := range f.sandboxes {
		if s.Id == id {
			return s
		}
	}
	return nil
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	if err := f.call("StopPodSandbox", id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sandbox(id); s != nil {
		s.State = notReady
		return nil
	}
	return notFound("sandbox")
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if err := f.call("PodSandboxStatus", id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sandbox(id); s != nil {
		return s, nil
	}
	return nil, notFound("sandbox")
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	if err := f.call("RemovePodSandbox", id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandboxStatus) bool { return s.Id == id })
	return nil
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	uid := filter.GetLabelSelector()[container.PodUIDLabel]
	if err := f.call("ListPodSandbox", uid); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for _, s := range f.sandboxes {
		if (uid == "" || s.GetLabels()[container.PodUIDLabel] == uid) && (filter.GetState() == nil || filter.GetState().GetState() == s.GetState()) {
			out = append(out, &runtimeapi.PodSandbox{
				Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels,
			})
		}
	}
	return out, nil
}

func (f *fakeCRI) CreateContainer(
	_ context.Context, sandboxID string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	if err := f.call("CreateContainer", c.GetMetadata().GetName()); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &runtimeapi.ContainerStatus{
		Id: f.id("c"), Metadata: c.GetMetadata(), CreatedAt: time.Now().UnixNano(), Labels: c.GetLabels(),
		Annotations: c.GetAnnotations(), Image: c.GetImage(), ImageRef: "ref", Mounts: c.GetMounts(),
	}
	f.containers = append(f.containers, s)
	f.inSandbox[s.Id], f.configs[c.GetMetadata().GetName()] = sandboxID, c
	return s.Id, nil
}

// container returns a container by id. The lock is held.
func (f *fakeCRI) container(id string) *runtimeapi.ContainerStatus {
	i := slices.IndexFunc(f.containers, func(s *runtimeapi.ContainerStatus) bool { return s.Id == id })
	if i < 0 {
		return nil
	}
	return f.containers[i]
}

func (f *fakeCRI) name(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.container(id); s != nil {
		return s.GetMetadata().GetName()
	}
	return id
}

func (f *fakeCRI) StartContainer(_ context.Context, id string) error {
	if err := f.call("StartContainer", f.name(id)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.container(id)
	s.State, s.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return nil
}

func (f *fakeCRI) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	name := f.name(id)
	if err := f.call("StopContainer", name); err != nil {
		return err
	}
	f.mu.Lock()
	f.stops[name] = grace
	takes := min(f.takes[name], grace)
	f.mu.Unlock()
	time.Sleep(takes)
	return f.exit(id, 137)
}

// exit ends a container.
func (f *fakeCRI) exit(id string, code int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.container(id)
	if s == nil {
		return notFound("container")
	}
	s.State, s.ExitCode, s.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	return nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	if err := f.call("RemoveContainer", f.name(id)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers = slices.DeleteFunc(f.containers, func(s *runtimeapi.ContainerStatus) bool { return s.Id == id })
	return nil
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	uid := filter.GetLabelSelector()[container.PodUIDLabel]
	if err := f.call("ListContainers", uid); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*runtimeapi.Container
	for _, s := range f.containers {
		if (uid == "" || s.GetLabels()[container.PodUIDLabel] == uid) && (filter.GetState() == nil || filter.GetState().GetState() == s.GetState()) {
			out = append(out, &runtimeapi.Container{
				Id: s.Id, PodSandboxId: f.inSandbox[s.Id], Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
				Labels: s.Labels, Annotations: s.Annotations, Image: s.Image,
			})
		}
	}
	return out, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := f.call("ContainerStatus", f.name(id)); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.container(id); s != nil {
		return s, nil
	}
	return nil, notFound("container")
}

func (f *fakeCRI) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	name := f.name(id)
	if err := f.call("ExecSync", fmt.Sprint(name, " ", cmd, " ", timeout)); err != nil {
		return nil, err
	}
	f.mu.Lock()
	takes, code := f.takes["exec "+name], f.exitCode
	f.mu.Unlock()
	select {
	case <-time.After(takes):
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: code}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// A fakeImages has each image, or fails.
type fakeImages struct {
	reason  error
	message string
}

func (f *fakeImages) EnsureImage(
	context.Context, *v1.Pod, *v1.Container, *runtimeapi.PodSandboxConfig,
) (ref, message string, reason error) {
	return "sha256:1", f.message, f.reason
}

// A world has the volumes and objects of pods.
type world struct {
	volumes    map[string]source.Volume
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
	err        error // of all objects
	// Pods that may lose all, and those that have merely terminated.
	gone, terminated map[types.UID]bool
}

func (w *world) Mounts(types.UID) map[string]source.Volume { return w.volumes }

func (w *world) GetConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if data, ok := w.configMaps[namespace+"/"+name]; ok && w.err == nil {
		return &v1.ConfigMap{Data: data}, nil
	}
	return nil, cmp.Or[error](w.err, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name))
}

func (w *world) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if data, ok := w.secrets[namespace+"/"+name]; ok && w.err == nil {
		return &v1.Secret{Data: data}, nil
	}
	return nil, cmp.Or[error](w.err, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name))
}

// A rig is a Manager with fakes around it.
type rig struct {
	*Manager
	cri    *fakeCRI
	images *fakeImages
	world  *world
	events *record.FakeRecorder
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{cri: newFakeCRI(), images: &fakeImages{}, world: &world{}, events: record.NewFakeRecorder(1000)}
	reg := prometheus.NewRegistry()
	r.Manager = New(Config{
		CRI: r.cri, Images: r.images, Mounts: r.world.Mounts, Objects: r.world, Recorder: r.events, Log: logr.Discard(),
		Metrics: metrics.New(reg, prometheus.NewRegistry()), NodeName: node, RuntimeName: "fake", RootDir: t.TempDir(),
		LogDir: t.TempDir(), MemoryCapacity: 1 << 30, Liveness: noResult, Startup: noResult,
		BackOff:      NewBackOff(10*time.Second, 5*time.Minute, 10*time.Minute),
		CgroupParent: func(*v1.Pod) string { return "" }, HostIPs: []string{"192.0.2.1"},
		SandboxReady: func(*v1.Pod) {}, GCPeriod: time.Minute, SourcesReady: func() bool { return true },
		ShouldPodContentBeRemoved: func(uid types.UID) bool { return r.world.gone[uid] },
		ShouldPodRuntimeBeRemoved: func(uid types.UID) bool { return r.world.terminated[uid] },
	})
	return r
}

func noResult(container.ID) (failed, known bool) { return false, false }

// happened returns the events so far.
func (r *rig) happened() []string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// now is the pod as the runtime has it.
func (r *rig) now(t *testing.T, p *v1.Pod) *container.PodStatus {
	t.Helper()
	defer r.cri.took()
	listed, err := r.GetPod(t.Context(), p.UID)
	if err != nil {
		return &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
	}
	st, err := r.GetPodStatus(t.Context(), listed)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// testPod is a pod with regular containers.
func testPod(names ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: types.UID("uid-1"), Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"note": "x"},
	}}
	grace := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy, p.Spec.DNSPolicy = v1.RestartPolicyAlways, v1.DNSDefault
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "image:1"})
	}
	return p
}

func withInit(p *v1.Pod, names ...string) *v1.Pod {
	for _, n := range names {
		c := v1.Container{Name: n, Image: "image:1"}
		if n[0] == 's' { // sidecar
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}
