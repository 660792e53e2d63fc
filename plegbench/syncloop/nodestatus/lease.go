package nodestatus

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Numbers of k8s.io/component-helpers/apimachinery/lease upstream, whose controller is not used: it takes the whole
// clientset.
const (
	leaseTries     = 5
	leaseFirst     = 200 * time.Millisecond // pause after a try to make the lease, doubling
	leaseMost      = 7 * time.Second
	leasesPerLease = 4 // renewals within its duration (nodeLeaseRenewIntervalFraction is 0.25)
)

// keepLease renews the node's lease. It never waits for the runtime: a node whose runtime hangs becomes NotReady, but
// not Unknown.
func (m *Manager) keepLease(ctx context.Context) error {
	var lease *coordinationv1.Lease
	period := time.Duration(m.cfg.LeaseSeconds) * time.Second / leasesPerLease
	return every(ctx, period, passJitter, func(ctx context.Context) {
		if lease != nil {
			if lease = m.renew(ctx, lease); lease != nil || ctx.Err() != nil {
				return
			}
			m.cfg.Log.Info("failed to update lease using latest lease, fallback to ensure lease", "err", errLease)
		}
		var created bool
		if lease, created = m.ensureLease(ctx); lease == nil || created {
			return
		}
		if lease = m.renew(ctx, lease); lease == nil && ctx.Err() == nil {
			m.cfg.Log.Error(errLease, "Will retry updating lease", "interval", period)
		}
	})
}

// renew updates the lease on top of the one that was last seen, five times at most. It returns nil if that failed.
func (m *Manager) renew(ctx context.Context, base *coordinationv1.Lease) *coordinationv1.Lease {
	for range leaseTries {
		next := base.DeepCopy()
		next.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		renewed, err := m.cfg.Client.UpdateLease(callCtx, next)
		cancel()
		if err == nil {
			return renewed
		}
		if ctx.Err() != nil {
			return nil
		}
		m.cfg.Log.Error(err, "Failed to update lease")
		if apierrors.IsConflict(err) {
			if base, _ = m.ensureLease(ctx); base == nil {
				return nil
			}
		}
	}
	return nil
}

// ensureLease reads the lease, or creates it, until that has worked. It returns nil when the node is not there yet,
// or when ctx has ended.
func (m *Manager) ensureLease(ctx context.Context) (lease *coordinationv1.Lease, created bool) {
	for pause := leaseFirst; ; pause = min(2*pause, leaseMost) {
		lease, created, err := m.tryLease(ctx)
		if err == nil || ctx.Err() != nil {
			return lease, created
		}
		m.cfg.Log.Error(err, "Failed to ensure lease exists, will retry", "interval", pause)
		if !sleep(ctx, pause) {
			return nil, false
		}
	}
}

func (m *Manager) tryLease(ctx context.Context) (lease *coordinationv1.Lease, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if lease, err = m.cfg.Client.GetLease(ctx, m.cfg.NodeName); err == nil {
		return lease, false, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, false, err
	}
	node, err := m.cfg.Client.GetNode(ctx, m.cfg.NodeName)
	if err != nil { // no lease without an owner: the next period tries again
		m.cfg.Log.Error(err, "Failed to get node when trying to set owner ref to the node lease", "node", klog.KRef("", m.cfg.NodeName))
		return nil, false, nil
	}
	lease, err = m.cfg.Client.CreateLease(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.cfg.NodeName, Namespace: v1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &m.cfg.NodeName, LeaseDurationSeconds: &m.cfg.LeaseSeconds, RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	})
	if err != nil {
		return nil, false, err
	}
	return lease, true, nil
}
