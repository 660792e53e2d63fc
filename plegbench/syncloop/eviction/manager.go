// Package eviction ends pods before the node runs out of memory, disk or processes: the kubelet's eviction manager
// (pkg/kubelet/eviction). Thresholds, the order of the pods and the texts are pure functions; the manager asks for
// the figures and acts. The package also watches the kernel's log for processes that the kernel itself has killed.
//
// Left out are the kernel's own notifications of memory thresholds, the thresholds of allocatable memory and
// containerfs, and the difference that images on another disk make.
package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// The kubelet's times (pkg/kubelet/kubelet.go and eviction/eviction_manager.go).
const (
	cleanupMost = 30 * time.Second
	cleanupPoll = time.Second

	immediateEvictionGracePeriodSeconds = 1
)

// evicted is the reason of evictions and of pods that are not admitted.
const evicted = "Evicted"

// Config configures a Manager.
type Config struct {
	// Summary measures the node and its pods: now if fresh, else at most 10 s ago.
	Summary func(ctx context.Context, fresh bool) (*statsapi.Summary, error)
	Pods    func() []*v1.Pod // that may have something running
	// Kill ends a pod and returns when it has ended, or when that takes too long, with an error. grace is in seconds,
	// and override completes its status.
	Kill func(ctx context.Context, p *v1.Pod, grace int64, override func(*v1.PodStatus)) error
	// CleanedUp reports whether nothing of an evicted pod uses resources any more.
	CleanedUp func(p *v1.Pod) bool
	// Reclaim free disk space that belongs to no pod, before a pod is evicted for lack of disk space.
	Reclaim          []func(ctx context.Context) error
	Thresholds       []Threshold
	MaxGrace         int64         // evictionMaxPodGracePeriod: seconds, of pods evicted by a soft threshold
	TransitionPeriod time.Duration // evictionPressureTransitionPeriod, 5 m
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

	state state // of the goroutine in Run

	mu         sync.Mutex
	conditions []v1.NodeConditionType
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, node: pod.NodeReference(cfg.NodeName)}
}

// Run makes a pass each Period until ctx ends; after an eviction it waits until the pod is cleaned up, and goes on at
// once. Its error is always nil. It belongs after the runtime's first answer.
func (m *Manager) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for ctx.Err() == nil {
			gone, err := m.synchronize(ctx)
			if err != nil {
				m.cfg.Log.Error(err, "Eviction manager: failed to synchronize")
			}
			if len(gone) == 0 {
				return
			}
			m.waitForPodsCleanup(ctx, gone)
		}
	}, m.cfg.Period)
	return nil
}

func (m *Manager) waitForPodsCleanup(ctx context.Context, gone []*v1.Pod) {
	pods := klog.KObjSlice(gone)
	m.cfg.Log.Info("Eviction manager: pods evicted, waiting for pod to be cleaned up", "pods", pods)
	err := wait.PollUntilContextTimeout(ctx, cleanupPoll, cleanupMost, false, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(gone, func(p *v1.Pod) bool { return !m.cfg.CleanedUp(p) }), nil
	})
	if err != nil {
		m.cfg.Log.Info("Eviction manager: timed out waiting for pods to be cleaned up", "pods", pods)
		return
	}
	m.cfg.Log.Info("Eviction manager: pods successfully cleaned up", "pods", pods)
}

// synchronize looks at the node once. It evicts the pods that exceed limits of their own on local storage, or else at
// most one pod for a threshold, and returns them. While the runtime does not answer nothing is evicted.
func (m *Manager) synchronize(ctx context.Context) ([]*v1.Pod, error) {
	pods := m.cfg.Pods()
	summary, err := m.cfg.Summary(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("eviction manager: failed to get summary stats: %w", err)
	}
	seen, now := observe(summary), time.Now()
	next, starved := m.state.next(m.cfg.Thresholds, seen, now)
	m.state = next
	m.mu.Lock()
	m.conditions = next.conditions(m.cfg.TransitionPeriod, now)
	m.mu.Unlock()
	for t, first := range next.first {
		if !slices.Contains(next.met, t) {
			m.cfg.Log.V(2).Info("Eviction manager: eviction criteria not yet met", "threshold", t.Signal,
				"gracePeriod", t.GracePeriod, "duration", now.Sub(first))
		}
	}
	if gone := m.localStorageEviction(ctx, pods, summary.Pods); len(gone) > 0 || len(starved) == 0 {
		return gone, nil
	}
	t := starved[0]
	name := t.Signal.resource()
	m.cfg.Log.Info("Eviction manager: attempting to reclaim", "resourceName", name)
	m.cfg.Recorder.Eventf(m.node, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if m.reclaimNodeLevelResources(ctx, t.Signal) {
		m.cfg.Log.Info("Eviction manager: able to reduce resource pressure without evicting pods.",
			"resourceName", name)
		return nil, nil
	}
	m.cfg.Log.Info("Eviction manager: must evict pod(s) to reclaim", "resourceName", name)
	ranked := rank(pods, summary.Pods, t.Signal)
	m.cfg.Log.Info("Eviction manager: pods ranked for eviction", "pods", klog.KObjSlice(ranked))
	for _, p := range ranked {
		grace := int64(immediateEvictionGracePeriodSeconds)
		if t.GracePeriod > 0 {
			grace = min(m.cfg.MaxGrace, ptr.Deref(p.Spec.TerminationGracePeriodSeconds, m.cfg.MaxGrace))
		}
		message := evictionMessage(p, t, seen[t.Signal], statsOf(summary.Pods, p))
		// By this condition controllers see that the pod did not fail by itself.
		why := &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message: message, ObservedGeneration: p.Generation, LastTransitionTime: metav1.Now(),
		}
		if m.evictPod(ctx, p, grace, string(t.Signal), message, why) {
			return []*v1.Pod{p}, nil
		}
	}
	m.cfg.Log.Info("Eviction manager: unable to evict any pods from the node")
	return nil, nil
}

// reclaimNodeLevelResources removes dead containers and unused images if a disk is full, and reports whether that was
// enough for all thresholds, with what is to be reclaimed at least.
func (m *Manager) reclaimNodeLevelResources(ctx context.Context, signal Signal) bool {
	if signal == MemoryAvailable || signal == PIDAvailable {
		return false
	}
	for _, free := range m.cfg.Reclaim {
		if err := free(ctx); err != nil {
			m.cfg.Log.Info("Eviction manager: unexpected error when attempting to reduce resource pressure",
				"resourceName", signal.resource(), "err", err)
		}
	}
	summary, err := m.cfg.Summary(ctx, true)
	if err != nil {
		m.cfg.Log.Error(err, "Eviction manager: failed to get summary stats after resource reclaim")
		return false
	}
	return len(thresholdsMet(m.cfg.Thresholds, observe(summary), true)) == 0
}

// evictPod ends a pod, unless it is critical, and reports whether it did. That the pod does not end in time changes
// nothing: it is evicted. why is nil, or a condition of the pod.
func (m *Manager) evictPod(
	ctx context.Context, p *v1.Pod, grace int64, signal, message string, why *v1.PodCondition,
) bool {
	if pod.IsCritical(p) {
		m.cfg.Log.Error(nil, "Eviction manager: cannot evict a critical pod", "pod", klog.KObj(p))
		return false
	}
	m.cfg.Recorder.Event(p, v1.EventTypeWarning, evicted, message)
	m.cfg.Log.V(3).Info("Evicting pod", "pod", klog.KObj(p), "podUID", p.UID, "message", message)
	err := m.cfg.Kill(ctx, p, grace, func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, evicted, message
		if why != nil {
			s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == why.Type })
			s.Conditions = append(s.Conditions, *why)
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

// Conditions returns the pressures that the node is under now, or was within the transition period.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.conditions)
}

// Admit reports whether a pod may start on this node now. If not, reason and message are for its status. Critical pods
// may always; when only memory is short, so may pods that ask for some of it, or tolerate the taint for that.
func (m *Manager) Admit(p *v1.Pod) (ok bool, reason, message string) {
	conditions := m.Conditions()
	onlyMemory := slices.Equal(conditions, []v1.NodeConditionType{v1.NodeMemoryPressure})
	tolerates := func() bool {
		taint := &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		return corev1.TolerationsTolerateTaint(m.cfg.Log, p.Spec.Tolerations, taint, false)
	}
	if len(conditions) == 0 || pod.IsCritical(p) ||
		onlyMemory && (pod.QOSClass(p) != v1.PodQOSBestEffort || tolerates()) {
		return true, "", ""
	}
	return false, evicted, fmt.Sprintf("The node had condition: %v. ", conditions)
}
