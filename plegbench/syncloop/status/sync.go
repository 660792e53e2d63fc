package status

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A change is a status that the API server should have.
type change struct {
	uid, apiUID types.UID // of the pod; and the one that the API server knows it by, its mirror's for a static pod
	cached
}

// syncBatch sends, one after the other, the statuses whose version the API server does not have. A full pass also
// sends those that it has otherwise than they should be, and looks for pods that can be deleted.
func (m *Manager) syncBatch(ctx context.Context, all bool) {
	for _, c := range m.due(all) {
		if ctx.Err() != nil {
			return
		}
		m.cfg.Log.V(5).Info("Sync pod status", "podUID", c.uid, "statusUID", c.apiUID, "version", c.version)
		m.syncPod(ctx, c)
	}
}

func (m *Manager) due(all bool) []change {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []change
	have := make(map[types.UID]bool, len(m.pods))
	for uid, c := range m.pods {
		apiUID, api, ok := m.reported(uid)
		if !ok {
			m.cfg.Log.V(5).Info("Static pod does not have a corresponding mirror pod; skipping", "podUID", uid, "pod", klog.KRef(c.namespace, c.name))
			continue
		}
		have[apiUID] = true
		next := change{uid: uid, apiUID: apiUID, cached: c}
		switch {
		case m.sent[apiUID] < c.version, all && api != nil && canBeDeleted(api, c.finished):
			out = append(out, next)
		case all && api != nil && m.differs(api, c.status):
			delete(m.sent, apiUID)
			out = append(out, next)
		}
	}
	if all {
		for uid := range m.sent {
			if !have[uid] {
				delete(m.sent, uid)
			}
		}
	}
	slices.SortFunc(out, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid)) })
	return out
}

// reported is the pod as the API server has it, with its UID there. ok is false for a static pod without a mirror.
// The pod is nil if it is not desired any more.
func (m *Manager) reported(uid types.UID) (apiUID types.UID, api *v1.Pod, ok bool) {
	p, known := m.cfg.Pods.PodByUID(uid)
	if !known {
		return uid, nil, true
	}
	if !pod.IsStatic(p) {
		return uid, p, true
	}
	mirror, ok := m.cfg.Pods.MirrorOf(p)
	if !ok {
		return "", nil, false
	}
	return mirror.UID, mirror, true
}

// differs reports whether the API server has another status than the one that it was sent.
func (m *Manager) differs(api *v1.Pod, st v1.PodStatus) bool {
	there := api.Status.DeepCopy()
	normalize(api, there)
	if equal(there, &st) {
		return false
	}
	m.cfg.Log.V(3).Info("Pod status is inconsistent with cached status for pod, a reconciliation should be triggered", "pod", klog.KObj(api))
	return true
}

// canBeDeleted reports whether a pod can be removed from the API server: its deletion was requested, the
// API server has its terminal phase, and the node has nothing left of it. Mirrors are deleted elsewhere.
func canBeDeleted(api *v1.Pod, finished bool) bool {
	return api.DeletionTimestamp != nil && !pod.IsMirror(api) && pod.IsTerminal(api.Status.Phase) && finished
}

// syncPod brings one status to the API server, and deletes the pod there if that is all that was waited for. What
// fails is tried again by the next full pass.
func (m *Manager) syncPod(ctx context.Context, c change) {
	ref := klog.KRef(c.namespace, c.name)
	api, err := m.cfg.Client.GetPod(ctx, c.namespace, c.name)
	if apierrors.IsNotFound(err) {
		m.cfg.Log.V(3).Info("Pod does not exist on the server", "podUID", c.uid, "pod", ref)
		return
	}
	if err != nil {
		m.cfg.Log.Error(err, "Failed to get status for pod", "podUID", c.uid, "pod", ref)
		return
	}
	if uid := m.cfg.Pods.TranslateUID(api.UID); uid != c.uid {
		m.cfg.Log.V(2).Info("Pod was deleted and then recreated, skipping status update", "pod", ref, "oldPodUID", c.uid, "podUID", uid)
		m.forget(c.uid)
		return
	}
	if api, err = m.patch(ctx, api, c); err != nil {
		m.cfg.Log.Error(err, "Failed to update status for pod", "pod", ref)
		return
	}
	if !c.at.IsZero() {
		m.cfg.Metrics.PodStatusSyncDuration.Observe(time.Since(c.at).Truncate(time.Millisecond).Seconds())
	}
	m.sent[api.UID] = c.version
	m.mu.Lock()
	if now, ok := m.pods[c.uid]; ok && now.version == c.version {
		now.at = time.Time{}
		m.pods[c.uid] = now
	}
	m.mu.Unlock()
	if canBeDeleted(api, c.finished) {
		m.remove(ctx, api, c.uid)
	}
}

// patch sends what the API server does not have of a status, and returns the pod as it is then.
func (m *Manager) patch(ctx context.Context, api *v1.Pod, c change) (*v1.Pod, error) {
	merged := merge(api, c.status, m.cfg.Deletion.CouldHaveRunningContainers(c.uid), time.Now())
	patch, empty, err := makePatch(api, merged)
	if err != nil {
		return nil, err
	}
	m.cfg.Log.V(3).Info("Patch status for pod", "pod", klog.KObj(api), "podUID", c.uid, "patch", string(patch))
	if empty {
		m.cfg.Log.V(3).Info("Status for pod is up-to-date", "pod", klog.KObj(api), "statusVersion", c.version)
		return api, nil
	}
	patched, err := m.cfg.Client.PatchPodStatus(ctx, api.Namespace, api.Name, patch)
	if err != nil {
		return nil, fmt.Errorf("failed to patch status %q for pod %q/%q: %w", patch, api.Namespace, api.Name, err)
	}
	m.cfg.Log.V(3).Info("Status for pod updated successfully", "pod", klog.KObj(patched), "statusVersion", c.version, "status", merged)
	return patched, nil
}

// makePatch is the patch that turns the status of a pod into another. It names the UID, so that a pod of the same
// name that came since is left alone; it is empty if it holds nothing else.
func makePatch(api *v1.Pod, st v1.PodStatus) (patch []byte, empty bool, err error) {
	before, err := json.Marshal(v1.Pod{Status: api.Status})
	if err != nil {
		return nil, false, fmt.Errorf("encoding the status there is: %w", err)
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: api.UID}, Status: st})
	if err != nil {
		return nil, false, fmt.Errorf("encoding the new status: %w", err)
	}
	patch, err = strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err != nil {
		return nil, false, fmt.Errorf("comparing two statuses: %w", err)
	}
	return patch, bytes.Equal(patch, fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, api.UID)), nil
}

// remove deletes a pod at the API server at once, if it is still the same.
func (m *Manager) remove(ctx context.Context, api *v1.Pod, uid types.UID) {
	err := m.cfg.Client.DeletePod(ctx, api.Namespace, api.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(api.UID)),
	})
	if err != nil {
		m.cfg.Log.Info("Failed to delete status for pod", "pod", klog.KObj(api), "err", err)
		return
	}
	m.cfg.Log.V(3).Info("Pod fully terminated and removed from etcd", "pod", klog.KObj(api))
	m.forget(uid)
}

// merge is a status as the API server should have it: with the conditions and fields that others wrote there, and not
// terminal while a container of the pod may still run, since others take that for the node having let go of the pod.
func merge(api *v1.Pod, st v1.PodStatus, couldRun bool, now time.Time) v1.PodStatus {
	old := &api.Status
	out := *st.DeepCopy()
	out.Conditions = nil
	for _, c := range old.Conditions {
		if !ours(c.Type) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	foreign(&out, old)
	ends := !pod.IsTerminal(old.Phase) && pod.IsTerminal(st.Phase)
	for _, c := range st.Conditions {
		switch {
		case ours(c.Type):
			out.Conditions = append(out.Conditions, c)
		case c.Type == v1.DisruptionTarget && ends && !couldRun:
			// It was held back until now, so now is when it becomes true for others.
			c.LastTransitionTime = transition(&c, old.Conditions, now)
			out.Conditions = setCondition(out.Conditions, c)
		}
	}
	if ends && couldRun {
		out.Phase, out.Reason, out.Message = old.Phase, old.Reason, old.Message
	}
	if pod.IsTerminal(out.Phase) {
		unready(api, &out, now)
	}
	return out
}

// unready makes a pod not ready whose phase is terminal: probes and containers may not have caught up.
func unready(api *v1.Pod, st *v1.PodStatus, now time.Time) {
	isTrue := func(t v1.PodConditionType) bool {
		c := condition(st.Conditions, t)
		return c != nil && c.Status == v1.ConditionTrue
	}
	if !isTrue(v1.PodReady) && !isTrue(v1.ContainersReady) {
		return
	}
	reason := reasonFailed
	if st.Phase == v1.PodSucceeded {
		reason = reasonCompleted
	}
	for _, t := range []v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
		c := newCondition(api, t, v1.ConditionFalse, reason, "")
		c.LastTransitionTime = transition(&c, st.Conditions, now)
		st.Conditions = setCondition(st.Conditions, c)
	}
}
