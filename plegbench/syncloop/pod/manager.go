package pod

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Manager is the desired state: the pods that the sources last sent. A static pod and its mirror at the API server
// have one full name and different UIDs, and are kept apart (basicManager in pkg/kubelet/pod/pod_manager.go upstream).
// A Manager is safe for use by several goroutines. Its pods must not be changed.
type Manager struct {
	mu      sync.RWMutex
	pods    map[types.UID]*v1.Pod
	byName  map[string]*v1.Pod // of pods
	mirrors map[string]*v1.Pod // by full name
}

// NewManager returns a manager without pods.
func NewManager() *Manager {
	return &Manager{pods: map[types.UID]*v1.Pod{}, byName: map[string]*v1.Pod{}, mirrors: map[string]*v1.Pod{}}
}

// UpdatePod adds a pod or mirror, or replaces the one with its UID.
func (m *Manager) UpdatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := FullName(p)
	if IsMirror(p) {
		m.mirrors[name] = p
	} else {
		m.pods[p.UID], m.byName[name] = p, p
	}
}

// RemovePod removes a pod or mirror. The mirror of a removed static pod becomes an orphan.
func (m *Manager) RemovePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if IsMirror(p) {
		delete(m.mirrors, FullName(p))
		return
	}
	delete(m.pods, p.UID)
	delete(m.byName, FullName(p))
}

// Pods returns all pods but the mirrors, in no order.
func (m *Manager) Pods() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.pods))
}

// Mirrors returns all mirrors, in no order.
func (m *Manager) Mirrors() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.mirrors))
}

// PodByUID returns the pod of a UID. A mirror's UID is not found.
func (m *Manager) PodByUID(uid types.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.pods[uid]
	return p, ok
}

// MirrorOf returns the mirror of a static pod.
func (m *Manager) MirrorOf(static *v1.Pod) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.mirrors[FullName(static)]
	return p, ok
}

// PodOf returns the static pod of a mirror.
func (m *Manager) PodOf(mirror *v1.Pod) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.byName[FullName(mirror)]
	return p, ok
}

// TranslateUID turns the UID of a mirror, which the API server knows, into that of its static pod. Other UIDs are
// returned as they are.
func (m *Manager) TranslateUID(uid types.UID) types.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for name, mirror := range m.mirrors {
		if static := m.byName[name]; mirror.UID == uid && static != nil {
			return static.UID
		}
	}
	return uid
}

// OrphanedMirrors returns the mirrors without a static pod, sorted by name.
func (m *Manager) OrphanedMirrors() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var orphans []*v1.Pod
	for _, name := range slices.Sorted(maps.Keys(m.mirrors)) {
		if m.byName[name] == nil {
			orphans = append(orphans, m.mirrors[name])
		}
	}
	return orphans
}
