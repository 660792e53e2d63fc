package pod

import (
	"context"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// A Client is the pods of an API server.
type Client interface {
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Mirrors creates and deletes the mirrors of static pods at the API server.
type Mirrors struct {
	client   Client
	nodeName string
	node     func() *v1.Node
	log      logr.Logger
}

// NewMirrors returns the mirrors of a node. node returns the node as the API server has it, or nil.
func NewMirrors(client Client, nodeName string, node func() *v1.Node, log logr.Logger) *Mirrors {
	return &Mirrors{client, nodeName, node, log}
}

// same reports whether a mirror is that of a static pod, in its present version.
func same(static, mirror *v1.Pod) bool {
	hash, ok := mirror.Annotations[ConfigMirrorAnnotation]
	return ok && FullName(static) == FullName(mirror) && hash == static.Annotations[ConfigHashAnnotation]
}

// Reconcile makes sure that a static pod has its mirror: one of another version, or one that is being deleted, is
// deleted and created anew. Errors are logged; the next sync of the pod tries again (tryReconcileMirrorPods in
// pkg/kubelet/kubelet.go upstream). mirror is nil if there is none.
func (m *Mirrors) Reconcile(ctx context.Context, static, mirror *v1.Pod) {
	if mirror != nil {
		if mirror.DeletionTimestamp == nil && same(static, mirror) {
			return
		}
		if !m.Delete(ctx, mirror, &mirror.UID) {
			return
		}
		m.log.Info("Deleted mirror pod as it didn't match the static Pod", "pod", klog.KObj(mirror))
	}
	node := m.node()
	switch {
	case node == nil || node.UID == "":
		m.log.Error(nil, "No need to create a mirror pod, since failed to get node info from the cluster",
			"node", klog.KRef("", m.nodeName))
	case node.DeletionTimestamp != nil:
		m.log.Info("No need to create a mirror pod, since node has been removed from the cluster",
			"node", klog.KRef("", m.nodeName))
	default:
		m.log.Info("Creating a mirror pod for static pod", "pod", klog.KObj(static))
		if err := m.create(ctx, static, node.UID); err != nil {
			m.log.Error(err, "Failed creating a mirror pod", "pod", klog.KObj(static))
		}
	}
}

// create creates the mirror of a static pod. An existing mirror of the same version will do.
func (m *Mirrors) create(ctx context.Context, static *v1.Pod, node types.UID) error {
	mirror := static.DeepCopy()
	mirror.Annotations[ConfigMirrorAnnotation] = static.Annotations[ConfigHashAnnotation]
	// The API server's node restriction lets a node create only pods that it owns.
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: m.nodeName, UID: node, Controller: new(true),
	}}
	_, err := m.client.CreatePod(ctx, mirror)
	if apierrors.IsAlreadyExists(err) {
		if existing, getErr := m.client.GetPod(ctx, static.Namespace, static.Name); getErr == nil && same(static, existing) {
			return nil
		}
	}
	return err
}

// Delete deletes a mirror at once, without a grace period, since it has no containers. With a UID it deletes only the
// mirror of that UID. It reports whether it did; what fails is logged, and housekeeping tries again.
func (m *Mirrors) Delete(ctx context.Context, mirror *v1.Pod, uid *types.UID) bool {
	m.log.V(2).Info("Deleting a mirror pod", "pod", klog.KObj(mirror), "podUID", mirror.UID)
	err := m.client.DeletePod(ctx, mirror.Namespace, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		m.log.Error(err, "Failed deleting a mirror pod", "pod", klog.KObj(mirror))
	}
	return err == nil
}
