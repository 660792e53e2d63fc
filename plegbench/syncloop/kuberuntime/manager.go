// Package kuberuntime runs pods on the runtime. One pure function decides what has to be killed, created and started;
// the rest acts through CRI in the kubelet's order, with the kubelet's labels, log paths, events and log lines
// (pkg/kubelet/kuberuntime upstream). It also reads the pods and their statuses from the runtime, and removes the
// remains of pods that have ended: dead containers but for the newest, sandboxes, logs (kuberuntime_gc.go).
//
// Everything that it creates has container.OwnerLabel, and everything without that label is ignored.
// docs/syncloop-parts.md lists what is left out.
package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/logs/logreduction"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// CRI is the part of remote.Service that a Manager calls. Errors are gRPC status errors.
type CRI interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error) // nil for one that is not there
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (
		*runtimeapi.ExecSyncResponse, error)
}

// A ProbeResult returns the result of the probes of one kind for a running container. known is false until there is
// one.
type ProbeResult func(id container.ID) (failed, known bool)

// Config configures a Manager. All fields are required, except ClusterDNS and ClusterDomain.
type Config struct {
	CRI CRI
	// EnsureImage makes sure that a container's image is present. reason is nil or one of the waiting reasons, such as
	// ErrImagePull; message explains it.
	EnsureImage func(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (
		ref, message string, reason error)
	Mounts func(uid types.UID) map[string]source.Volume // the mounted volumes of a pod by name
	// PrepareSafeSubpath returns where a part of a volume is mounted for a container's mount with that index.
	PrepareSafeSubpath func(uid types.UID, volume, container string, index int, path string) (string, error)

	Objects  source.Objects // of environment variables
	Liveness ProbeResult
	Startup  ProbeResult
	BackOff  *flowcontrol.Backoff // of containers that ended, see NewBackOff

	UnlimitedStarts bool // start any number of new pods at a time, as a kubelet does
	Recorder        record.EventRecorder
	Log             logr.Logger
	Metrics         *metrics.Metrics

	NodeName       string   // value of container.OwnerLabel
	RuntimeName    string   // as Version returns it: containerd
	RootDir        string   // like /var/lib/kubelet
	LogDir         string   // like /var/log: logs go below pods
	HostIPs        []string // of the node, the preferred one first
	ClusterDNS     []string // addresses of the cluster's name servers; empty: pods use the node's
	ClusterDomain  string   // like cluster.local
	MemoryCapacity int64    // of the node in bytes, for the OOM scores
	CgroupV2       bool     // the kernel kills all processes of a container together

	GCPolicy     GCPolicy
	GCPeriod     time.Duration // ContainerGCPeriod of pkg/kubelet/kubelet.go: 1 minute
	SourcesReady func() bool   // all sources of pods have been seen
	// ShouldPodContentBeRemoved reports whether everything of a pod may be removed: it was evicted, or deleted and has
	// terminated, or it has no worker. ShouldPodRuntimeBeRemoved reports whether a pod has terminated.
	ShouldPodContentBeRemoved, ShouldPodRuntimeBeRemoved func(uid types.UID) bool
	// CgroupParent returns a pod's cgroup in the form of the cgroup driver.
	CgroupParent func(pod *v1.Pod) string
}

// A Manager applies pods to one runtime. It is safe for use by several goroutines, one for each pod.
type Manager struct {
	Config
	foreign atomic.Int64
	reduced *logreduction.LogReduction
	starts  startLimiter
}

// New makes a Manager.
func New(c Config) *Manager {
	places := startsPerCPU * runtime.GOMAXPROCS(0)
	if c.UnlimitedStarts {
		places = 0
	}
	return &Manager{Config: c, reduced: logreduction.NewLogReduction(time.Minute), starts: make(startLimiter, places)}
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

// An Action is a step of SyncPod or KillPod under the name that the kubelet's errors have for it.
type Action string

// The actions.
const (
	ActionCreateSandbox  Action = "CreatePodSandbox"
	ActionKillSandbox    Action = "KillPodSandbox"
	ActionStartContainer Action = "StartContainer"
	ActionKillContainer  Action = "KillContainer"
)

// Reasons of failed actions. Those of StartContainer are shown as a container's waiting reason.
var (
	ErrCreateContainerConfig = errors.New("CreateContainerConfigError")
	ErrCreateContainer       = errors.New("CreateContainerError")
	ErrRunContainer          = errors.New("RunContainerError")
	ErrPostStartHook         = errors.New("PostStartHookError")
	ErrCrashLoopBackOff      = errors.New("CrashLoopBackOff")
	ErrCreatePodSandbox      = errors.New("CreatePodSandboxError")
	ErrKillPodSandbox        = errors.New("KillPodSandboxError")
	ErrKillContainer         = errors.New("KillContainerError")
)

// An ActionResult is the outcome of one action.
type ActionResult struct {
	Action  Action
	Target  string // a container's name, or a pod
	Err     error  // nil, or the reason: one of those above or of package images
	Message string // explains Err
}

// A Result lists the actions of SyncPod or KillPod.
type Result struct {
	Actions []ActionResult
	Err     error     // the aggregate of all that failed, with the kubelet's text
	Until   time.Time // the end of the earliest back-off among the failures; zero if there is none
}

// Changed reports whether anything was attempted.
func (r Result) Changed() bool { return len(r.Actions) > 0 }

func (r *Result) add(action Action, target string, reason error, message string) {
	r.Actions = append(r.Actions, ActionResult{Action: action, Target: target, Err: reason, Message: message})
}

func (r *Result) killed(name string, err error) {
	if err != nil {
		r.add(ActionKillContainer, name, ErrKillContainer, err.Error())
		return
	}
	r.add(ActionKillContainer, name, nil, "")
}

// finish sets Err from the actions.
func (r Result) finish() Result {
	var all []error
	for _, a := range r.Actions {
		if a.Err != nil {
			all = append(all, fmt.Errorf("failed to %q for %q with %w: %q", a.Action, a.Target, a.Err, a.Message))
		}
	}
	r.Err = utilerrors.NewAggregate(all)
	return r
}

// ErrPodNotFound is GetPod's error when the runtime has nothing of a pod. Its text is the kubelet's.
var ErrPodNotFound = errors.New("pod sandboxes not found")

// GetPods returns the pods of this node's syncLoop: all of them, or only those that are ready or running. It makes two
// lists; if the first fails, the second is not made.
func (m *Manager) GetPods(ctx context.Context, all bool) ([]*container.Pod, error) {
	return m.list(ctx, all, nil)
}

// GetPod returns one pod as the runtime has it now, or ErrPodNotFound.
func (m *Manager) GetPod(ctx context.Context, uid types.UID) (*container.Pod, error) {
	pods, err := m.list(ctx, true, map[string]string{container.PodUIDLabel: string(uid)})
	if err == nil && len(pods) == 0 {
		err = ErrPodNotFound
	}
	if err != nil {
		return nil, err
	}
	return pods[0], nil
}

// Foreign returns how many pods without this node's label the last full list had.
func (m *Manager) Foreign() int { return int(m.foreign.Load()) }

// list makes the two lists and groups them by pod. Pods without this node's label are only counted. A container whose
// sandbox is gone makes a pod all the same: it may run.
func (m *Manager) list(ctx context.Context, all bool, labels map[string]string) (pods []*container.Pod, err error) {
	sf, cf := &runtimeapi.PodSandboxFilter{LabelSelector: labels}, &runtimeapi.ContainerFilter{LabelSelector: labels}
	if !all {
		sf.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		cf.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	}
	sandboxes, err := m.CRI.ListPodSandbox(ctx, sf)
	if err != nil {
		return nil, err
	}
	containers, err := m.CRI.ListContainers(ctx, cf)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int {
		attempts := cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt())
		return cmp.Or(attempts, container.NewerFirst(a, b))
	})
	slices.SortFunc(containers, container.NewerFirst)
	byUID, others := map[string]*container.Pod{}, map[string]bool{}
	podOf := func(labels map[string]string, uid string) *container.Pod {
		if labels[container.OwnerLabel] != m.NodeName {
			others[cmp.Or(labels[container.PodUIDLabel], uid)] = true
			return &container.Pod{} // which is dropped
		}
		if byUID[uid] == nil {
			byUID[uid] = &container.Pod{
				UID: types.UID(uid), Name: labels[container.PodNameLabel],
				Namespace: labels[container.PodNamespaceLabel],
			}
			pods = append(pods, byUID[uid])
		}
		return byUID[uid]
	}
	for _, s := range sandboxes {
		p := podOf(s.GetLabels(), s.GetMetadata().GetUid())
		p.Sandboxes = append(p.Sandboxes, &container.Container{
			ID: m.id(s.GetId()), State: container.SandboxState(s.GetState()), SandboxID: s.GetId(),
		})
	}
	for _, c := range containers {
		p := podOf(c.GetLabels(), c.GetLabels()[container.PodUIDLabel])
		p.Containers = append(p.Containers, &container.Container{
			ID: m.id(c.GetId()), Name: c.GetMetadata().GetName(), State: container.ContainerState(c.GetState()),
			SandboxID: c.GetPodSandboxId(),
		})
	}
	if all && labels == nil {
		m.foreign.Store(int64(len(others)))
	}
	return pods, nil
}

// GetPodStatus gets the status of each of a pod's sandboxes and then of each of its containers, one after the other. It
// leaves out objects that are gone since the lists; any other error ends it. Termination messages are read from the
// node's files.
func (m *Manager) GetPodStatus(ctx context.Context, p *container.Pod) (*container.PodStatus, error) {
	st := &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, TimeStamp: time.Now()}
	name := p.FullName() + "(" + string(p.UID) + ")"
	for i, sb := range p.Sandboxes {
		s, err := m.CRI.PodSandboxStatus(ctx, sb.ID.ID)
		if remote.IsNotFound(err) {
			continue
		}
		if err != nil {
			m.Log.Error(err, "PodSandboxStatus of sandbox for pod", "pod", name, "podSandboxID", sb.ID.ID)
			return nil, err
		}
		st.SandboxStatuses = append(st.SandboxStatuses, s)
		ip := s.GetNetwork().GetIp() // the primary one; none on the host's network
		if i == 0 && ip != "" && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			st.IPs = []string{ip}
		}
	}
	for _, c := range p.Containers {
		s, err := m.CRI.ContainerStatus(ctx, c.ID.ID)
		if remote.IsNotFound(err) {
			continue
		}
		if err != nil {
			if m.reduced.ShouldMessageBePrinted(err.Error(), name) {
				m.Log.Error(err, "getPodContainerStatuses for pod failed", "pod", name)
			}
			return nil, err
		}
		status := m.status(s)
		status.SandboxID = c.SandboxID
		st.ContainerStatuses = append(st.ContainerStatuses, status)
	}
	m.reduced.ClearID(name)
	return st, nil
}

// status converts a container's status of CRI.
func (m *Manager) status(s *runtimeapi.ContainerStatus) *container.Status {
	// An annotation that is missing or unreadable is 0.
	hash, _ := strconv.ParseUint(s.GetAnnotations()[container.HashAnnotation], 16, 64)
	restarts, _ := strconv.Atoi(s.GetAnnotations()[container.RestartCountAnnotation])
	out := &container.Status{
		ID: m.id(s.GetId()), Name: s.GetLabels()[container.ContainerNameLabel],
		State: container.ContainerState(s.GetState()), Image: s.GetImage().GetImage(), ImageRef: s.GetImageRef(),
		Hash: hash, RestartCount: restarts,
	}
	if out.State != container.Created {
		out.StartedAt = time.Unix(0, s.GetStartedAt())
	}
	if out.State == container.Exited {
		out.FinishedAt, out.ExitCode = time.Unix(0, s.GetFinishedAt()), int(s.GetExitCode())
		out.Reason, out.Message = s.GetReason(), s.GetMessage()
		if text := terminationMessage(s); text != "" {
			out.Message = strings.TrimPrefix(out.Message+": "+text, ": ")
		}
	}
	return out
}

// plain returns the runtime's own text of a gRPC error, without the code, and the text of any other error.
func plain(err error) string {
	s := err.Error()
	if _, desc, ok := strings.Cut(s, " desc = "); ok && strings.HasPrefix(s, "rpc error: code = ") {
		return desc
	}
	return s
}

// messageBytes is the length of a termination message that is read, from its end (pkg/kubelet/container/runtime.go
// upstream).
const messageBytes = 4096

// terminationMessage returns the content of the file for it that is mounted into a container.
func terminationMessage(s *runtimeapi.ContainerStatus) string {
	path := s.GetAnnotations()[container.TerminationMessagePathAnnotation]
	for _, mount := range s.GetMounts() {
		if path == "" || mount.GetContainerPath() != path {
			continue
		}
		f, err := os.OpenFile(mount.GetHostPath(), os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
		if err != nil {
			return ""
		}
		defer f.Close()
		size, _ := f.Seek(0, io.SeekEnd) // an unreadable message counts as empty
		data, _ := io.ReadAll(io.NewSectionReader(f, max(0, size-messageBytes), messageBytes))
		return string(data)
	}
	return ""
}
