package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func id(digit string) string { return strings.Repeat(digit, 64) }

func TestObjects(t *testing.T) {
	n := newNode(t)
	// A pod that everything knows: log link, bundles, shim.
	n.link("var/log/containers/web-1_shop_app-"+id("1")+".log", "/var/log/pods/shop_web-1_uid-1/app/0.log")
	n.link("var/log/containers/web-1_shop_old-"+id("2")+".log", "/var/log/pods/shop_web-1_uid-1/old/3.log")
	n.link("var/log/containers/nonsense.log", "/x")
	n.link("var/log/containers/a_b-"+id("3")+".log", "/x")
	bundles := "run/containerd/io.containerd.runtime.v2.task/k8s.io/"
	// in gives a shim a working directory, which below the root of the fixture is the same one.
	in := func(pid int, bundle string) {
		real := filepath.Join(n.root, bundle)
		n.link(fmt.Sprintf("proc/%d/cwd", pid), real)
		if _, err := os.Lstat(filepath.Join(n.root, filepath.Dir(real))); err != nil {
			n.link(filepath.Dir(real), filepath.Dir(real))
		}
	}
	n.write(bundles+id("a")+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
		"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"uid-1"}}`)
	n.write(bundles+id("1")+"/config.json", `{"process":{"env":["SECRET=x"]},"annotations":{"io.kubernetes.cri.container-type":"container",
		"io.kubernetes.cri.container-name":"app","io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"uid-1"}}`)
	n.write(bundles+id("4")+"/config.json", `{"annotations":`)
	n.write(bundles+"bad name/config.json", `{}`)
	n.process(70, 1, "containerd-shim", 'S', "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id "+id("a"))

	in(70, bundles+id("a"))

	// A pod of a containerd whose state lies elsewhere: found through the shim.
	n.process(80, 1, "containerd-shim", 'S', "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id "+id("b"))
	n.write("srv/c/io.containerd.runtime.v2.task/k8s.io/"+id("b")+"/config.json",
		`{"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"db","io.kubernetes.cri.sandbox-namespace":"shop"}}`)
	n.write("srv/c/io.containerd.runtime.v2.task/k8s.io/"+id("5")+"/config.json",
		`{"annotations":{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-uid":"uid-2"}}`)
	in(80, "srv/c/io.containerd.runtime.v2.task/k8s.io/"+id("b"))
	n.process(85, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id "+id("e")) // its bundle is gone

	// Not of Kubernetes.
	n.process(90, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace moby -id "+id("c"))
	n.process(102, 1, "conmon", 'S', "conmon -c "+id("7")+" -n happy_fish")

	// CRI-O's userdata.
	n.write("run/containers/storage/overlay-containers/"+id("8")+"/userdata/config.json",
		`{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.container.name":"side","io.kubernetes.pod.name":"job-7",
		"io.kubernetes.pod.namespace":"batch","io.kubernetes.pod.uid":"uid-3"}}`)

	want := []Object{
		{Kind: KindPodSandbox, ID: id("e")},
		{Kind: KindContainer, ID: id("5"), PodUID: "uid-2"},
		{Kind: KindContainer, ID: id("8"), Name: "side", Namespace: "batch", Pod: "job-7", PodUID: "uid-3"},
		{Kind: KindPodSandbox, ID: id("b"), Namespace: "shop", Pod: "db"},
		{Kind: KindPodSandbox, ID: id("a"), Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
		{Kind: KindContainer, ID: id("1"), Name: "app", Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
		{Kind: KindContainer, ID: id("2"), Name: "old", Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
	}
	if diff := cmp.Diff(want, n.people().Objects(t.Context())); diff != "" {
		t.Errorf("Objects (-want +got):\n%s", diff)
	}
}

func TestObjectsOfNothing(t *testing.T) {
	if got := (Population{root: t.TempDir(), names: testNames}).Objects(t.Context()); len(got) != 0 {
		t.Errorf("Objects of an empty root = %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := newNode(t)
	n.link("var/log/containers/web-1_shop_app-"+id("1")+".log", "/x")
	if got := n.people().Objects(ctx); len(got) != 0 {
		t.Errorf("Objects with a canceled context = %v", got)
	}
}

func TestParseLogName(t *testing.T) {
	tests := []struct {
		name string
		want Object
		ok   bool
	}{
		{"p-1_n_c-d-" + id("1") + ".log", Object{Kind: KindContainer, ID: id("1"), Pod: "p-1", Namespace: "n", Name: "c-d"}, true},
		{"p_n_c-" + id("1"), Object{}, false},
		{"p_n_c-" + id("x") + ".log", Object{}, false},
		{"p_n-" + id("1") + ".log", Object{}, false},
		{"_n_c-" + id("1") + ".log", Object{}, false},
		{".log", Object{}, false},
	}
	for _, tt := range tests {
		got, ok := parseLogName(tt.name)
		if ok != tt.ok || got != tt.want {
			t.Errorf("parseLogName(%q) = %+v, %v, want %+v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`))
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.container.name":"side"}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := parseBundle(id("1"), b)
		if o.ID != "" && o.Kind != KindPodSandbox && o.Kind != KindContainer {
			t.Errorf("parseBundle(%q) = %+v, an object without a kind", b, o)
		}
	})
}
