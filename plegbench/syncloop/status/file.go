package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A List is the document in the file: the status of every pod, by namespace, name and UID.
type List struct {
	APIVersion  string    `json:"apiVersion"` // kdiag/v1
	Kind        string    `json:"kind"`       // PodStatusList
	GeneratedAt time.Time `json:"generatedAt"`
	Items       []Item    `json:"items"`
}

// An Item is one pod's status, laid out as in a pod.
type Item struct {
	Metadata Metadata     `json:"metadata"`
	Status   v1.PodStatus `json:"status"`
}

// Metadata identifies the pod.
type Metadata struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// writeFile replaces the file if a status has changed since. What fails is tried again by the next full pass.
func (m *Manager) writeFile() {
	if m.cfg.File == "" {
		return
	}
	items := []Item{}
	m.mu.Lock()
	for uid, c := range m.pods {
		items = append(items, Item{Metadata{Namespace: c.namespace, Name: c.name, UID: uid}, *c.status.DeepCopy()})
	}
	m.mu.Unlock()
	slices.SortFunc(items, func(a, b Item) int {
		x, y := a.Metadata, b.Metadata
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
	})
	content, err := json.Marshal(items)
	if err == nil && bytes.Equal(content, m.written) {
		return
	}
	if err == nil {
		err = replace(m.cfg.File, List{APIVersion: "kdiag/v1", Kind: "PodStatusList", GeneratedAt: time.Now().UTC(), Items: items})
	}
	if err != nil {
		m.cfg.Log.Error(err, "Failed to write pod statuses", "path", m.cfg.File)
		return
	}
	m.written = content
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
