package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// syncBatch sends, one after the other, the statuses whose version the API server does not have. A full pass also
// sends those that it has otherwise than they should be, and looks for pods that can be deleted.
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
				m.cfg.Log.V(5).Info("Static pod does not have a corresponding mirror pod; skipping", "podUID", uid)
				continue
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

// syncPod brings one status to the API server, and deletes the pod there if that is all that was waited for. What
// fails is tried again by the next full pass.
func (m *Manager) syncPod(ctx context.Context, uid types.UID, c cached) {
	ref := klog.KRef(c.namespace, c.name)
	api, err := m.cfg.Client.GetPod(ctx, c.namespace, c.name)
	if apierrors.IsNotFound(err) {
		m.cfg.Log.V(3).Info("Pod does not exist on the server", "podUID", uid, "pod", ref)
		return
	}
	if err != nil {
		m.cfg.Log.Error(err, "Failed to get status for pod", "podUID", uid, "pod", ref)
		return
	}
	if now := m.cfg.Pods.TranslateUID(api.UID); now != uid {
		m.cfg.Log.V(2).Info("Pod was deleted and then recreated, skipping status update", "pod", ref, "oldPodUID", uid, "podUID", now)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forget(uid)
		return
	}
	if api, err = m.patch(ctx, api, uid, c); err != nil {
		m.cfg.Log.Error(err, "Failed to update status for pod", "pod", ref)
		return
	}
	if !c.at.IsZero() {
		m.cfg.Metrics.PodStatusSyncDuration.Observe(time.Since(c.at).Seconds())
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
		if now.version == c.version {
			now.at = time.Time{}
		}
		m.pods[uid] = now
	}
}

// patch sends what the API server does not have of a status, and returns the pod as it is then. The patch names the
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
	patched, err := m.cfg.Client.PatchPodStatus(ctx, api.Namespace, api.Name, patch)
	if err != nil {
		return nil, fmt.Errorf("failed to patch status %q for pod %q/%q: %w", patch, api.Namespace, api.Name, err)
	}
	m.cfg.Log.V(3).Info("Status for pod updated successfully", "pod", klog.KObj(patched), "statusVersion", c.version, "status", merged)
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
	Metadata struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		UID       types.UID `json:"uid"`
	} `json:"metadata"`
	Status v1.PodStatus `json:"status"`
}

// writeFile replaces the file if a status has changed since. What fails is tried again by the next full pass.
func (m *Manager) writeFile() {
	m.mu.Lock()
	if m.cfg.File == "" || !m.changed {
		m.mu.Unlock()
		return
	}
	m.changed = false
	list := List{APIVersion: "kdiag/v1", Kind: "PodStatusList", GeneratedAt: time.Now().UTC(), Items: []Item{}}
	for uid, c := range m.pods {
		item := Item{Status: *c.status.DeepCopy()}
		item.Metadata.Namespace, item.Metadata.Name, item.Metadata.UID = c.namespace, c.name, uid
		list.Items = append(list.Items, item)
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
