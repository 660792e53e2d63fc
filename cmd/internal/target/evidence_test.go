package target

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

const podList = `{"kind":"PodList","apiVersion":"v1","items":[
 {"metadata":{"uid":"live","namespace":"web","name":"shop"},"spec":{"initContainers":[{"name":"init"}],"containers":[{"name":"app"},{"name":"proxy"}]}},
 {"metadata":{"uid":"mirror","namespace":"kube-system","name":"etcd-n1","annotations":{"kubernetes.io/config.hash":"static"}},"spec":{"containers":[{"name":"etcd"}]}}]}`

func TestParsePods(t *testing.T) {
	got, err := parsePods(strings.NewReader(podList))
	if err != nil {
		t.Fatal(err)
	}
	want := []gc.KubeletPod{
		{UID: "live", Namespace: "web", Name: "shop", Main: []string{"app", "proxy"}},
		{UID: "mirror", Namespace: "kube-system", Name: "etcd-n1", Main: []string{"etcd"}},
		{UID: "static", Namespace: "kube-system", Name: "etcd-n1", Main: []string{"etcd"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		"", "[]", "{", `{"kind":"Status","message":"Forbidden"}`, `{"kind":"PodList","items":[{}]}`,
		`{"kind":"PodList","items":[{"metadata":{"uid":"x"}}]}`,
	} {
		if pods, err := parsePods(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: %v, want an error", bad, pods)
		}
	}
}

func FuzzParsePods(f *testing.F) {
	for _, seed := range []string{podList, "{}", `{"kind":"PodList"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := parsePods(strings.NewReader(text))
		for _, p := range pods {
			if err != nil || p.UID == "" || p.Name == "" {
				t.Errorf("%+v, %v", p, err)
			}
		}
	})
}

// node makes a root with a kubelet's folders in it and returns a target with that kubelet.
func node(t *testing.T, dirs ...string) (cli.Env, *Target) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range append([]string{"var/lib/kubelet/pods/live", "etc/kubernetes/manifests"}, dirs...) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "etc/kubernetes/manifests/etcd.yaml"), "metadata: {name: etcd}\n")
	return cli.Env{Root: root, Now: time.Now}, &Target{Kubelet: &crictl.Kubelet{
		Name: "kubelet", Collection: crictl.Collection{StaticPodPath: "/etc/kubernetes/manifests"},
	}}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEvidence wants a pod to be gone only when all three sources are there, are this node's, and do not know it.
func TestEvidence(t *testing.T) {
	sandboxes := []crictl.PodSandbox{{Pod: &crictl.Pod{UID: "live"}}, {Pod: &crictl.Pod{UID: "dead"}}}
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, env cli.Env, k *Target, src *Sources)
		missing string // part of the reason; empty when the pod is proven to be gone
	}{
		{"all there", func(*testing.T, cli.Env, *Target, *Sources) {}, ""},
		{"an old file", func(t *testing.T, _ cli.Env, _ *Target, src *Sources) {
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(src.Pods, old, old); err != nil {
				t.Fatal(err)
			}
		}, "is older than 10m0s"},
		{"pods of another node", func(t *testing.T, _ cli.Env, _ *Target, src *Sources) {
			write(t, src.Pods, strings.ReplaceAll(podList, `"live"`, `"other"`))
		}, "those of another node"},
		{"no pods at all", func(t *testing.T, _ cli.Env, _ *Target, src *Sources) {
			write(t, src.Pods, `{"kind":"PodList","items":[]}`)
		}, "those of another node"},
		{"no file and no port", func(_ *testing.T, _ cli.Env, _ *Target, src *Sources) { src.Pods = "" }, "no read-only port to ask"},
		{"folders of another kubelet", func(t *testing.T, env cli.Env, k *Target, _ *Sources) {
			k.Kubelet.Collection.RootDir = "/data"
			if err := os.MkdirAll(filepath.Join(env.Root, "data/pods/other"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "those of another kubelet"},
		{"no folders", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) { k.Kubelet.Collection.RootDir = "/none" }, "no such file"},
		{"folders by flag", func(_ *testing.T, _ cli.Env, k *Target, src *Sources) {
			k.Kubelet.Collection.RootDir, src.KubeletRoot = "/none", "/var/lib/kubelet"
		}, ""},
		{"no kubelet", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) { k.Kubelet = nil }, "no kubelet runs here"},
		{"no kubelet to ask for its pods", func(_ *testing.T, _ cli.Env, k *Target, src *Sources) {
			k.Kubelet, src.Pods = nil, ""
		}, "no kubelet runs here to ask for them; --pods takes its answer from a file"},
		{"no kubelet, and flags instead", func(_ *testing.T, _ cli.Env, k *Target, src *Sources) {
			k.Kubelet, src.KubeletRoot, src.Manifests = nil, "/var/lib/kubelet", "/etc/kubernetes/manifests"
		}, ""},
		{"embedded kubelet", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) {
			k.Kubelet.Name, k.Kubelet.Collection.StaticPodPath = "k3s-agent", ""
		}, "--manifests names their folder"},
		{"unreadable settings", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) {
			k.Kubelet.Unreadable, k.Kubelet.Collection.StaticPodPath = "no permission", ""
		}, "where they are is not known"},
		{"pods from a URL", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) {
			k.Kubelet.Collection.StaticPodURL = "http://x/"
		}, "from a URL"},
		{"a kubelet without static pods", func(_ *testing.T, _ cli.Env, k *Target, _ *Sources) {
			k.Kubelet.Collection.StaticPodPath = ""
		}, ""},
		{"an unreadable manifest", func(t *testing.T, env cli.Env, _ *Target, _ *Sources) {
			write(t, filepath.Join(env.Root, "etc/kubernetes/manifests/x.yaml"), "what is this?")
		}, "no name was found"},
		{"simulated", func(_ *testing.T, _ cli.Env, k *Target, src *Sources) {
			k.Endpoint.Source, src.Pods = crictl.SourceSimulated, ""
		}, "the runtime is simulated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, k := node(t)
			src := Sources{Pods: filepath.Join(t.TempDir(), "pods.json")}
			write(t, src.Pods, podList)
			tt.change(t, env, k, &src)
			e := k.evidence(t.Context(), env, src, sandboxes)
			l := gc.NewLiveness(&e)
			if missing := strings.Join(l.Missing(), "\n"); tt.missing == "" && missing != "" || !strings.Contains(missing, tt.missing) {
				t.Errorf("missing %q, want %q", missing, tt.missing)
			}
			if gone := l.Gone(crictl.Pod{UID: "dead", Namespace: "web", Name: "old"}, true); gone != (tt.missing == "") {
				t.Errorf("the dead pod is gone: %v", gone)
			}
			if l.Gone(crictl.Pod{UID: "live"}, true) {
				t.Error("the live pod is gone")
			}
		})
	}
}

// TestReadOnlyPort asks a kubelet for its pods, and one that refuses.
func TestReadOnlyPort(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuse := false
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse || r.URL.Path != "/pods" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(podList))
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	env, k := node(t)
	k.Kubelet.Collection.ReadOnlyPort = lis.Addr().(*net.TCPAddr).Port
	pods, err := k.pods(t.Context(), env, Sources{})
	if err != nil || len(pods) != 3 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	refuse = true
	if pods, err := k.pods(t.Context(), env, Sources{}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("%d pods, %v", len(pods), err)
	}
}
