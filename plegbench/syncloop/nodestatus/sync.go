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

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Numbers of pkg/kubelet/kubelet_node_status.go and k8s.io/component-helpers/apimachinery/lease upstream, whose
// controller is not used: it takes the whole clientset.
const (
	tries         = 5                      // nodeStatusUpdateRetry, and of a renewal of the lease
	registerFirst = 100 * time.Millisecond // pause before a try to register, doubling
	registerMost  = 7 * time.Second
	callTimeout   = 10 * time.Second // of the heartbeat client
	leaseFraction = 4                // renewals of the lease within its duration
)

var (
	// errTries has the text of the kubelet's line about a node that could not be reported.
	errTries = errors.New("update node status exceeds retry count")
	errLease = fmt.Errorf("failed %d attempts to update lease", tries)
)

// pass registers the node if need be, computes its status and reports it.
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
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if m.cfg.Client != nil {
		stored, err := m.cfg.Client.GetNode(callCtx, m.cfg.NodeName)
		if err == nil {
			m.stored = stored
		} else if try > 0 || m.stored == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("error getting node %q: %w", m.cfg.NodeName, err)
		}
	}
	before := m.stored
	node := m.compute(ctx, before)
	due := time.Now().Add(m.cfg.Report)
	if changed(before.Status, node.Status) { // the nodes of a cluster shall not all report at one time
		due = due.Add(time.Duration(float64(m.cfg.Report) * (rand.Float64() - 0.5)))
	} else if time.Now().Before(m.due) {
		return nil
	}
	if m.cfg.Client == nil {
		m.stored, m.due = node, due
		return nil
	}
	was, errWas := json.Marshal(before)
	is, errIs := json.Marshal(node)
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.Node{})
	if err := errors.Join(errWas, errIs, err); err != nil {
		return fmt.Errorf("making a patch for node %q: %w", node.Name, err)
	}
	callCtx, cancel = context.WithTimeout(ctx, callTimeout) // Version may have taken its time
	defer cancel()
	stored, err := m.cfg.Client.PatchNodeStatus(callCtx, node.Name, patch)
	if err != nil {
		return fmt.Errorf("patching the status of node %q: %w", node.Name, err)
	}
	m.stored, m.due = stored, due
	return nil
}

// register makes the node's object, until it is there or ctx ends.
func (m *Manager) register(ctx context.Context) bool {
	labels := map[string]string{
		v1.LabelHostname: m.cfg.NodeName, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, m.cfg.Labels)
	initial := &v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: m.cfg.NodeName, Labels: labels},
		Spec:       v1.NodeSpec{Taints: slices.Clone(m.cfg.Taints)},
	}
	if m.cfg.Client == nil {
		m.stored = initial
		return true
	}
	backOff := wait.Backoff{Duration: registerFirst, Factor: 2, Cap: registerMost, Steps: 1 << 30}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backOff.Step()):
		}
		node := m.compute(ctx, initial)
		m.cfg.Log.Info("Attempting to register node", "node", klog.KObj(node))
		if m.tryRegister(ctx, node) {
			m.cfg.Log.Info("Successfully registered node", "node", klog.KObj(node))
			return true
		}
	}
}

// tryRegister creates the node, or takes the one that is there with the labels and taints that it has.
func (m *Manager) tryRegister(ctx context.Context, node *v1.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stored, err := m.cfg.Client.CreateNode(ctx, node)
	if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) { // one that must not create it may still own it
		stored, err = m.cfg.Client.GetNode(ctx, node.Name)
	}
	if err != nil {
		m.cfg.Log.Error(err, "Unable to register node with API server", "node", klog.KObj(node))
		return false
	}
	m.stored = stored
	return true
}

// keepLease renews the node's lease.
func (m *Manager) keepLease(ctx context.Context) error {
	period := time.Duration(m.cfg.LeaseSeconds) * time.Second / leaseFraction
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		for range tries {
			err := m.renew(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			m.cfg.Log.Error(err, "Failed to update lease")
		}
		m.cfg.Log.Error(errLease, "Will retry updating lease", "interval", period)
	}, period, passJitter, true)
	return ctx.Err()
}

// renew reads the lease and updates it, or creates it once the node is there to own it.
func (m *Manager) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := &metav1.MicroTime{Time: time.Now()}
	lease, err := m.cfg.Client.GetLease(ctx, m.cfg.NodeName)
	if err == nil {
		lease.Spec.RenewTime = now
		_, err = m.cfg.Client.UpdateLease(ctx, lease)
		return err
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	node, err := m.cfg.Client.GetNode(ctx, m.cfg.NodeName)
	if err != nil {
		m.cfg.Log.Error(err, "Failed to get node when trying to set owner ref to the node lease", "node", klog.KRef("", m.cfg.NodeName))
		return nil
	}
	_, err = m.cfg.Client.CreateLease(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.cfg.NodeName, Namespace: v1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &m.cfg.NodeName, LeaseDurationSeconds: &m.cfg.LeaseSeconds, RenewTime: now,
		},
	})
	return err
}
