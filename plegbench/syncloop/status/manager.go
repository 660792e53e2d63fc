package status

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Client is the pods of an API server.
type Client interface {
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
	PatchStatus(ctx context.Context, namespace, name string, patch []byte, into runtime.Object) error
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// A Config configures a Manager. Client and File may both be missing: then statuses are only kept.
type Config struct {
	Client   Client
	File     string // replaced atomically on each change by all statuses as one JSON document
	Pods     *pod.Manager
	CouldRun func(uid types.UID) bool // whether a container of the pod may still run
	Log      logr.Logger
	Interval time.Duration // between full passes: syncPeriod in pkg/kubelet/status/status_manager.go upstream, 10 s
}

// A Manager keeps the newest status of each pod and reports it. It is safe for use by several goroutines.
type Manager struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex
	pods    map[types.UID]cached
	changed bool // since the file was written
}

// A cached status is the newest of a pod.
type cached struct {
	status          v1.PodStatus
	version         uint64
	name, namespace string
	finished        bool      // SyncTerminatedPod has succeeded: nothing on the node is left to wait for
	sent            uint64    // the version that the API server has
	sentTo          types.UID // of the pod there that has it
}

// New makes a Manager. Statuses are reported while Run runs.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), pods: map[types.UID]cached{}, changed: true}
}

// Run reports changes as they come, and everything that differs each interval, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.writeFile() // so that the last change is not lost
			return ctx.Err()
		case <-m.wake:
			m.writeFile()
			m.syncBatch(ctx, false)
		case <-tick.C:
			m.writeFile()
			m.syncBatch(ctx, true)
		}
	}
}

// SetPodStatus takes a pod's new status.
func (m *Manager) SetPodStatus(p *v1.Pod, st v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st = *st.DeepCopy()
	st.ObservedGeneration = p.Generation
	// A pod that is being deleted is looked at again even if nothing changed, since it may be ready to go now.
	m.update(p, st, p.DeletionTimestamp != nil, false)
}

// TerminatePod completes the status of a pod of which nothing runs any more and nothing is left on the node but dead
// containers. From now on the pod may be deleted at the API server.
func (m *Manager) TerminatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := *p.Status.DeepCopy()
	if old, known := m.pods[p.UID]; known {
		st = *old.status.DeepCopy()
	}
	if !pod.IsStatic(p) && !pod.IsTerminal(st.Phase) {
		m.cfg.Log.V(3).Info("Marking terminal pod as failed", "oldPhase", st.Phase, "pod", klog.KObj(p), "podUID",
			p.UID)
		st.Phase = v1.PodFailed
	}
	m.update(p, st, true, true)
}

// PodStatus is the newest status of a pod, by its own UID or its mirror's. It shares nothing with the Manager.
func (m *Manager) PodStatus(uid types.UID) (v1.PodStatus, bool) {
	uid = m.cfg.Pods.TranslateUID(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.pods[uid]
	return *c.status.DeepCopy(), ok
}

// RemoveOrphanedStatuses forgets the pods that are not to be kept.
func (m *Manager) RemoveOrphanedStatuses(keep map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		if !keep[uid] {
			m.forget(uid)
		}
	}
}

// SetContainerReadiness takes the result of a readiness probe and updates the pod's conditions.
func (m *Manager) SetContainerReadiness(uid types.UID, id container.ID, isReady bool) {
	m.change(uid, id, "readiness", func(p *v1.Pod, st *v1.PodStatus, c *v1.ContainerStatus) {
		c.Ready = isReady
		all := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
		st.Conditions = setCondition(st.Conditions, ready(p, st.Conditions, all, st.Phase))
		st.Conditions = setCondition(st.Conditions, containersReady(p, all, st.Phase))
	})
}

// SetContainerStartup takes the result of a startup probe.
func (m *Manager) SetContainerStartup(uid types.UID, id container.ID, started bool) {
	m.change(uid, id, "startup", func(_ *v1.Pod, _ *v1.PodStatus, c *v1.ContainerStatus) { c.Started = &started })
}

// change applies the result of a probe.
func (m *Manager) change(
	uid types.UID, id container.ID, what string, apply func(*v1.Pod, *v1.PodStatus, *v1.ContainerStatus),
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.cfg.Pods.PodByUID(uid)
	old, known := m.pods[uid]
	if ok && known {
		st := old.status.DeepCopy()
		for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
			for i := range list {
				if list[i].ContainerID == id.String() {
					apply(p, st, &list[i])
					m.update(p, *st, false, false)
					return
				}
			}
		}
	}
	m.cfg.Log.V(4).Info("Container "+what+" changed for unknown container", "podUID", uid, "containerID", id.String())
}

// update stores a status if it differs from the last one, or if forced, and has it reported. The lock is held.
func (m *Manager) update(p *v1.Pod, st v1.PodStatus, force, finished bool) {
	old, known := m.pods[p.UID]
	before := old.status
	if !known {
		before = p.Status
		if mirror, ok := m.cfg.Pods.MirrorOf(p); ok {
			before = mirror.Status
		}
	}
	now := metav1.Now()
	for i := range st.Conditions {
		c := &st.Conditions[i]
		if was := condition(before.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		} else if ours(c.Type) || c.Type == v1.DisruptionTarget {
			c.LastTransitionTime = now
		}
	}
	if !before.StartTime.IsZero() {
		st.StartTime = before.StartTime.DeepCopy()
	} else if st.StartTime.IsZero() {
		st.StartTime = &now
	}
	if known && !force && same(&before, &st) {
		m.cfg.Log.V(3).Info("Ignoring same status for pod", "pod", klog.KObj(p), "status", st)
		return
	}
	next := old
	next.status, next.name, next.namespace = st, p.Name, p.Namespace
	next.version++
	next.finished = finished || old.finished && !pod.IsStatic(p)
	m.pods[p.UID] = next
	ready := cmp.Or(condition(st.Conditions, v1.PodReady), &v1.PodCondition{}) // the kubelet's line has the containers
	m.cfg.Log.V(3).Info("updateStatusInternal", "version", next.version, "pod", klog.KObj(p), "podUID", p.UID,
		"phase", st.Phase, "ready", ready.Status == v1.ConditionTrue, "why", ready.Message)
	m.wakeUp()
}

// same reports whether the API server would store two statuses as the same.
func same(a, b *v1.PodStatus) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// forget drops a status. The lock is held.
func (m *Manager) forget(uid types.UID) {
	delete(m.pods, uid)
	m.wakeUp()
}

// wakeUp makes Run report a change. The lock is held.
func (m *Manager) wakeUp() {
	m.changed = true
	select {
	case m.wake <- struct{}{}:
	default: // a pass is due already
	}
}

// syncBatch sends, one after the other, the statuses whose version the API server does not have. A full pass also
// sends those that differ at the API server, and deletes the pods that can be deleted.
func (m *Manager) syncBatch(ctx context.Context, all bool) {
	if m.cfg.Client == nil {
		return
	}
	for uid, c := range m.due(all) {
		m.syncPod(ctx, uid, c)
	}
}

func (m *Manager) due(all bool) map[types.UID]cached {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]cached{}
	for uid, c := range m.pods {
		apiUID := uid
		api, known := m.cfg.Pods.PodByUID(uid)
		if known && pod.IsStatic(api) {
			if api, known = m.cfg.Pods.MirrorOf(api); !known {
				continue // there is no object to report to
			}
			apiUID = api.UID
		}
		due := c.sent < c.version || c.sentTo != apiUID
		if all && known && !due {
			should := merge(api, c.status, m.cfg.CouldRun(uid))
			due = canBeDeleted(api, c.finished) || !same(&api.Status, &should)
		}
		if due {
			out[uid] = c
		}
	}
	return out
}

// canBeDeleted reports whether a pod can be removed from the API server: its deletion was requested, the
// API server has its terminal phase, and the node has nothing left of it. Mirrors are deleted elsewhere.
func canBeDeleted(api *v1.Pod, finished bool) bool {
	return api.DeletionTimestamp != nil && !pod.IsMirror(api) && pod.IsTerminal(api.Status.Phase) && finished
}

// syncPod brings one status to the API server, and deletes the pod there if nothing else is left to do. The next
// full pass retries a failure.
func (m *Manager) syncPod(ctx context.Context, uid types.UID, c cached) {
	ref := klog.KRef(c.namespace, c.name)
	api := &v1.Pod{}
	err := m.cfg.Client.Get(ctx, c.namespace, c.name, api)
	if apierrors.IsNotFound(err) {
		m.cfg.Log.V(3).Info("Pod does not exist on the server", "podUID", uid, "pod", ref)
		return
	}
	if err != nil {
		m.cfg.Log.Error(err, "Failed to get status for pod", "podUID", uid, "pod", ref)
		return
	}
	if now := m.cfg.Pods.TranslateUID(api.UID); now != uid {
		m.cfg.Log.V(2).Info("Pod was deleted and then recreated, skipping status update", "pod", ref, "oldPodUID", uid,
			"podUID", now)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forget(uid)
		return
	}
	if api, err = m.patch(ctx, api, uid, c); err != nil {
		m.cfg.Log.Error(err, "Failed to update status for pod", "pod", ref)
		return
	}
	var gone bool
	if canBeDeleted(api, c.finished) { // at once, if it is still the same
		err := m.cfg.Client.DeletePod(ctx, api.Namespace, api.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(api.UID)),
		})
		m.cfg.Log.V(3).Info("Pod fully terminated and removed from etcd", "pod", ref, "err", err)
		gone = err == nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, known := m.pods[uid]
	if gone {
		m.forget(uid)
	} else if known {
		now.sent, now.sentTo = c.version, api.UID
		m.pods[uid] = now
	}
}

// patch sends the difference between a status and the API server's, and returns the patched pod. The patch names the
// UID, so that a pod of the same name that came since is left alone.
func (m *Manager) patch(ctx context.Context, api *v1.Pod, uid types.UID, c cached) (*v1.Pod, error) {
	merged := merge(api, c.status, m.cfg.CouldRun(uid))
	if same(&api.Status, &merged) {
		m.cfg.Log.V(3).Info("Status for pod is up-to-date", "pod", klog.KObj(api), "statusVersion", c.version)
		return api, nil
	}
	before, errBefore := json.Marshal(v1.Pod{Status: api.Status})
	after, errAfter := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: api.UID}, Status: merged})
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err := errors.Join(errBefore, errAfter, err); err != nil {
		return nil, fmt.Errorf("making a patch for pod %q/%q: %w", api.Namespace, api.Name, err)
	}
	patched := &v1.Pod{}
	if err := m.cfg.Client.PatchStatus(ctx, api.Namespace, api.Name, patch, patched); err != nil {
		return nil, fmt.Errorf("failed to patch status %q for pod %q/%q: %w", patch, api.Namespace, api.Name, err)
	}
	m.cfg.Log.V(3).Info("Status for pod updated successfully", "pod", klog.KObj(patched), "statusVersion", c.version,
		"status", merged)
	return patched, nil
}

// merge is a status as the API server should have it: with the conditions that others wrote there, and not terminal
// while a container of the pod may still run, since others take that for the node having let go of the pod.
func merge(api *v1.Pod, st v1.PodStatus, couldRun bool) v1.PodStatus {
	old := &api.Status
	out := *st.DeepCopy()
	out.Conditions = others(old.Conditions)
	for _, c := range st.Conditions {
		if ours(c.Type) || c.Type == v1.DisruptionTarget {
			out.Conditions = setCondition(out.Conditions, c)
		}
	}
	if couldRun && pod.IsTerminal(st.Phase) && !pod.IsTerminal(old.Phase) {
		out.Phase, out.Reason, out.Message = old.Phase, old.Reason, old.Message
	}
	return out
}

// A List is the document in the file: the status of every pod, by namespace, name and UID.
type List struct {
	APIVersion  string    `json:"apiVersion"` // kdiag/v1
	Kind        string    `json:"kind"`       // PodStatusList
	GeneratedAt time.Time `json:"generatedAt"`
	Items       []Item    `json:"items"`
}

// An Item is one pod's status, laid out as in a pod.
type Item struct {
	Metadata metav1.ObjectMeta `json:"metadata"` // namespace, name and UID
	Status   v1.PodStatus      `json:"status"`
}

// writeFile replaces the file if a status has changed since. The next full pass retries a failure.
func (m *Manager) writeFile() {
	m.mu.Lock()
	if m.cfg.File == "" || !m.changed {
		m.mu.Unlock()
		return
	}
	m.changed = false
	list := List{APIVersion: "kdiag/v1", Kind: "PodStatusList", GeneratedAt: time.Now().UTC(), Items: []Item{}}
	for uid, c := range m.pods {
		meta := metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, UID: uid}
		list.Items = append(list.Items, Item{meta, *c.status.DeepCopy()})
	}
	m.mu.Unlock()
	slices.SortFunc(list.Items, func(a, b Item) int {
		x, y := a.Metadata, b.Metadata
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
	})
	if err := replace(m.cfg.File, list); err != nil {
		m.cfg.Log.Error(err, "Failed to write pod statuses", "path", m.cfg.File)
		m.mu.Lock()
		m.changed = true
		m.mu.Unlock()
	}
}

// replace writes a document beside the file and renames it, so that a reader finds the old document or the new one.
func replace(path string, list List) error {
	content, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
