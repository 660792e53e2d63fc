package gc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func TestGone(t *testing.T) {
	full := KubeletView{
		Pods:      []KubeletPod{{UID: "u1", Namespace: "default", Name: "web"}},
		Dirs:      []string{"u2"},
		Manifests: []string{"etcd", "kube-apiserver"},
	}
	unknown := crictl.Pod{UID: "u9", Namespace: "default", Name: "old"}
	without := func(change func(*KubeletView)) KubeletView { e := full; change(&e); return e }
	tests := []struct {
		name     string
		evidence KubeletView
		pod      crictl.Pod
		fromAPI  bool
		want     bool
	}{
		{"unknown", full, unknown, true, true},
		{"unknown, may be static", full, unknown, false, true},
		{"the kubelet's", full, crictl.Pod{UID: "u1"}, true, false},
		{"has a directory", full, crictl.Pod{UID: "u2"}, true, false},
		{"the same name, another uid", full, crictl.Pod{UID: "u9", Namespace: "default", Name: "web"}, true, true},
		{"the same name, may be static", full, crictl.Pod{UID: "u9", Namespace: "default", Name: "web"}, false, false},
		{"the same name elsewhere", full, crictl.Pod{UID: "u9", Namespace: "other", Name: "web"}, false, true},
		{"static", full, crictl.Pod{UID: "u9", Name: "kube-apiserver-node-1.example.com"}, false, false},
		{"static, the bare name", full, crictl.Pod{UID: "u9", Name: "etcd"}, false, false},
		{"only begins like a static one", full, crictl.Pod{UID: "u9", Name: "etcdx-node-1"}, false, true},
		{"from the API, named like a static one", full, crictl.Pod{UID: "u9", Name: "etcd-node-1"}, true, true},
		{"no uid", full, crictl.Pod{Name: "old"}, true, false},
		{"no pods", without(func(e *KubeletView) { e.PodsWithout = "refused" }), unknown, true, false},
		{"no directories", without(func(e *KubeletView) { e.DirsWithout = "hangs" }), unknown, true, false},
		{"no manifests", without(func(e *KubeletView) { e.ManifestsWithout = "unknown" }), unknown, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := NewLiveness(&tt.evidence).Gone(tt.pod, tt.fromAPI); got != tt.want {
				t.Errorf("gone: %t, want %t", got, tt.want)
			}
		})
	}
	if (&Liveness{}).Gone(crictl.Pod{UID: "u9"}, true) {
		t.Error("nothing is known, and a pod is gone")
	}
	e := without(func(e *KubeletView) { e.PodsWithout, e.DirsWithout = "401", "hangs" })
	if diff := cmp.Diff([]string{"the kubelet's pods: 401", "the pod directories: hangs"},
		NewLiveness(&e).Missing()); diff != "" {
		t.Error(diff)
	}
}

func TestReadManifests(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "manifests")
	for name, text := range map[string]string{
		"etcd.yaml":      "metadata:\n  name: etcd\nspec:\n  containers:\n  - name: 'main'\n    hostname: h\n",
		"api.json":       `{"kind":"Pod","metadata":{"name" : "Kube-API"}}`,
		"flow.yml":       "metadata: {name: flow, namespace: x}\n",
		".hidden":        "name: hidden",
		"sub/below.yaml": "name: below",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	got, err := ReadManifests(t.Context(), root, "/manifests")
	slices.Sort(got)
	if diff := cmp.Diff([]string{"etcd", "flow", "kube-api", "main"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	one, err := ReadManifests(t.Context(), root, "/manifests/etcd.yaml")
	if diff := cmp.Diff([]string{"etcd", "main"}, one); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for name, spoil := range map[string]func(path string) error{
		"no name":           func(path string) error { return os.WriteFile(path, []byte("kind: Pod\n"), 0o644) },
		"a link to nothing": func(path string) error { return os.Symlink("none", path) },
	} {
		path := filepath.Join(dir, "spoiled")
		must(t, spoil(path))
		if got, err := ReadManifests(t.Context(), root, "/manifests"); err == nil {
			t.Errorf("%s: %v and no error: the evidence is not complete", name, got)
		}
		must(t, os.Remove(path))
	}
}
