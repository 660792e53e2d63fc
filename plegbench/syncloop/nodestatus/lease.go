package nodestatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Numbers of k8s.io/component-helpers/apimachinery/lease upstream.
const (
	leaseTries     = 5
	leaseFirst     = 200 * time.Millisecond // pause after a try to make the lease, doubling
	leaseMost      = 7 * time.Second
	leasesPerLease = 4 // renewals within its duration (nodeLeaseRenewIntervalFraction is 0.25)
)

// keepLease renews the node's lease. It has nothing to do with the runtime: a node whose runtime hangs goes NotReady, but
// not Unknown.
func (m *Manager) keepLease(ctx context.Context) error {
	var lease *coordinationv1.Lease
	period := time.Duration(m.cfg.LeaseSeconds) * time.Second / leasesPerLease
	return every(ctx, period, passJitter, func(ctx context.Context) {
		if lease != nil {
			renewed, err := m.renew(ctx, lease)
			if err == nil {
				lease = renewed
				return
			}
			m.cfg.Log.Info("failed to update lease using latest lease, fallback to ensure lease", "err", err)
		}
		var created bool
		lease, created = m.ensureLease(ctx)
		if lease == nil || created {
			return
		}
		renewed, err := m.renew(ctx, lease)
		if err != nil {
			m.cfg.Log.Error(err, "Will retry updating lease", "interval", period)
			return
		}
		lease = renewed
	})
}

// renew updates the lease on top of the one that was last seen, five times at most.
func (m *Manager) renew(ctx context.Context, base *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	for range leaseTries {
		lease, err := m.lease(ctx, base)
		if err != nil {
			m.cfg.Log.Error(err, "Failed to prepare lease") // it is renewed all the same, without its owner
		}
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		lease, err = m.cfg.Client.UpdateLease(callCtx, lease)
		cancel()
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.cfg.Log.Error(err, "Failed to update lease")
		if apierrors.IsConflict(err) {
			if base, _ = m.ensureLease(ctx); base == nil {
				break
			}
		}
	}
	return nil, fmt.Errorf("failed %d attempts to update lease", leaseTries)
}

// ensureLease reads the lease, or creates it, until that has worked. It returns nil when the node is not there yet, or when
// ctx has ended.
func (m *Manager) ensureLease(ctx context.Context) (lease *coordinationv1.Lease, created bool) {
	for pause := leaseFirst; ; pause = min(2*pause, leaseMost) {
		lease, created, err := m.tryLease(ctx)
		if err == nil {
			return lease, created
		}
		if ctx.Err() != nil {
			return nil, false
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
	lease, err = m.cfg.Client.GetLease(ctx, m.cfg.NodeName)
	if !apierrors.IsNotFound(err) {
		return lease, false, err
	}
	if lease, err = m.lease(ctx, nil); err != nil {
		return nil, false, nil // no lease without an owner: the next period tries again
	}
	lease, err = m.cfg.Client.CreateLease(ctx, lease)
	return lease, err == nil, err
}

// lease is a new one, or the given one renewed. An error means that it has no owner, because the node could not be read.
func (m *Manager) lease(ctx context.Context, base *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease := base.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: m.cfg.NodeName, Namespace: v1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.cfg.NodeName},
		}
	}
	lease.Spec.LeaseDurationSeconds = &m.cfg.LeaseSeconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if len(lease.OwnerReferences) > 0 {
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := m.cfg.Client.GetNode(ctx, m.cfg.NodeName)
	if err != nil {
		m.cfg.Log.Error(err, "Failed to get node when trying to set owner ref to the node lease", "node", klog.KRef("", m.cfg.NodeName))
		return lease, err
	}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return lease, nil
}
