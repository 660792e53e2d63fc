package target

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
)

// deaf is a socket at which nothing ever answers.
func deaf(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	lis, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

// TestSnapshotHung asks a runtime that hangs: the answer comes within the time of the first call, whatever the
// command's. One that is interrupted in that call names it.
func TestSnapshotHung(t *testing.T) {
	lis := deaf(t, "unix", filepath.Join(t.TempDir(), "cri.sock"))
	client, err := crictl.Dial(lis.Addr().String(), crictl.Options{RPCTimeout: 300 * time.Millisecond})
	must(t, err)
	defer client.Close()
	k := &Target{Client: client, Endpoint: crictl.Endpoint{URL: "unix://" + lis.Addr().String()}}
	start := time.Now()
	s := k.TakeSnapshot(t.Context(), cli.Env{Root: t.TempDir(), Now: time.Now}, Sources{}, &render.Progress{})
	if !strings.Contains(s.Problem, "Version hangs") || s.Denied {
		t.Errorf("%q, denied: %v", s.Problem, s.Denied)
	}
	if took := time.Since(start); took > helloTimeout {
		t.Errorf("after %v", took)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	s = k.TakeSnapshot(ctx, cli.Env{}, Sources{}, &render.Progress{})
	if s.Problem != "interrupted before Version replied" || s.Denied {
		t.Errorf("%q, denied %v", s.Problem, s.Denied)
	}
}

// TestUnknownKeep has kubelets whose number is known, and others.
func TestUnknownKeep(t *testing.T) {
	dir := t.TempDir()
	for _, link := range []string{"a", "b"} {
		must(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, link)))
	}
	write(t, filepath.Join(dir, "real"), "")
	five := crictl.Collection{DeadPerContainer: new(5)}
	for _, tt := range []struct {
		name    string
		kubelet *crictl.Kubelet
		want    string
	}{
		{"none", nil, "no kubelet runs here"},
		{
			"unreadable", &crictl.Kubelet{Unreadable: "no permission"},
			"cannot read the kubelet's settings: no permission",
		},
		{"unreadable in part", &crictl.Kubelet{Unreadable: "x", Collection: five}, ""},
		{
			"of another runtime", &crictl.Kubelet{Endpoint: "unix:///run/other.sock"},
			"the kubelet here uses another runtime, unix:///run/other.sock",
		},
		{"of this one, by a link", &crictl.Kubelet{Endpoint: filepath.Join(dir, "b")}, ""},
		{"of this one", &crictl.Kubelet{}, ""},
	} {
		k := &Target{Kubelet: tt.kubelet, Endpoint: crictl.Endpoint{URL: "unix://" + filepath.Join(dir, "a")}}
		if got := k.unknownKeep(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
