package pod

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Manager is the desired state: the pods that the syncLoop was last told of. A static pod and its mirror at the API
// server have one full name and different UIDs, and are kept apart (basicManager in pkg/kubelet/pod/pod_manager.go
// upstream). All methods may be called at once; the pods must not be changed by anyone.
type Manager struct {
	mu         sync.RWMutex
	pods       map[types.UID]*v1.Pod
	mirrors    map[types.UID]*v1.Pod
	byName     map[string]*v1.Pod // of pods
	mirrorName map[string]*v1.Pod // of mirrors
	translated map[types.UID]types.UID
}

// NewManager returns a manager without pods.
func NewManager() *Manager {
	m := &Manager{}
	m.SetPods(nil)
	return m
}

// SetPods replaces all pods.
func (m *Manager) SetPods(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods, m.byName = map[types.UID]*v1.Pod{}, map[string]*v1.Pod{}
	m.mirrors, m.mirrorName = map[types.UID]*v1.Pod{}, map[string]*v1.Pod{}
	m.translated = map[types.UID]types.UID{}
	for _, p := range pods {
		m.put(p)
	}
}

// AddPod takes in a pod or mirror.
func (m *Manager) AddPod(p *v1.Pod) { m.UpdatePod(p) }

// UpdatePod takes in a pod or mirror in place of what had its UID.
func (m *Manager) UpdatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(p)
}

func (m *Manager) put(p *v1.Pod) {
	name := FullName(p)
	if IsMirror(p) {
		m.mirrors[p.UID], m.mirrorName[name] = p, p
	} else {
		m.pods[p.UID], m.byName[name] = p, p
	}
	static, mirror := m.byName[name], m.mirrorName[name]
	if static != nil && mirror != nil {
		m.translated[mirror.UID] = static.UID
	}
}

// RemovePod takes out a pod or mirror. A mirror whose static pod goes is then an orphan.
func (m *Manager) RemovePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := FullName(p)
	if IsMirror(p) {
		delete(m.mirrors, p.UID)
		delete(m.mirrorName, name)
		delete(m.translated, p.UID)
		return
	}
	delete(m.pods, p.UID)
	delete(m.byName, name)
}

// Pods returns all pods but the mirrors, in no order.
func (m *Manager) Pods() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.pods))
}

// PodsAndMirrors returns all pods and all mirrors, as they were at one moment.
func (m *Manager) PodsAndMirrors() (pods, mirrors []*v1.Pod) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.pods)), slices.Collect(maps.Values(m.mirrors))
}

// PodByUID returns the pod of a UID. A mirror's UID is not found.
func (m *Manager) PodByUID(uid types.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.pods[uid]
	return p, ok
}

// PodByFullName returns the pod, never the mirror, of a name as FullName writes it.
func (m *Manager) PodByFullName(name string) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.byName[name]
	return p, ok
}

// MirrorOf returns the mirror of a static pod.
func (m *Manager) MirrorOf(static *v1.Pod) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.mirrorName[FullName(static)]
	return p, ok
}

// PodOf returns the static pod of a mirror.
func (m *Manager) PodOf(mirror *v1.Pod) (*v1.Pod, bool) { return m.PodByFullName(FullName(mirror)) }

// TranslateUID turns a mirror's UID, which is what the API server knows, into that of its static pod. Any other UID stays.
func (m *Manager) TranslateUID(uid types.UID) types.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if static, ok := m.translated[uid]; ok {
		return static
	}
	return uid
}

// OrphanedMirrorNames returns the full names of the mirrors without a static pod, in order.
func (m *Manager) OrphanedMirrorNames() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var names []string
	for name := range m.mirrorName {
		if _, ok := m.byName[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
