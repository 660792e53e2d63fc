package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"
)

// Numbers of pkg/kubelet/kubelet.go and kubelet_node_status.go upstream.
const (
	tries         = 5                      // nodeStatusUpdateRetry
	fastPeriod    = 100 * time.Millisecond // of passes until the node is first ready
	fastFor       = 120 * time.Second      // nodeReadyGracePeriod
	registerFirst = 100 * time.Millisecond // pause before a try to register, doubling
	registerMost  = 7 * time.Second
	callTimeout   = 10 * time.Second // of the heartbeat client
)

// errTries is the text of the kubelet's line about a node that could not be reported.
var (
	errTries = errors.New("update node status exceeds retry count")
	errLease = fmt.Errorf("failed %d attempts to update lease", leaseTries)
)

// enter waits for the turn; it reports false when ctx ended first.
func (m *Manager) enter(ctx context.Context) bool {
	select {
	case m.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *Manager) leave() { <-m.turn }

// sync is one pass: compute, and report if need be.
func (m *Manager) sync(ctx context.Context) {
	if !m.enter(ctx) {
		return
	}
	defer m.leave()
	m.pass(ctx)
}

func (m *Manager) pass(ctx context.Context) {
	if !m.registered && (m.cfg.Register || m.cfg.Client == nil) {
		if m.registered = m.register(ctx); !m.registered {
			return
		}
	}
	m.cfg.Log.V(5).Info("Updating node status")
	for try := range tries {
		err := m.update(ctx, try)
		if err == nil || ctx.Err() != nil {
			return
		}
		m.cfg.Log.Error(err, "Error updating node status, will retry")
	}
	m.cfg.Log.Error(errTries, "Unable to update node status")
}

// update computes the node and reports it if more than heartbeats changed or it was long ago. The node is read from
// the API server each time, and the first try goes on from what is remembered if that fails, so that a node is judged
// without an API server as well. The kubelet's first try reads what a watch has brought.
func (m *Manager) update(ctx context.Context, try int) error {
	if m.cfg.Client != nil {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		stored, err := m.cfg.Client.GetNode(callCtx, m.cfg.NodeName)
		if err == nil {
			m.stored = stored
		} else if try > 0 || m.stored == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("error getting node %q: %w", m.cfg.NodeName, err)
		}
	}
	before := m.stored
	node := m.compute(ctx, before)
	changed := nodeChanged(before, node)
	if !changed && time.Since(m.lastReport) < m.cfg.Report+m.delay {
		return nil
	}
	if changed || m.lastReport.IsZero() {
		m.delay = time.Duration(float64(m.cfg.Report) * (rand.Float64() - 0.5))
	} else {
		m.delay = 0
	}
	return m.report(ctx, before, node)
}

func nodeChanged(before, after *v1.Node) bool {
	return statusChanged(before.Status, after.Status) || !maps.Equal(before.Labels, after.Labels)
}

// report patches the node's status and labels; without an API server it only keeps the node.
func (m *Manager) report(ctx context.Context, before, node *v1.Node) error {
	if m.cfg.Client == nil {
		m.stored, m.lastReport = node, time.Now()
		return nil
	}
	after := node.DeepCopy()
	after.Spec = before.Spec // never ours to change
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("encoding node %q: %w", node.Name, err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("encoding node %q: %w", node.Name, err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.Node{})
	if err != nil {
		return fmt.Errorf("making a patch for node %q: %w", node.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stored, err := m.cfg.Client.PatchNodeStatus(ctx, node.Name, patch)
	if err != nil {
		return fmt.Errorf("patching the status of node %q: %w", node.Name, err)
	}
	m.stored, m.lastReport = stored, time.Now()
	return nil
}

// register makes the node's object, until it is there or ctx ends.
func (m *Manager) register(ctx context.Context) bool {
	if m.cfg.Client == nil {
		m.stored = m.compute(ctx, m.initial())
		return true
	}
	for pause := registerFirst; sleep(ctx, pause); pause = min(2*pause, registerMost) {
		node := m.compute(ctx, m.initial())
		m.cfg.Log.Info("Attempting to register node", "node", klog.KObj(node))
		if m.tryRegister(ctx, node) {
			m.cfg.Log.Info("Successfully registered node", "node", klog.KObj(node))
			return true
		}
	}
	return false
}

// betaOS and betaArch are labels from before v1.LabelOSStable that a kubelet still sets.
const betaOS, betaArch = "beta.kubernetes.io/os", "beta.kubernetes.io/arch"

func (m *Manager) initial() *v1.Node {
	labels := map[string]string{
		v1.LabelHostname: m.cfg.NodeName, betaOS: runtime.GOOS, betaArch: runtime.GOARCH,
		v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(labels, m.cfg.Labels)
	return &v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: m.cfg.NodeName, Labels: labels},
		Spec:       v1.NodeSpec{Taints: slices.Clone(m.cfg.Taints)},
	}
}

// tryRegister creates the node, or takes the one that is there with the labels and taints that it has.
func (m *Manager) tryRegister(ctx context.Context, node *v1.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stored, err := m.cfg.Client.CreateNode(ctx, node)
	if err == nil {
		m.stored = stored
		return true
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) { // one that must not create it may still own it
		m.cfg.Log.Error(err, "Unable to register node with API server", "node", klog.KObj(node))
		return false
	}
	if stored, err = m.cfg.Client.GetNode(ctx, node.Name); err != nil {
		m.cfg.Log.Error(err, "Unable to register node with API server, error getting existing node", "node", klog.KObj(node))
		return false
	}
	m.cfg.Log.Info("Node was previously registered", "node", klog.KObj(node))
	m.stored = stored
	return true
}

// fast tries each 100 ms whether the node has become ready, and reports that at once, so that a node does not wait
// for 10 s after its start. It ends when the node is ready, or after 120 s.
func (m *Manager) fast(ctx context.Context) error {
	start := time.Now()
	for !m.fastPass(ctx, time.Since(start) >= fastFor) {
		if !sleep(ctx, fastPeriod) {
			return ctx.Err()
		}
	}
	m.cfg.ExpectReady()
	return nil
}

func isReady(node *v1.Node) bool {
	i := find(node.Status.Conditions, v1.NodeReady)
	return i >= 0 && node.Status.Conditions[i].Status == v1.ConditionTrue
}

func (m *Manager) fastPass(ctx context.Context, late bool) (done bool) {
	if !m.enter(ctx) {
		return false
	}
	defer m.leave()
	if late {
		m.cfg.Log.Error(nil, "Node not becoming ready in time after startup")
		return true
	}
	if m.stored == nil {
		return false // not registered yet
	}
	if isReady(m.stored) {
		return true
	}
	m.cfg.UpdateRuntime(ctx)
	node := m.compute(ctx, m.stored)
	if !isReady(node) || ctx.Err() != nil {
		return false
	}
	m.cfg.Log.Info("Fast updating node status as it just became ready")
	if err := m.report(ctx, m.stored, node); err != nil {
		m.cfg.Log.Error(err, "Error updating node status, will retry with syncNodeStatus")
		m.pass(ctx)
	}
	return true
}
