package snapshot

import (
	"context"
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
)

// TestSnapshotHung asks a runtime that hangs: the answer comes within the time of the first call, whatever the
// command's. One that is interrupted in that call names it.
func TestSnapshotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, _ := fake.Builtin("runtime-hung")
		dialer := faketest.Serve(t, hung)
		client, err := crictl.Dial("unix:///run/cri.sock", crictl.Options{RPCTimeout: time.Minute, Dialer: dialer})
		must(t, err)
		defer client.Close()
		const url = "unix:///run/cri.sock"
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
