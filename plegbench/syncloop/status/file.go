package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// Metadata says which pod it is.
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
	for _, e := range m.Snapshot() {
		items = append(items, Item{Metadata{Namespace: e.Namespace, Name: e.Name, UID: e.UID}, e.Status})
	}
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

// replace writes a document beside the file and moves it there: who reads the file finds the old one or the new one whole.
func replace(path string, list List) error {
	content, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding pod statuses: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("creating a file for pod statuses: %w", err)
	}
	_, err = tmp.Write(append(content, '\n'))
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // a leftover is worth no second error
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}
