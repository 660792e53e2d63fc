// Package gc removes what is left of pods that ended: dead containers beyond the newest, sandboxes, logs. It is the kubelet's
// container garbage collector (pkg/kubelet/kuberuntime/kuberuntime_gc.go) and the deletor that clears up after a container's
// death in between (pkg/kubelet/pod_container_deletor.go).
//
// It touches only what bears container.OwnerLabel with the node's name.
package gc

import (
	"context"
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

// Pods tells what the pod workers know.
type Pods interface {
	// ShouldPodContentBeRemoved reports whether a pod may lose all: it was evicted, or deleted and has terminated, or no
	// worker knows it.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved reports whether a pod has terminated.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// Config is what a Collector is made of.
type Config struct {
	CRI          CRI
	Pods         Pods
	Policy       Policy
	SourcesReady func() bool // all sources of pods have been seen
	NodeName     string      // the value of container.OwnerLabel
	// LogDir holds the pods' log directories, namespace_name_uid, and must be this node's alone. SymlinkDir holds the links to
	// the containers' logs. Empty means that there is none.
	LogDir, SymlinkDir string
	Period             time.Duration // ContainerGCPeriod of pkg/kubelet/kubelet.go: 1 m
	Log                logr.Logger
	Recorder           record.EventRecorder
	Metrics            *metrics.Metrics
}

// A Collector collects the garbage of one node.
type Collector struct{ cfg Config }

// New makes a Collector.
func New(cfg Config) *Collector {
	return &Collector{cfg}
}

// Run collects at once and then every Period, until ctx ends. Its error is always nil.
func (c *Collector) Run(ctx context.Context) error {
	failed := false
	wait.UntilWithContext(ctx, func(ctx context.Context) { failed = c.report(c.Collect(ctx), failed) }, c.cfg.Period)
	return nil
}

func (c *Collector) report(err error, failedBefore bool) (failed bool) {
	switch {
	case err != nil:
		c.cfg.Log.Error(err, "Container garbage collection failed")
		node := &v1.ObjectReference{Kind: "Node", Name: c.cfg.NodeName, UID: types.UID(c.cfg.NodeName)}
		c.cfg.Recorder.Event(node, v1.EventTypeWarning, "ContainerGCFailed", err.Error())
	case failedBefore:
		c.cfg.Log.V(1).Info("Container garbage collection succeeded")
	default:
		c.cfg.Log.V(4).Info("Container garbage collection succeeded")
	}
	return err != nil
}

// Collect makes one pass. Its error is that of a list; what cannot be removed is logged and left for the next pass.
func (c *Collector) Collect(ctx context.Context) error {
	return c.collect(ctx, c.cfg.Pods.ShouldPodContentBeRemoved)
}

// DeleteAllUnused makes one pass that also takes all of pods that have merely terminated, for an eviction.
func (c *Collector) DeleteAllUnused(ctx context.Context) error {
	c.cfg.Log.Info("Attempting to delete unused containers")
	return c.collect(ctx, func(uid types.UID) bool {
		return c.cfg.Pods.ShouldPodContentBeRemoved(uid) || c.cfg.Pods.ShouldPodRuntimeBeRemoved(uid)
	})
}

// collect makes the three steps of a pass; one that fails does not stop the next.
func (c *Collector) collect(ctx context.Context, removable func(types.UID) bool) error {
	return utilerrors.NewAggregate([]error{c.containers(ctx, removable), c.sandboxes(ctx, removable), c.logs(ctx)})
}

func (c *Collector) containers(ctx context.Context, removable func(types.UID) bool) error {
	all, err := c.cfg.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	if !c.cfg.SourcesReady() {
		removable = nil
	}
	for _, d := range chooseContainers(c.owned(all), c.cfg.Policy, removable, time.Now()) {
		if d.unknown {
			if err := c.cfg.CRI.StopContainer(ctx, d.id, grace(d.listed)); err != nil {
				c.cfg.Log.Error(err, "Failed to stop container", "containerID", d.id)
				continue
			}
		}
		if err := c.DeleteContainer(ctx, d.id); err != nil {
			c.cfg.Log.Error(err, "Failed to remove container", "containerID", d.id)
		}
	}
	return nil
}

func (c *Collector) sandboxes(ctx context.Context, removable func(types.UID) bool) error {
	containers, err := c.cfg.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	all, err := c.cfg.CRI.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	var own []*runtimeapi.PodSandbox
	for _, s := range all {
		if s.GetLabels()[container.OwnerLabel] == c.cfg.NodeName {
			own = append(own, s)
		}
	}
	for _, id := range chooseSandboxes(own, containers, removable, time.Now()) {
		c.cfg.Log.V(4).Info("Removing sandbox", "sandboxID", id)
		// It should have been stopped when its pod ended; a network that is still up would be lost track of.
		if err := c.cfg.CRI.StopPodSandbox(ctx, id); err != nil {
			c.cfg.Log.Error(err, "Failed to stop sandbox before removing", "sandboxID", id)
			continue
		}
		if err := c.cfg.CRI.RemovePodSandbox(ctx, id); err != nil {
			c.cfg.Log.Error(err, "Failed to remove sandbox", "sandboxID", id)
		}
	}
	return nil
}

// owned leaves out what others made.
func (c *Collector) owned(all []*runtimeapi.Container) []*runtimeapi.Container {
	var own []*runtimeapi.Container
	for _, listed := range all {
		if listed.GetLabels()[container.OwnerLabel] == c.cfg.NodeName {
			own = append(own, listed)
		}
	}
	return own
}
