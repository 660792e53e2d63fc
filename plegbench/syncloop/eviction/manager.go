// Package eviction ends pods before the node runs out of memory, disk or processes: the kubelet's eviction manager
// (pkg/kubelet/eviction). What is decided of thresholds, the order of the pods and the texts is pure; the manager only
// asks for the figures and acts.
//
// Left out are the kernel's own notifications of memory thresholds, and a file system of the containers' layers that is
// neither nodefs nor imagefs.
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
	// Kill ends a pod and returns when it has ended, or when that takes too long, with an error. override completes its status.
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
	thresholds []Threshold // with those for the containers' file system
	dedicated  bool
	known      bool // dedicated has been found out
	state      state

	mu         sync.Mutex
	conditions []v1.NodeConditionType
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, node: &v1.ObjectReference{Kind: "Node", Name: cfg.NodeName, UID: types.UID(cfg.NodeName)}}
}

// Run makes a pass each Period until ctx ends; after an eviction it waits until the pod is cleaned up, and goes on at once.
// Its error is always nil. It belongs after the runtime's first answer.
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		pods, err := m.pass(ctx)
		if err == nil && len(pods) > 0 {
			m.cfg.Log.Info("Eviction manager: pods evicted, waiting for pod to be cleaned up", "pods", klog.KObjSlice(pods))
			m.awaitCleanup(ctx, pods)
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

func (m *Manager) awaitCleanup(ctx context.Context, pods []*v1.Pod) {
	for start := time.Now(); ctx.Err() == nil; {
		sleep(ctx, cleanupPoll)
		done := true
		for _, p := range pods {
			done = done && m.cfg.CleanedUp(p)
		}
		switch {
		case done:
			m.cfg.Log.Info("Eviction manager: pods successfully cleaned up", "pods", klog.KObjSlice(pods))
			return
		case time.Since(start) >= cleanupMost:
			m.cfg.Log.Info("Eviction manager: timed out waiting for pods to be cleaned up", "pods", klog.KObjSlice(pods))
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
	var conflict bool
	if m.thresholds, conflict = withContainerFs(m.cfg.Thresholds, m.dedicated); conflict {
		m.cfg.Log.Error(errContainerFs, "eviction manager: found conflicting containerfs eviction. Ignoring.")
	}
	m.known = true
	return nil
}

const errContainerFs = parseError("thresholds of containerfs follow those of nodefs or imagefs")

// pass looks at the node once and evicts at most one pod for it, besides those that exceed limits of their own.
func (m *Manager) pass(ctx context.Context) ([]*v1.Pod, error) {
	m.cfg.Log.V(3).Info("Eviction manager: synchronize housekeeping")
	if err := m.prepare(ctx); err != nil {
		return nil, err
	}
	pods := m.cfg.Pods()
	summary, err := m.cfg.Summary(ctx)
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: failed to get summary stats") // and nobody is evicted until there are some
		return nil, nil
	}
	seen, stats, now := observe(summary), statsByUID(summary), time.Now()
	for _, t := range m.thresholds {
		if _, ok := seen[t.Signal]; !ok {
			m.cfg.Log.Info("Eviction manager: no observation found for eviction signal", "signal", t.Signal)
		}
	}
	next, starved, early := m.state.next(m.thresholds, seen, now)
	for _, i := range early {
		m.cfg.Log.V(2).Info("Eviction manager: eviction criteria not yet met", "threshold", m.thresholds[i].String(), "duration", now.Sub(next.since[i]))
	}
	m.state = next
	m.mu.Lock()
	m.conditions = next.conditions(m.cfg.TransitionPeriod, now)
	m.mu.Unlock()

	if over := m.evictOverLimit(ctx, pods, stats); len(over) > 0 {
		return over, nil
	}
	if len(starved) == 0 {
		m.cfg.Log.V(3).Info("Eviction manager: no resources are starved")
		return nil, nil
	}
	t := m.thresholds[starved[0]]
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
		message, annotations := explain(p, stats[string(p.UID)], t, seen)
		if m.evict(ctx, p, m.grace(p, t), string(t.Signal), message, annotations, true) {
			return []*v1.Pod{p}, nil
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
	return len(met(m.thresholds, observe(summary), true)) == 0
}

// evictOverLimit evicts all pods that use more local storage than their limits allow.
func (m *Manager) evictOverLimit(ctx context.Context, pods []*v1.Pod, stats podStats) []*v1.Pod {
	var gone []*v1.Pod
	for _, p := range pods {
		figures := stats[string(p.UID)]
		if figures == nil {
			continue
		}
		if signal, message := overLimit(p, figures, m.dedicated); signal != "" && m.evict(ctx, p, hardGrace, signal, message, nil, false) {
			gone = append(gone, p)
		}
	}
	return gone
}

// evict ends a pod, unless it is critical. That the pod does not end in time changes nothing: it is evicted.
func (m *Manager) evict(
	ctx context.Context, p *v1.Pod, grace int64, signal, message string, annotations map[string]string, disruption bool,
) bool {
	if pod.IsCritical(p) {
		m.cfg.Log.Error(nil, "Eviction manager: cannot evict a critical pod", "pod", klog.KObj(p))
		return false
	}
	m.cfg.Recorder.AnnotatedEventf(p, annotations, v1.EventTypeWarning, evicted, "%s", message)
	m.cfg.Log.V(3).Info("Evicting pod", "pod", klog.KObj(p), "podUID", p.UID, "message", message)
	err := m.cfg.Kill(ctx, p, true, &grace, func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, evicted, message
		if disruption {
			setDisrupted(s, message, p.Generation)
		}
	})
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: pod failed to evict", "pod", klog.KObj(p))
	} else {
		m.cfg.Log.Info("Eviction manager: pod is evicted successfully", "pod", klog.KObj(p))
	}
	m.cfg.Metrics.Evictions.WithLabelValues(signal).Inc()
	return true
}

// setDisrupted tells controllers that the pod did not fail by itself.
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
