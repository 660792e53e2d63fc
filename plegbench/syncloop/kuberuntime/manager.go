// Package kuberuntime makes the runtime run what a pod asks for: it decides in one pure function what has to be killed,
// created and started, and does that through CRI in the kubelet's order, with the kubelet's labels, log paths, events and
// log lines (pkg/kubelet/kuberuntime upstream). It also tells the other parts what the runtime has.
//
// Everything that it makes bears container.OwnerLabel, and what does not bear it is not seen by anybody who asks here.
// Sandboxes are stopped but never removed: that is the collector's work. docs/syncloop.md says what is left out.
package kuberuntime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// CRI are the calls of remote.Service that are made here. Errors are gRPC status errors.
type CRI interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error)
}

// Images sees to it that a container's image is there. reason is nil or one of the waiting reasons, such as
// ErrImagePull; message explains it to a person.
type Images interface {
	EnsureImage(ctx context.Context, pod *v1.Pod, c *v1.Container, pullSecrets []v1.Secret,
		sandbox *runtimeapi.PodSandboxConfig) (ref string, reason error, message string)
}

// A Verdict is what the probes of one kind say of a running container. known is false as long as there is no verdict.
type Verdict func(id container.ID) (failed, known bool)

// Config is what a Manager needs. All fields are required.
type Config struct {
	CRI      CRI
	Images   Images
	Options  Options
	Liveness Verdict
	Startup  Verdict
	Recorder record.EventRecorder
	Log      logr.Logger
	Metrics  *metrics.Metrics

	NodeName       string // value of container.OwnerLabel
	RuntimeName    string // as Version says it: containerd
	RootDir        string // holds seccomp profiles in its folder seccomp
	LogDir         string // like /var/log: logs go below pods, the symlinks into containers
	MemoryCapacity int64  // of the node in bytes, for the OOM scores
	CgroupV2       bool   // the node has the unified hierarchy; then all processes of a container are killed by OOM together
	SeccompDefault bool   // RuntimeDefault instead of Unconfined where a pod says nothing

	// SandboxReady is called when a sandbox has its network, before images are pulled.
	SandboxReady func(pod *v1.Pod)
	// TerminationRequested says that a pod is to end, so that it is no error if its sandbox cannot be made.
	TerminationRequested func(uid types.UID) bool
}

// A Manager applies pods to one runtime. It is safe for use by several goroutines, one for each pod.
type Manager struct {
	Config
	foreign  atomic.Int64
	said     *reducer
	starting gate
}

// New makes a Manager.
func New(c Config) *Manager {
	return &Manager{Config: c, said: newReducer(), starting: newGate()}
}

// id makes an ID of this runtime.
func (m *Manager) id(id string) container.ID { return container.ID{Type: m.RuntimeName, ID: id} }
