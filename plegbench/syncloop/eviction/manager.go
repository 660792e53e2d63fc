// Package eviction ends pods before the node runs out of memory, disk or processes: the kubelet's eviction manager
// (pkg/kubelet/eviction). Thresholds, the order of the pods and the texts are pure functions; the manager asks for
// the figures and acts. The package also watches the kernel's log for processes that the kernel itself has killed.
//
// Left out are the kernel's own notifications of memory thresholds, the thresholds of allocatable memory and
// containerfs, and pods that exceed limits of their own on local storage.
package eviction

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// The kubelet's times (pkg/kubelet/kubelet.go and eviction/eviction_manager.go).
const (
	cleanupMost = 30 * time.Second
	cleanupPoll = time.Second
	hardGrace   = 1 // seconds that a pod is given when a hard threshold is met
)

// evicted is the reason of evictions and of pods that are not admitted.
const evicted = "Evicted"

// Reclaim frees what belongs to no pod, before any pod is evicted for the disk's sake.
type Reclaim struct {
	Containers, Images func(ctx context.Context) error
}

// Config is what a Manager is made of.
type Config struct {
	Summary func(ctx context.Context) (*statsapi.Summary, error)
	Pods    func() []*v1.Pod // that may have something running
	// Kill ends a pod and returns when it has ended, or when that takes too long, with an error. override completes
	// its status.
	Kill func(ctx context.Context, p *v1.Pod, evict bool, grace *int64, override func(*v1.PodStatus)) error
	// CleanedUp reports whether nothing of an evicted pod uses resources any more.
	CleanedUp func(p *v1.Pod) bool
	// DedicatedImageFs reports whether the images are on another file system than the kubelet's root directory.
	DedicatedImageFs func(ctx context.Context) (bool, error)
	Reclaim          Reclaim
	Thresholds       []Threshold
	TransitionPeriod time.Duration // evictionPressureTransitionPeriod, 5 m
	MaxPodGrace      int64         // evictionMaxPodGracePeriod, in seconds
	Period           time.Duration // 10 s
	NodeName         string
	Log              logr.Logger
	Recorder         record.EventRecorder
	Metrics          *metrics.Metrics
}

// A Manager watches one node's resources.
type Manager struct {
	cfg  Config
	node *v1.ObjectReference

	// Of the goroutine in Run.
	dedicated bool
	known     bool // dedicated has been found out
	state     state

	mu         sync.Mutex
	conditions []v1.NodeConditionType
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, node: &v1.ObjectReference{Kind: "Node", Name: cfg.NodeName, UID: types.UID(cfg.NodeName)}}
}

// Run makes a pass each Period until ctx ends; after an eviction it waits until the pod is cleaned up, and goes on at
// once. Its error is always nil. It belongs after the runtime's first answer.
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		gone, err := m.pass(ctx)
		if err == nil && gone != nil {
			m.awaitCleanup(ctx, gone)
			continue
		}
		if err != nil {
			m.cfg.Log.Error(err, "Eviction manager: failed to synchronize")
		}
		sleep(ctx, m.cfg.Period)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (m *Manager) awaitCleanup(ctx context.Context, p *v1.Pod) {
	pods := klog.KObjSlice([]*v1.Pod{p})
	m.cfg.Log.Info("Eviction manager: pods evicted, waiting for pod to be cleaned up", "pods", pods)
	for start := time.Now(); ctx.Err() == nil; {
		sleep(ctx, cleanupPoll)
		if m.cfg.CleanedUp(p) {
			m.cfg.Log.Info("Eviction manager: pods successfully cleaned up", "pods", pods)
			return
		}
		if time.Since(start) >= cleanupMost {
			m.cfg.Log.Info("Eviction manager: timed out waiting for pods to be cleaned up", "pods", pods)
			return
		}
	}
}

// prepare finds out once how the disks are laid out. The runtime must answer for that.
func (m *Manager) prepare(ctx context.Context) (err error) {
	if m.known {
		return nil
	}
	if m.dedicated, err = m.cfg.DedicatedImageFs(ctx); err != nil {
		m.cfg.Log.Error(err, "Eviction manager: failed to get HasDedicatedImageFs")
		return fmt.Errorf("eviction manager: failed to get HasDedicatedImageFs: %w", err)
	}
	m.known = true
	return nil
}

// pass looks at the node once and evicts at most one pod, which it returns.
func (m *Manager) pass(ctx context.Context) (*v1.Pod, error) {
	m.cfg.Log.V(3).Info("Eviction manager: synchronize housekeeping")
	if err := m.prepare(ctx); err != nil {
		return nil, err
	}
	pods := m.cfg.Pods()
	summary, err := m.cfg.Summary(ctx)
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: failed to get summary stats") // no pod is evicted without them
		return nil, nil
	}
	seen, stats, now := observe(summary), statsByUID(summary), time.Now()
	for _, t := range m.cfg.Thresholds {
		if _, ok := seen[t.Signal]; !ok {
			m.cfg.Log.Info("Eviction manager: no observation found for eviction signal", "signal", t.Signal)
		}
	}
	next, starved, early := m.state.next(m.cfg.Thresholds, seen, now)
	for _, i := range early {
		m.cfg.Log.V(2).Info("Eviction manager: eviction criteria not yet met", "threshold", m.cfg.Thresholds[i].String(), "duration", now.Sub(next.since[i]))
	}
	m.state = next
	m.mu.Lock()
	m.conditions = next.conditions(m.cfg.TransitionPeriod, now)
	m.mu.Unlock()

	if len(starved) == 0 {
		m.cfg.Log.V(3).Info("Eviction manager: no resources are starved")
		return nil, nil
	}
	t := m.cfg.Thresholds[starved[0]]
	name := t.Signal.resource()
	m.cfg.Log.Info("Eviction manager: attempting to reclaim", "resourceName", name)
	m.cfg.Recorder.Eventf(m.node, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if m.reclaim(ctx, t.Signal) {
		m.cfg.Log.Info("Eviction manager: able to reduce resource pressure without evicting pods.", "resourceName", name)
		return nil, nil
	}
	m.cfg.Log.Info("Eviction manager: must evict pod(s) to reclaim", "resourceName", name)
	if len(pods) == 0 {
		m.cfg.Log.Error(nil, "Eviction manager: eviction thresholds have been met, but no pods are active to evict")
		return nil, nil
	}
	ranked := rank(pods, stats, t.Signal, m.dedicated)
	m.cfg.Log.Info("Eviction manager: pods ranked for eviction", "pods", klog.KObjSlice(ranked))
	for _, p := range ranked {
		message := explain(p, stats[string(p.UID)], t, seen)
		if m.evict(ctx, p, m.grace(p, t), string(t.Signal), message) {
			return p, nil
		}
	}
	m.cfg.Log.Info("Eviction manager: unable to evict any pods from the node")
	return nil, nil
}

// grace is how many seconds a pod is given to end.
func (m *Manager) grace(p *v1.Pod, t Threshold) int64 {
	switch own := p.Spec.TerminationGracePeriodSeconds; {
	case t.Grace == 0:
		return hardGrace
	case own != nil:
		return min(m.cfg.MaxPodGrace, *own)
	}
	return m.cfg.MaxPodGrace
}

// reclaim removes dead containers and unused images if they are on the disk that is full, and reports whether that was
// enough for all thresholds.
func (m *Manager) reclaim(ctx context.Context, signal Signal) bool {
	name, onNodeFs := signal.resource(), signal == NodeFsAvailable || signal == NodeFsInodesFree
	if name == v1.ResourceMemory || name == pids || onNodeFs && m.dedicated {
		return false
	}
	for _, free := range []func(context.Context) error{m.cfg.Reclaim.Containers, m.cfg.Reclaim.Images} {
		if err := free(ctx); err != nil {
			m.cfg.Log.Info("Eviction manager: unexpected error when attempting to reduce resource pressure", "resourceName", name, "err", err)
		}
	}
	summary, err := m.cfg.Summary(ctx)
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: failed to get summary stats after resource reclaim")
		return false
	}
	return len(met(m.cfg.Thresholds, observe(summary), true)) == 0
}

// evict ends a pod, unless it is critical. That the pod does not end in time changes nothing: it is evicted.
func (m *Manager) evict(ctx context.Context, p *v1.Pod, grace int64, signal, message string) bool {
	if pod.IsCritical(p) {
		m.cfg.Log.Error(nil, "Eviction manager: cannot evict a critical pod", "pod", klog.KObj(p))
		return false
	}
	m.cfg.Recorder.Event(p, v1.EventTypeWarning, evicted, message)
	m.cfg.Log.V(3).Info("Evicting pod", "pod", klog.KObj(p), "podUID", p.UID, "message", message)
	err := m.cfg.Kill(ctx, p, true, &grace, func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, evicted, message
		setDisrupted(s, message, p.Generation)
	})
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: pod failed to evict", "pod", klog.KObj(p))
	} else {
		m.cfg.Log.Info("Eviction manager: pod is evicted successfully", "pod", klog.KObj(p))
	}
	m.cfg.Metrics.Evictions.WithLabelValues(signal).Inc()
	return true
}

// setDisrupted sets the condition by which controllers see that the pod did not fail by itself.
func setDisrupted(s *v1.PodStatus, message string, generation int64) {
	c := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.Now(),
	}
	for i := range s.Conditions {
		if old := &s.Conditions[i]; old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}
