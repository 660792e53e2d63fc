// Package gc removes what is left of pods that ended: dead containers but for the newest, sandboxes, logs. It is the
// kubelet's container garbage collector (pkg/kubelet/kuberuntime/kuberuntime_gc.go) and its deletor, which removes
// containers after another one of the same name has ended (pkg/kubelet/pod_container_deletor.go).
//
// It touches only what has container.OwnerLabel with the node's name.
package gc

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// CRI is the part of the runtime service that the collector calls.
type CRI interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Pods answers from the state of the pod workers.
type Pods interface {
	// ShouldPodContentBeRemoved reports whether everything of a pod may be removed: it was evicted, or deleted and has
	// terminated, or no worker knows it.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved reports whether a pod has terminated.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// Config configures a Collector. All fields are required.
type Config struct {
	CRI          CRI
	Pods         Pods
	Keep         int           // dead containers per pod and container name: --maximum-dead-containers-per-container, 1
	SourcesReady func() bool   // all sources of pods have been seen
	NodeName     string        // value of container.OwnerLabel
	LogDir       string        // like /var/log; must be this node's alone
	Period       time.Duration // ContainerGCPeriod of pkg/kubelet/kubelet.go: 1 minute
	Log          logr.Logger
	Recorder     record.EventRecorder
	Metrics      *metrics.Metrics
}

// deletorQueue is containerDeletorBufferLimit of pkg/kubelet/pod_container_deletor.go.
const deletorQueue = 50

// A Collector collects the garbage of one node.
type Collector struct {
	Config
	queue chan string // ids of dead containers to remove
}

// New makes a Collector.
func New(cfg Config) *Collector {
	return &Collector{Config: cfg, queue: make(chan string, deletorQueue)}
}

// Run collects at once and then every Period, until ctx ends. Its error is always nil.
func (c *Collector) Run(ctx context.Context) error {
	failed := false
	wait.UntilWithContext(ctx, func(ctx context.Context) { failed = c.report(c.Collect(ctx), failed) }, c.Period)
	return nil
}

func (c *Collector) report(err error, failedBefore bool) (failed bool) {
	switch {
	case err != nil:
		c.Log.Error(err, "Container garbage collection failed")
		node := &v1.ObjectReference{Kind: "Node", Name: c.NodeName, UID: types.UID(c.NodeName)}
		c.Recorder.Event(node, v1.EventTypeWarning, "ContainerGCFailed", err.Error())
	case failedBefore:
		c.Log.V(1).Info("Container garbage collection succeeded")
	default:
		c.Log.V(4).Info("Container garbage collection succeeded")
	}
	return err != nil
}

// Collect makes one pass. Its error is that of a list; what cannot be removed is logged and left for the next pass.
func (c *Collector) Collect(ctx context.Context) error {
	return c.collect(ctx, c.Pods.ShouldPodContentBeRemoved)
}

// DeleteAllUnused makes one pass that also removes everything of pods that have merely terminated, for an eviction.
func (c *Collector) DeleteAllUnused(ctx context.Context) error {
	c.Log.Info("Attempting to delete unused containers")
	return c.collect(ctx, func(uid types.UID) bool {
		return c.Pods.ShouldPodContentBeRemoved(uid) || c.Pods.ShouldPodRuntimeBeRemoved(uid)
	})
}

// collect makes the three steps of a pass; one that fails does not stop the next.
func (c *Collector) collect(ctx context.Context, removable func(types.UID) bool) error {
	return utilerrors.NewAggregate([]error{c.containers(ctx, removable), c.sandboxes(ctx, removable), c.logs()})
}

func (c *Collector) containers(ctx context.Context, removable func(types.UID) bool) error {
	all, err := c.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	if !c.SourcesReady() {
		removable = func(types.UID) bool { return false }
	}
	all = slices.DeleteFunc(all, func(d *runtimeapi.Container) bool { return !c.owns(d.GetLabels()) })
	for _, d := range chooseContainers(all, c.Keep, removable) {
		if d.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN { // it may run
			if err := c.CRI.StopContainer(ctx, d.GetId(), grace(d)); err != nil {
				c.Log.Error(err, "Failed to stop container", "containerID", d.GetId())
				continue
			}
		}
		if err := c.remove(ctx, d.GetId()); err != nil {
			c.Log.Error(err, "Failed to remove container", "containerID", d.GetId())
		}
	}
	return nil
}

func (c *Collector) owns(labels map[string]string) bool {
	return labels[container.OwnerLabel] == c.NodeName
}

func (c *Collector) remove(ctx context.Context, id string) error {
	if err := container.Remove(ctx, c.CRI, c.LogDir, id); err != nil {
		return err
	}
	c.Metrics.ContainerGCRemoved.Inc()
	return nil
}

// A unit is all instances of one container of one pod, the kubelet's evictUnit.
type unit struct{ uid, name string }

// chooseContainers returns the dead containers to remove: first all of pods that are removable, then of each other unit
// all but the newest keep; each oldest first.
func chooseContainers(all []*runtimeapi.Container, keep int, removable func(types.UID) bool) []*runtimeapi.Container {
	all = slices.SortedFunc(slices.Values(all), newerFirst)
	kept := map[unit]int{}
	var gone, surplus []*runtimeapi.Container
	for _, d := range all {
		if d.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		u := unit{d.GetLabels()[container.PodUIDLabel], d.GetMetadata().GetName()}
		switch {
		case removable(types.UID(u.uid)):
			gone = append(gone, d)
		case kept[u] < keep:
			kept[u]++
		default:
			surplus = append(surplus, d)
		}
	}
	slices.Reverse(gone)
	slices.Reverse(surplus)
	return append(gone, surplus...)
}

func (c *Collector) sandboxes(ctx context.Context, removable func(types.UID) bool) error {
	containers, err := c.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	all, err := c.CRI.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *runtimeapi.PodSandbox) bool { return !c.owns(s.GetLabels()) })
	for _, id := range chooseSandboxes(all, containers, removable) {
		c.Log.V(4).Info("Removing sandbox", "sandboxID", id)
		// It should be stopped since the end of its pod; removing one with a network would leak the network.
		if err := c.CRI.StopPodSandbox(ctx, id); err != nil {
			c.Log.Error(err, "Failed to stop sandbox before removing", "sandboxID", id)
			continue
		}
		if err := c.CRI.RemovePodSandbox(ctx, id); err != nil {
			c.Log.Error(err, "Failed to remove sandbox", "sandboxID", id)
		}
	}
	return nil
}

// chooseSandboxes returns the sandboxes to remove, oldest first: those that are not ready and have no container, except
// the newest sandbox of each pod that is not removable.
func chooseSandboxes(
	all []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, removable func(types.UID) bool,
) []string {
	all = slices.SortedFunc(slices.Values(all), newerFirst)
	occupied := map[string]bool{}
	for _, d := range containers {
		occupied[d.GetPodSandboxId()] = true
	}
	seen := map[string]bool{}
	var ids []string
	for _, s := range all {
		uid := s.GetMetadata().GetUid()
		newest := !seen[uid]
		seen[uid] = true
		active := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY || occupied[s.GetId()]
		if !active && (!newest || removable(types.UID(uid))) {
			ids = append(ids, s.GetId())
		}
	}
	slices.Reverse(ids)
	return ids
}

// newerFirst compares containers or sandboxes by their creation. The ids make the order total.
func newerFirst[T interface {
	GetCreatedAt() int64
	GetId() string
}](a, b T) int {
	return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(b.GetId(), a.GetId()))
}

// logs removes the log directories of pods that are removable, and then links whose log is gone.
func (c *Collector) logs() error {
	if !c.SourcesReady() {
		return nil
	}
	dirs, err := os.ReadDir(filepath.Join(c.LogDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range dirs {
		parts := strings.Split(dir.Name(), "_") // namespace_name_uid
		if len(parts) != 3 || !c.Pods.ShouldPodContentBeRemoved(types.UID(parts[2])) {
			continue
		}
		c.Log.V(4).Info("Removing pod logs", "podUID", parts[2])
		if err := os.RemoveAll(filepath.Join(c.LogDir, "pods", dir.Name())); err != nil {
			c.Log.Error(err, "Failed to remove pod logs directory", "path", dir.Name())
		}
	}
	links, err := filepath.Glob(filepath.Join(c.LogDir, "containers", "*"+container.LogSuffix))
	for _, link := range links {
		if _, err := os.Stat(link); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(link); err != nil {
			c.Log.Error(err, "Failed to remove container log dead symlink", "path", link)
		}
	}
	return err
}

// leastGrace is the least time that a container gets to end (minimumGracePeriodInSeconds in kuberuntime_manager.go).
const leastGrace = 2 * time.Second

// grace is a container's grace period by its annotations.
func grace(c *runtimeapi.Container) time.Duration {
	for _, key := range []string{container.DeletionGracePeriodAnnotation, container.TerminationGracePeriodAnnotation} {
		if seconds, err := strconv.ParseInt(c.GetAnnotations()[key], 10, 32); err == nil {
			return max(leastGrace, time.Duration(seconds)*time.Second)
		}
	}
	return leastGrace
}
