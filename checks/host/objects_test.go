package host

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func id(digit string) string { return strings.Repeat(digit, 64) }

func TestObjects(t *testing.T) {
	n := newNode(t)
	bundles := "run/containerd/io.containerd.runtime.v2.task/k8s.io/"
	n.write(bundles+id("a")+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
		"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"uid-1"}}`)
	n.write(bundles+id("1")+"/config.json", `{"process":{"env":["SECRET=x"]},"annotations":{"io.kubernetes.cri.container-type":"container",
		"io.kubernetes.cri.container-name":"app","io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"uid-1"}}`)
	n.write(bundles+id("4")+"/config.json", `{"annotations":`)
	n.write(bundles+"bad name/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`)
	n.write("run/containerd/io.containerd.runtime.v2.task/moby/"+id("c")+"/config.json", `{}`) // not of Kubernetes
	// CRI-O's userdata.
	n.write("run/containers/storage/overlay-containers/"+id("8")+"/userdata/config.json",
		`{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.container.name":"side","io.kubernetes.pod.name":"job-7",
		"io.kubernetes.pod.namespace":"batch","io.kubernetes.pod.uid":"uid-3"}}`)
	want := []Object{
		{Kind: KindContainer, ID: id("8"), Name: "side", Namespace: "batch", Pod: "job-7", PodUID: "uid-3"},
		{Kind: KindPodSandbox, ID: id("a"), Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
		{Kind: KindContainer, ID: id("1"), Name: "app", Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
	}
	people := n.people()
	if diff := cmp.Diff(want, people.Objects(t.Context())); diff != "" {
		t.Errorf("Objects (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := people.Objects(ctx); len(got) != 0 {
		t.Errorf("Objects with a canceled context = %v", got)
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`))
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.container.name":"side"}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := parseBundle(id("1"), b)
		if ok && o.Kind != KindPodSandbox && o.Kind != KindContainer {
			t.Errorf("parseBundle(%q) = %+v, an object without a kind", b, o)
		}
	})
}
