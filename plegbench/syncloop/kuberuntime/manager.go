// Package kuberuntime runs pods on the runtime. One pure function decides what has to be killed, created and started;
// the rest does it through CRI in the kubelet's order, with the kubelet's labels, log paths, events and log lines
// (pkg/kubelet/kuberuntime upstream). It also returns what the runtime has of each pod.
//
// Everything that it creates has container.OwnerLabel, and everything without that label is ignored. Sandboxes are
// stopped but never removed: package gc does that. docs/syncloop.md lists what is left out.
package kuberuntime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/logs/logreduction"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// CRI is the part of remote.Service that a Manager calls. Errors are gRPC status errors.
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

// Images makes sure that a container's image is present. reason is nil or one of the waiting reasons, such as
// ErrImagePull; message explains it.
type Images interface {
	EnsureImage(ctx context.Context, pod *v1.Pod, c *v1.Container, pullSecrets []v1.Secret,
		sandbox *runtimeapi.PodSandboxConfig) (ref, message string, reason error)
}

// A Volume is a mounted volume, as the volume manager describes it.
type Volume = struct {
	HostPath string // on the node
	ReadOnly bool   // for every container
	Managed  bool   // the runtime may relabel it for SELinux
}

// Volumes returns the mounted volumes of a pod by name.
type Volumes interface {
	Mounts(uid types.UID) map[string]Volume
}

// Objects are the sources of environment variables. A missing object is a NotFound error of the API.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// A ProbeResult returns the result of the probes of one kind for a running container. known is false until there is
// one.
type ProbeResult func(id container.ID) (failed, known bool)

// Config configures a Manager. All fields are required, except ClusterDNS and ClusterDomain.
type Config struct {
	CRI      CRI
	Images   Images
	Volumes  Volumes
	Objects  Objects
	Liveness ProbeResult
	Startup  ProbeResult
	BackOff  *flowcontrol.Backoff // of containers that ended, see NewBackOff
	Recorder record.EventRecorder
	Log      logr.Logger
	Metrics  *metrics.Metrics

	NodeName       string   // value of container.OwnerLabel
	RuntimeName    string   // as Version returns it: containerd
	RootDir        string   // like /var/lib/kubelet
	LogDir         string   // like /var/log: logs go below pods, the symlinks into containers
	HostIPs        []string // of the node, the preferred one first
	ClusterDNS     []string // addresses of the cluster's name servers; empty: pods use the node's
	ClusterDomain  string   // like cluster.local
	MemoryCapacity int64    // of the node in bytes, for the OOM scores
	CgroupV2       bool     // the kernel kills all processes of a container together
	SeccompDefault bool     // RuntimeDefault instead of Unconfined for containers without a profile

	// CgroupParent returns a pod's cgroup in the form of the cgroup driver.
	CgroupParent func(pod *v1.Pod) string
	// Allocatable returns the node's resources, which stand for the limits of containers without any.
	Allocatable func() v1.ResourceList
	// SandboxReady is called when a sandbox has its network, before images are pulled.
	SandboxReady func(pod *v1.Pod)
	// TerminationRequested reports that a pod is to end, so that a failure to create its sandbox is no error.
	TerminationRequested func(uid types.UID) bool
}

// A Manager applies pods to one runtime. It is safe for use by several goroutines, one for each pod.
type Manager struct {
	Config
	foreign  atomic.Int64
	reduced  *logreduction.LogReduction
	starting gate
}

// New makes a Manager.
func New(c Config) *Manager {
	return &Manager{Config: c, reduced: logreduction.NewLogReduction(time.Minute), starting: newGate()}
}

// NewBackOff makes the back-off of containers that ended: the first restart is immediate, the second waits first, and
// each further one twice as long, up to most: 10 s and 5 minutes in the kubelet. A container that ended later than
// reset (10 minutes) after the last decision to restart it starts over.
func NewBackOff(first, most, reset time.Duration) *flowcontrol.Backoff {
	b := flowcontrol.NewBackOff(first, most)
	b.HasExpiredFunc = func(ended, decided time.Time, _ time.Duration) bool { return ended.Sub(decided) > reset }
	return b
}

// id makes an ID of this runtime.
func (m *Manager) id(id string) container.ID { return container.ID{Type: m.RuntimeName, ID: id} }
