package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

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

// Mirrors creates and deletes the pods that stand at the API server for the static ones.
type Mirrors struct {
	client   Client
	nodeName string
	node     func() (*v1.Node, error)
	log      logr.Logger
}

// NewMirrors returns the mirrors of a node. A nil client is a kubelet without an API server: nothing is created or deleted.
// node returns the node as the API server has it.
func NewMirrors(client Client, nodeName string, node func() (*v1.Node, error), log logr.Logger) *Mirrors {
	return &Mirrors{client, nodeName, node, log}
}

// Same reports whether a mirror stands for this static pod, and not for one that was edited since.
func (m *Mirrors) Same(static, mirror *v1.Pod) bool {
	hash, ok := mirror.Annotations[ConfigMirrorAnnotation]
	return ok && FullName(static) == FullName(mirror) && hash == static.Annotations[ConfigHashAnnotation]
}

// Reconcile sees to it that a static pod has its mirror: one that stands for another version, or is being deleted, is
// deleted and made anew. What goes wrong is logged; the next sync of the pod tries again (tryReconcileMirrorPods in
// pkg/kubelet/kubelet.go upstream). mirror is nil if there is none.
func (m *Mirrors) Reconcile(ctx context.Context, static, mirror *v1.Pod) {
	if m.client == nil || !IsStatic(static) {
		return
	}
	if mirror != nil {
		if mirror.DeletionTimestamp == nil && m.Same(static, mirror) {
			return
		}
		m.log.Info("Trying to delete pod", "pod", klog.KObj(mirror), "podUID", mirror.UID)
		deleted, err := m.Delete(ctx, FullName(static), &mirror.UID)
		if err != nil {
			m.log.Error(err, "Failed deleting mirror pod", "pod", klog.KObj(mirror))
		}
		if !deleted {
			return
		}
		m.log.Info("Deleted mirror pod as it didn't match the static Pod", "pod", klog.KObj(mirror))
	}
	node, err := m.node()
	switch {
	case err != nil:
		m.log.Error(err, "No need to create a mirror pod, since failed to get node info from the cluster", "node", klog.KRef("", m.nodeName))
	case node.DeletionTimestamp != nil:
		m.log.Info("No need to create a mirror pod, since node has been removed from the cluster", "node", klog.KRef("", m.nodeName))
	default:
		m.log.Info("Creating a mirror pod for static pod", "pod", klog.KObj(static))
		if err := m.Create(ctx, static); err != nil {
			m.log.Error(err, "Failed creating a mirror pod", "pod", klog.KObj(static))
		}
	}
}

// Create makes the mirror of a static pod. One that is there already and stands for the same pod is as good.
func (m *Mirrors) Create(ctx context.Context, static *v1.Pod) error {
	if m.client == nil {
		return nil
	}
	node, err := m.node()
	if err != nil {
		return fmt.Errorf("getting the node's UID: %w", err)
	}
	if node.UID == "" {
		return fmt.Errorf("getting the node's UID: UID unset for node %s", m.nodeName)
	}
	mirror := *static
	mirror.Annotations = maps.Clone(static.Annotations)
	mirror.Annotations[ConfigMirrorAnnotation] = static.Annotations[ConfigHashAnnotation]
	// The node restriction of the API server lets a node create only what it owns.
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: m.nodeName, UID: node.UID, Controller: new(true),
	}}
	_, err = m.client.CreatePod(ctx, &mirror)
	if apierrors.IsAlreadyExists(err) {
		if there, getErr := m.client.GetPod(ctx, static.Namespace, static.Name); getErr == nil && m.Same(static, there) {
			return nil
		}
	}
	return err
}

// errFullName is a full name that is none.
var errFullName = errors.New("a pod's full name is its name, one underscore and its namespace")

// Delete removes a mirror at once, without a grace period: no containers are behind it. With a UID it removes only the
// mirror of that UID. It reports whether a pod was deleted; that there was none, or that the API server refused, is no
// error, since housekeeping comes back to it.
func (m *Mirrors) Delete(ctx context.Context, fullName string, uid *types.UID) (bool, error) {
	if m.client == nil {
		return false, nil
	}
	name, namespace, ok := strings.Cut(fullName, "_")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, "_") {
		m.log.Error(errFullName, "Failed to parse a pod full name", "podFullName", fullName)
		return false, fmt.Errorf("%q: %w", fullName, errFullName)
	}
	var logged types.UID
	if uid != nil {
		logged = *uid
	}
	m.log.V(2).Info("Deleting a mirror pod", "pod", klog.KRef(namespace, name), "podUID", logged)
	err := m.client.DeletePod(ctx, namespace, name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		m.log.Error(err, "Failed deleting a mirror pod", "pod", klog.KRef(namespace, name))
	}
	return err == nil, nil
}
