package pod

import (
	"context"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// A Manager is the desired state: the pods that the sources last sent. A static pod and its mirror at the API server
// have one full name and different UIDs, and are kept apart (basicManager in pkg/kubelet/pod/pod_manager.go upstream).
// A Manager is safe for use by several goroutines. Its pods must not be changed.
type Manager struct {
	mu   sync.RWMutex
	pods map[types.UID]*v1.Pod // mirrors too
}

// NewManager returns a manager without pods.
func NewManager() *Manager { return &Manager{pods: map[types.UID]*v1.Pod{}} }

// UpdatePod adds a pod or mirror, or replaces the one with its UID.
func (m *Manager) UpdatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[p.UID] = p
}

// RemovePod removes a pod or mirror. The mirror of a removed static pod becomes an orphan.
func (m *Manager) RemovePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, p.UID)
}

// Pods returns all pods but the mirrors, in no order.
func (m *Manager) Pods() []*v1.Pod {
	return m.which(func(p *v1.Pod) bool { return !IsMirror(p) })
}

// Mirrors returns all mirrors, in no order.
func (m *Manager) Mirrors() []*v1.Pod { return m.which(IsMirror) }

func (m *Manager) which(match func(*v1.Pod) bool) (out []*v1.Pod) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.pods {
		if match(p) {
			out = append(out, p)
		}
	}
	return out
}

// PodByUID returns the pod of a UID. A mirror's UID is not found.
func (m *Manager) PodByUID(uid types.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.pods[uid]; p != nil && !IsMirror(p) {
		return p, true
	}
	return nil, false
}

// MirrorOf returns the mirror of a static pod.
func (m *Manager) MirrorOf(static *v1.Pod) (*v1.Pod, bool) { return m.twin(static, true) }

// PodOf returns the static pod of a mirror.
func (m *Manager) PodOf(mirror *v1.Pod) (*v1.Pod, bool) { return m.twin(mirror, false) }

func (m *Manager) twin(of *v1.Pod, mirror bool) (*v1.Pod, bool) {
	found := m.which(func(p *v1.Pod) bool {
		return p.Name == of.Name && p.Namespace == of.Namespace && IsMirror(p) == mirror
	})
	if len(found) == 0 {
		return nil, false
	}
	return found[0], true
}

// TranslateUID turns the UID of a mirror, which the API server knows, into that of its static pod. Other UIDs are
// returned as they are.
func (m *Manager) TranslateUID(uid types.UID) types.UID {
	m.mu.RLock()
	p := m.pods[uid]
	m.mu.RUnlock()
	if p != nil && IsMirror(p) {
		if static, ok := m.PodOf(p); ok {
			return static.UID
		}
	}
	return uid
}

// OrphanedMirrors returns the mirrors without a static pod, in no order.
func (m *Manager) OrphanedMirrors() []*v1.Pod {
	return slices.DeleteFunc(m.Mirrors(), func(mirror *v1.Pod) bool {
		_, owned := m.PodOf(mirror)
		return owned
	})
}

// A Client is the pods of an API server.
type Client interface {
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, o runtime.Object) error
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

// same reports whether a mirror belongs to a static pod in its present version.
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
	err := m.client.Create(ctx, mirror)
	existing := &v1.Pod{}
	if apierrors.IsAlreadyExists(err) && m.client.Get(ctx, static.Namespace, static.Name, existing) == nil &&
		same(static, existing) {
		return nil
	}
	return err
}

// Delete deletes a mirror at once, without a grace period, since it has no containers. With a UID it deletes only the
// mirror of that UID. It reports success; a failure is logged, and housekeeping tries again.
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
