package snapshot

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestSnapshotHung asks a runtime that hangs: the answer comes within the time of the first call, whatever the
// command's. One that is interrupted in that call names it.
func TestSnapshotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, _ := fake.Builtin("runtime-hung")
		dialer := faketest.Serve(t, hung)
		const url = "unix:///run/cri.sock"
		client, err := crictl.Dial(url, crictl.Options{RPCTimeout: time.Minute, Dialer: dialer})
		must(t, err)
		defer client.Close()
		k := &connection.Connection{Client: client, Socket: url, Endpoint: crictl.Endpoint{URL: url}}
		env := cli.Env{Root: t.TempDir(), Now: time.Now, Sockets: cli.Sockets{Dial: dialer}}
		start := time.Now()
		s := Take(t.Context(), env, k, Sources{}, &render.Progress{})
		if took := time.Since(start); took != helloTimeout || !strings.Contains(s.Problem, "Version hangs") || s.Denied {
			t.Errorf("after %v: %q, denied: %v", took, s.Problem, s.Denied)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		s = Take(ctx, env, k, Sources{}, &render.Progress{})
		if s.Problem != "interrupted before Version replied" || s.Denied {
			t.Errorf("%q, denied %v", s.Problem, s.Denied)
		}
	})
}

// TestUnknownRetention has kubelets whose number is known, and others.
func TestUnknownRetention(t *testing.T) {
	const root = "/host"
	five := crictl.Collection{DeadPerContainer: new(5)}
	here := gc.Logs{Root: root, Dir: "/var/log/pods"}
	for _, tt := range []struct {
		name    string
		kubelet *crictl.Kubelet
		want    string
		logs    gc.Logs
	}{
		{"none", nil, "no kubelet runs here", here},
		{
			"unreadable", &crictl.Kubelet{Unreadable: "no permission"},
			"cannot read the kubelet's settings: no permission", here,
		},
		{"unreadable in part", &crictl.Kubelet{Unreadable: "x", Collection: five}, "", here},
		{
			"of another runtime", &crictl.Kubelet{Endpoint: "unix:///run/other.sock"},
			"the kubelet here uses another runtime, unix:///run/other.sock",
			gc.Logs{},
		},
		{"of this one, by another name", &crictl.Kubelet{Endpoint: "/var/run/cri.sock"}, "", here},
		{
			"of this one", &crictl.Kubelet{Collection: crictl.Collection{PodLogsDir: "/data/logs"}}, "",
			gc.Logs{Root: root, Dir: "/data/logs"},
		},
	} {
		k := &connection.Connection{Kubelet: tt.kubelet, Endpoint: crictl.Endpoint{URL: "unix:///run/cri.sock"}}
		if got := unknownRetention(k); got != tt.want || Logs(k, root) != tt.logs {
			t.Errorf("%s: %q, want %q; logs in %+v", tt.name, got, tt.want, Logs(k, root))
		}
	}
}

const podList = `{"kind":"PodList","apiVersion":"v1","items":[
 {"metadata":{"uid":"live","namespace":"web","name":"shop"},
  "spec":{"initContainers":[{"name":"init"}],"containers":[{"name":"app"},{"name":"proxy"}]}},
 {"metadata":{"uid":"mirror","namespace":"kube-system","name":"etcd-n1",
   "annotations":{"kubernetes.io/config.hash":"static"}},
  "spec":{"containers":[{"name":"etcd"}]}}]}`

func TestParsePods(t *testing.T) {
	got, err := parsePods([]byte(podList))
	must(t, err)
	want := []gc.KubeletPod{
		{UID: "live", Namespace: "web", Name: "shop", Main: []string{"app", "proxy"}},
		{UID: "mirror", Namespace: "kube-system", Name: "etcd-n1", Main: []string{"etcd"}},
		{UID: "static", Namespace: "kube-system", Name: "etcd-n1", Main: []string{"etcd"}},
	}
	testkit.Equal(t, "pods", want, got)
	for _, bad := range []string{
		"[]", `{"kind":"Status","message":"Forbidden"}`, `{"kind":"PodList","items":[{"metadata":{"uid":"x"}}]}`,
	} {
		if pods, err := parsePods([]byte(bad)); err == nil {
			t.Errorf("%s: %v, want an error", bad, pods)
		}
	}
}

// node makes a root with a kubelet's folders in it and returns a target with that kubelet.
func node(t *testing.T) (cli.Env, *connection.Connection) {
	t.Helper()
	root := testkit.NewTree(t)
	root.Write("var/lib/kubelet/pods/live/log", "", "data/pods/other/log", "",
		"etc/kubernetes/manifests/etcd.yaml", "metadata: {name: etcd}\n")
	return cli.Env{Root: root.Root, Now: time.Now}, &connection.Connection{Kubelet: &crictl.Kubelet{
		Name: "kubelet", Collection: crictl.Collection{StaticPodPath: "/etc/kubernetes/manifests"},
	}}
}

var must = testkit.Must

func write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(text), 0o644))
}

// TestEvidence counts a pod as gone only when all three sources are there, are this node's, and do not have it.
func TestEvidence(t *testing.T) {
	t.Parallel() // it waits for a kubelet that hangs
	sandboxes := []crictl.PodSandbox{{Pod: &crictl.Pod{UID: "live"}}, {Pod: &crictl.Pod{UID: "dead"}}}
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	must(t, err)
	t.Cleanup(func() { _ = deaf.Close() })
	hung := deaf.Addr().(*net.TCPAddr)
	port := func(status int) int {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if w.WriteHeader(status); r.URL.Path == "/pods" {
				_, _ = w.Write([]byte(podList))
			}
		}))
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().(*net.TCPAddr).Port
	}
	type setting struct {
		env cli.Env
		*connection.Connection
		src Sources
	}
	for _, tt := range []struct {
		name    string
		change  func(*setting)
		missing string // part of the reason; empty when the pod is proven to be gone
	}{
		{"all there", func(*setting) {}, ""},
		{"an old file", func(s *setting) {
			old := s.env.Now().Add(-time.Hour)
			must(t, os.Chtimes(s.src.Pods, old, old))
		}, "is older than 10m0s"},
		{
			"no pods at all", func(s *setting) { write(t, s.src.Pods, `{"kind":"PodList","items":[]}`) },
			"another node's pods",
		},
		{"no file and no port", func(s *setting) { s.src.Pods = "" }, "no read-only port"},
		{"a kubelet that hangs", func(s *setting) {
			s.Kubelet.Collection.ReadOnlyPort, s.src.Pods = hung.Port, ""
		}, hung.String() + "/pods: no answer in time"},
		{"a kubelet that answers", func(s *setting) {
			s.Kubelet.Collection.ReadOnlyPort, s.src.Pods = port(http.StatusOK), ""
		}, ""},
		{"a kubelet that refuses", func(s *setting) {
			s.Kubelet.Collection.ReadOnlyPort, s.src.Pods = port(http.StatusForbidden), ""
		}, "403"},
		{
			"folders of another kubelet", func(s *setting) { s.Kubelet.Collection.RootDir = "/data" },
			"another kubelet's or runtime's",
		},
		{"no kubelet", func(s *setting) { s.Kubelet = nil }, "no kubelet runs here"},
		{
			"no kubelet to ask for its pods", func(s *setting) { s.Kubelet, s.src.Pods = nil, "" },
			"no kubelet runs here; --pods takes the list from a file",
		},
		{"no kubelet, and flags instead", func(s *setting) {
			s.Kubelet, s.src.KubeletRoot, s.src.Manifests = nil, "/var/lib/kubelet", "/etc/kubernetes/manifests"
		}, ""},
		{"embedded kubelet", func(s *setting) {
			s.Kubelet.Name, s.Kubelet.Collection.StaticPodPath = "k3s-agent", ""
		}, "name it with --manifests"},
		{"unreadable settings", func(s *setting) {
			s.Kubelet.Unreadable, s.Kubelet.Collection.StaticPodPath = "no permission", ""
		}, "folder unknown"},
		{"pods from a URL", func(s *setting) { s.Kubelet.Collection.StaticPodURL = "http://x/" }, "from a URL"},
		{"an unreadable manifest", func(s *setting) {
			write(t, filepath.Join(s.env.Root, "etc/kubernetes/manifests/x.yaml"), "what is this?")
		}, "no name was found"},
		{
			"simulated", func(s *setting) { s.Endpoint.Source, s.src.Pods = crictl.SourceSimulated, "" },
			"the runtime is simulated",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, k := node(t)
			s := &setting{env, k, Sources{Pods: filepath.Join(t.TempDir(), "pods.json")}}
			write(t, s.src.Pods, podList)
			tt.change(s)
			e := readEvidence(t.Context(), env, k, s.src, sandboxes)
			l := gc.NewLiveness(&e)
			missing := strings.Join(l.Missing(), "\n")
			if tt.missing == "" && missing != "" || !strings.Contains(missing, tt.missing) {
				t.Errorf("missing %q, want %q", missing, tt.missing)
			}
			gone := l.Gone(crictl.Pod{UID: "dead", Namespace: "web", Name: "old"}, true)
			if gone != (tt.missing == "") {
				t.Errorf("the dead pod is gone: %v", gone)
			}
			if l.Gone(crictl.Pod{UID: "live"}, true) {
				t.Error("the live pod is gone")
			}
		})
	}
}
