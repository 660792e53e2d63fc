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
	for _, tt := range []struct {
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
	} {
		if got := NewLiveness(&tt.evidence).Gone(tt.pod, tt.fromAPI); got != tt.want {
			t.Errorf("%s: gone: %t, want %t", tt.name, got, tt.want)
		}
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

func TestCensus(t *testing.T) {
	w := newWorld().
		sandbox("s1", "web", crictl.SandboxReady, 900*hour).sandbox("s2", "old", crictl.SandboxNotReady, 900*hour).
		sandbox("s3", "old", crictl.SandboxNotReady, 901*hour).
		container("a", "s1", "web", "app", exited, 800*hour).container("b", "s1", "web", "app", exited, 100*hour).
		container("c", "s1", "web", "app", exited, hour/2).container("d", "s1", "web", "app", running, hour/4).
		container("e", "s2", "old", "job", exited, 5*hour).
		container("f", "s1", "web", "side", crictl.ContainerCreated, hour).
		container("g", "s1", "web", "side", crictl.ContainerUnknown, hour)
	w.node.Pods = NewLiveness(&KubeletView{Dirs: []string{"uid-web"}})
	w.node.Sandboxes[0].Owner = crictl.Owner{Kind: "StatefulSet", Name: "web"}
	ends := map[string]End{"c": {ExitCode: 137, Reason: "OOMKilled"}}
	got := TakeCensus(w.node, ends, 14_000, noon())
	states := StateCounts{
		Created: 1, Running: 1, Exited: 4, Unknown: 1, ReadySandboxes: 1, DeadSandboxes: 2, EmptySandboxes: 1,
	}
	ages := []AgeCount{
		{UpToSeconds: 3600, Count: 1}, {UpToSeconds: 86400, Count: 1}, {UpToSeconds: 604800, Count: 1},
		{UpToSeconds: 2592000}, {Count: 1},
	}
	owners := []OwnerCount{
		{Namespace: "default", Kind: "StatefulSet", Name: "web", Count: 3, Pods: 1, Bytes: 3000},
		{Namespace: "default", Kind: "Pod", Name: "old", Count: 1, Pods: 1, Bytes: 1000},
	}
	if diff := cmp.Diff([]any{states, ages, owners}, []any{got.States, got.ByAge, got.ByOwner}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	first, last := got.ByPod[0], got.ByPod[1]
	if got.Total != 4 || got.Bytes != 4000 || got.ListBytes != 7000 || got.ListOfLimit != 0.5 || first.Count != 3 ||
		first.NewestID != "c" || *first.LastExitCode != 137 || first.Gone || !last.Gone || last.Container != "job" {
		t.Errorf("%+v", got)
	}
	plan := w.plan(w.node, Rules{})
	if n, counts := BeyondNewest(CountExited(w.node.Containers)), plan.Count(); n != 2 || len(counts) != 2 ||
		counts[0].NewestID != "b" || counts[0].Count != 2 || counts[1].NewestID != "s3" {
		t.Errorf("%d beyond the newest, the plan removes %+v", n, counts)
	}
}

func TestGrow(t *testing.T) {
	before := Census{Total: 100, Sandboxes: 5, ListBytes: 1000, LimitBytes: 2000}
	after := Census{Total: 110, Sandboxes: 6, ListBytes: 1100, LimitBytes: 2000}
	if diff := cmp.Diff(&Growth{60, 10, 1, 100, 14400, new(540.0)}, Grow(&before, &after, 60)); diff != "" {
		t.Error(diff)
	}
	if got := Grow(&before, &Census{Partial: true}, 60); got != nil {
		t.Errorf("of a part: %+v", got)
	}
}
