package crictl

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOpenKubelet(t *testing.T) {
	h := newTree(t)
	h.process("7", "k3s-agent", "k3s", "agent", "--kubelet-arg=rotate_certificates", "--kubelet-arg=max-pods=9", "--kubelet-arg=config-dir=/k.d")
	h.file("k.d/20.conf", "")
	h.file("k.d/10/5.conf", "")
	h.file("k.d/10.yaml", "")
	k, err := OpenKubelet(h.root, 7)
	if err != nil {
		t.Fatal(err)
	}
	// A switch does not take the next argument for its value.
	want := map[string][]string{"rotate-certificates": {"true"}, "max-pods": {"9"}}
	if diff := cmp.Diff(want, k.Flags([]string{"rotate-certificates"}, "max-pods", "absent")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	names, err := k.DropIns("/k.d")
	if diff := cmp.Diff([]string{"/k.d/10/5.conf", "/k.d/20.conf"}, names); diff != "" || err != nil {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
	if k.Name() != "k3s-agent" || k.Socket() != "unix:///run/k3s/containerd/containerd.sock" || k.Problem() != "" {
		t.Errorf("got %s, %s, %s", k.Name(), k.Socket(), k.Problem())
	}
}

func TestOpenKubeletOfAKubeletProper(t *testing.T) {
	h := newTree(t)
	h.process("7", "kubelite", "kubelite", "--kubelet-args-file=/none")
	h.process("8", "kubelet", "kubelet")
	if k, err := OpenKubelet(h.root, 7); err != nil || k.Problem() != "/none does not exist" {
		t.Errorf("%+v, error %v", k, err)
	}
	if k, err := OpenKubelet(h.root, 8); err != nil || k.Socket() != "" {
		t.Errorf("%+v, error %v", k, err)
	}
	if _, err := OpenKubelet(filepath.Join(h.root, "none"), 8); err == nil {
		t.Error("there is nothing to open")
	}
}
