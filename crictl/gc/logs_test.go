package gc

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestLogs removes the log of a container in a folder that others have put files into, and nothing but that log.
func TestLogs(t *testing.T) {
	const pods, folder, id = "/var/log/pods", "/var/log/pods/shop_web_u-1/app", "0123456789abcdef"
	const log, link = folder + "/3.log", "/var/log/containers/web_shop_app-" + id + ".log"
	own := Candidate{
		Kind: KindContainer, ID: id, Namespace: "shop", Pod: "web", PodUID: "u-1", Container: "app", Attempt: 3,
	}
	other := []string{
		folder + "/13.log", folder + "/3.logs", folder + "/4.log", folder + "/3.log.d/x", "/var/log/pods/3.log",
		"/var/log/pods/shop_web_u-1/3.log", "/var/log/pods/shop_web_u-2/app/3.log", "/etc/3.log",
	}
	for _, tt := range []struct {
		name  string
		at    string // where the runtime has the log
		edit  func(c *Candidate)
		links map[string]string // besides the kubelet's
		want  []string          // is removed
		bytes int64
		err   string
	}{
		{
			name: "with rotations", at: log, bytes: 3 * 5,
			want: []string{link, log, log + ".20261124-101530", log + ".20261124-101529.gz"},
		},
		{name: "of another container", at: folder + "/4.log", err: `the runtime had it at "` + folder + `/4.log", a kubelet`},
		{name: "elsewhere", at: "/etc/3.log", err: "the runtime had it at"},
		{name: "a way around", at: folder + "/../app/3.log", err: "the runtime had it at"},
		{
			name: "of the pod's folder", at: pods + "/shop_web_u-1/3.log",
			edit: func(c *Candidate) { c.Container = "." }, err: "not the name",
		},
		{name: "through a name", at: "/etc/3.log", edit: func(c *Candidate) { c.PodUID = "u/../.." }, err: "not the name"},
		{
			name: "pod's folder is a link", at: pods + "/shop_web_u-3/app/3.log",
			edit: func(c *Candidate) { c.PodUID = "u-3" }, links: map[string]string{pods + "/shop_web_u-3": "shop_web_u-1"},
			want: []string{link}, err: "not a directory",
		},
		{
			name: "container's folder is a link", at: pods + "/shop_web_u-2/c/3.log",
			edit:  func(c *Candidate) { c.PodUID, c.Container = "u-2", "c" },
			links: map[string]string{pods + "/shop_web_u-2/c": "../shop_web_u-1/app"}, err: "not a directory",
		},
		{
			name: "log is a link", at: pods + "/shop_web_u-2/app/5.log",
			edit:  func(c *Candidate) { c.PodUID, c.Attempt = "u-2", 5 },
			links: map[string]string{pods + "/shop_web_u-2/app/5.log": "/etc/3.log"}, want: []string{link},
		},
		{
			name: "gone with its pod", at: pods + "/shop_web_u-9/app/3.log", edit: func(c *Candidate) { c.PodUID = "u-9" },
			want: []string{link},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			// The folder of logs is a link with an absolute target, which leads to the host's.
			links := map[string]string{"/var/log": "/data", link: log}
			maps.Copy(links, tt.links)
			testkit.Must(t, os.MkdirAll(filepath.Join(root, "data/containers"), 0o755))
			testkit.Must(t, os.Mkdir(filepath.Join(root, "var"), 0o755))
			real := func(name string) string {
				return filepath.Join(root, strings.Replace(name, "/var/log/", "/data/", 1))
			}
			for _, name := range append(slices.Clone(other), log, log+".20261124-101530", log+".20261124-101529.gz") {
				testkit.Write(t, real(name), "12345")
			}
			for name, to := range links {
				testkit.Must(t, os.Symlink(to, real(name)))
			}
			before := filesBelow(t, root)
			c := own
			if tt.edit != nil {
				tt.edit(&c)
			}
			logs := Logs{Root: root, Dir: pods}
			plan := Plan{Remove: []Candidate{c}}
			measured := logs.Measure(t.Context(), &plan)
			got := logs.remove(&c, tt.at)
			slices.Sort(got.files)
			testkit.Equal(t, "removed", slices.Sorted(slices.Values(tt.want)), got.files)
			testkit.Equal(t, "bytes removed", tt.bytes, got.bytes)
			for _, name := range got.files {
				delete(before, real(name))
			}
			testkit.Equal(t, "what is left", before, filesBelow(t, root))
			if got.err == nil && tt.err != "" || got.err != nil && (tt.err == "" || !strings.Contains(got.err.Error(), tt.err)) {
				t.Errorf("%v, want %q", got.err, tt.err)
			}
			if got.err == nil && (measured != nil || plan.LogBytes != tt.bytes) {
				t.Errorf("planned %d bytes, %v", plan.LogBytes, measured)
			}
		})
	}
}

func filesBelow(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	testkit.Must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			all[name] = true
		}
		return err
	}))
	return all
}

// TestRunLogs removes the logs of the containers that are removed, and records them. One log cannot be removed.
func TestRunLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood())
		before, plan := look(t, c, Rules{})
		logs, want, gone := Logs{Root: t.TempDir(), Dir: "/var/log/pods"}, map[string]bool{}, map[string]bool{}
		for _, v := range plan.Remove[1:] {
			gone[v.ID] = true
		}
		for _, k := range before.Containers {
			st, _ := c.ContainerStatus(t.Context(), k.ID)
			log := filepath.Join(logs.Root, st.LogPath)
			testkit.Write(t, log, "123")
			if !gone[k.ID] {
				want[log] = true
			}
		}
		plan.Remove[0].Namespace = "other" // the runtime has the log elsewhere
		testkit.Must(t, logs.Measure(t.Context(), &plan))
		a, path := audit(t)
		r := tryPlan(t, t.Context(), c, before, plan, Options{Audit: a, Logs: logs})
		testkit.Must(t, a.Close())
		testkit.Equal(t, "logs that are left", want, filesBelow(t, logs.Root))
		n := len(before.Containers) - len(want)
		if r.LogFiles != n || r.LogBytes != int64(3*n) || r.LogBytes != plan.LogBytes || len(r.LogsLeft) != 1 {
			t.Errorf("%d logs, %d bytes, want %d, planned %d: %s", r.LogFiles, r.LogBytes, n, plan.LogBytes, r)
		}
		testkit.Equal(t, "logs in the audit file", n, strings.Count(testkit.Read(t, path), `"logs":["/var/log/pods/`))
	})
}

// FuzzOpenAudit opens any file as an audit file: its content stays, and nothing is written to one that is refused.
func FuzzOpenAudit(f *testing.F) {
	f.Add("")
	f.Add("{\"at\":\"\",\"event\":\"start\"}\n{\"at\":\"\",\"eve")
	f.Add("\n\n\x00\xff\n[]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "audit")
		testkit.Write(t, path, text)
		a, err := OpenAudit(path)
		if err == nil {
			err = a.Close()
		} else if got := testkit.Read(t, path); got != text {
			t.Errorf("refused, and changed to %q", got)
		}
		if got := testkit.Read(t, path); !strings.HasPrefix(got, text) || err == nil && !strings.HasSuffix(got, "}\n") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// TestLock locks a runtime twice, the second time by another name of its folder.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	testkit.Must(t, os.Symlink(dir, link))
	for range 2 { // the second time after the first was released
		l, err := Lock(filepath.Join(dir, "c.sock"))
		testkit.Must(t, err)
		if _, err = Lock(filepath.Join(link, "c.sock")); !errors.Is(err, ErrLocked) {
			t.Errorf("%v, want %v", err, ErrLocked)
		}
		testkit.Must(t, l.Close())
	}
}

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
		{"only begins like a static one", full, crictl.Pod{UID: "u9", Name: "etcdx-node-1"}, false, true},
		{"from the API, named like a static one", full, crictl.Pod{UID: "u9", Name: "etcd-node-1"}, true, true},
		{"no uid", full, crictl.Pod{Name: "old"}, true, false},
		{"no pods", without(func(e *KubeletView) { e.PodsWithout = "refused" }), unknown, true, false},
		{"no directories", without(func(e *KubeletView) { e.DirsWithout = "hangs" }), unknown, true, false},
		{"no manifests", without(func(e *KubeletView) { e.ManifestsWithout = "unknown" }), unknown, true, false},
	} {
		testkit.Equal(t, tt.name, tt.want, NewLiveness(&tt.evidence).Gone(tt.pod, tt.fromAPI))
	}
	if (&Liveness{}).Gone(crictl.Pod{UID: "u9"}, true) {
		t.Error("nothing is known, and a pod is gone")
	}
	e := without(func(e *KubeletView) { e.PodsWithout, e.DirsWithout = "401", "hangs" })
	missing := []string{"the kubelet's pods: 401", "the pod directories: hangs"}
	testkit.Equal(t, "missing", missing, NewLiveness(&e).Missing())
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
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	got, err := ReadManifests(t.Context(), root, "/manifests")
	slices.Sort(got)
	testkit.Must(t, err)
	testkit.Equal(t, "of a folder", []string{"etcd", "flow", "kube-api", "main"}, got)
	one, err := ReadManifests(t.Context(), root, "/manifests/etcd.yaml")
	testkit.Must(t, err)
	testkit.Equal(t, "of a file", []string{"etcd", "main"}, one)
	testkit.Must(t, os.Symlink("none", filepath.Join(dir, "spoiled")))
	if got, err := ReadManifests(t.Context(), root, "/manifests"); err == nil {
		t.Errorf("a link to nothing: %v and no error: the evidence is not complete", got)
	}
	testkit.Write(t, filepath.Join(root, "other/unnamed"), "kind: Pod\n")
	if got, err := ReadManifests(t.Context(), root, "/other"); err == nil {
		t.Errorf("no name: %v and no error: the evidence is not complete", got)
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
	ages := []AgeCount{
		{UpToSeconds: 3600, Count: 1},
		{UpToSeconds: 86400, Count: 1},
		{UpToSeconds: 604800, Count: 1},
		{UpToSeconds: 2592000},
		{Count: 1},
	}
	testkit.Equal(t, "ages", ages, got.ByAge)
	first, last := got.ByPod[0], got.ByPod[1]
	if got.Total != 4 || got.Bytes != 4000 || got.ListBytes != 7000 || got.ListOfLimit != 0.5 || first.Count != 3 ||
		first.NewestID != "c" || *first.LastExitCode != 137 || first.Gone || !last.Gone || got.States.EmptySandboxes != 1 {
		t.Errorf("%+v", got)
	}
	plan := w.plan(w.node, Rules{})
	if n, counts := BeyondNewest(CountExited(w.node.Containers)), plan.Count(); n != 2 || len(counts) != 2 ||
		counts[0].NewestID != "b" || counts[0].Count != 2 || counts[1].NewestID != "s3" {
		t.Errorf("%d beyond the newest, the plan removes %+v", n, counts)
	}
}
