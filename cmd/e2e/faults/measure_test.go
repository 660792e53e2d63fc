//go:build e2e

package faults

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	faultproxy "github.com/kdiag/kdiag/crictl/fault"
)

// TestEndToEndMeasure delays and withholds answers of a real containerd of 14 pods with 9 containers each, and looks
// with little and with much time.
func TestEndToEndMeasure(t *testing.T) {
	t.Parallel()
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true})
	e2etest.RunPods(t, c, nodebox.Pods{Count: 14, Containers: 9, State: crictl.ContainerCreated})
	listen := "unix://" + filepath.Join(t.TempDir(), "proxy.sock")
	proxy, err := faultproxy.New(faultproxy.Config{Backend: c.Endpoint(), Listen: listen})
	e2etest.Must(t, err)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		e2etest.Must(t, <-ended)
	})
	proxied := func(faults ...fake.Fault) e2etest.Maker {
		return func(t *testing.T, _ *place) {
			e2etest.Must(t, proxy.SetFaults(faults, nil))
			t.Cleanup(func() { e2etest.Must(t, proxy.SetFaults(nil, nil)) })
		}
	}
	hang := func(rpc, pod string) fake.Fault {
		return fake.Fault{RPC: rpc, Hang: true, Object: fake.Object{Pod: pod}}
	}
	slow := func(rpc string, ms time.Duration) fake.Fault {
		return fake.Fault{RPC: rpc, Delay: fake.Duration(ms * time.Millisecond)}
	}
	// looks is what is wanted of kdiag pleg with so much time.
	looks := func(timeout, code string, severity checks.Severity, lines ...string) want {
		w := want{
			Severity: severity, Lines: lines, Only: "pleg", Flags: []string{"--timeout", timeout},
			Also: func(t *testing.T, r *checks.Report) {
				if r.Relist == nil || (r.Relist.ColdSeconds == nil) != (r.Relist.ColdRange == nil) {
					t.Errorf("no range: %+v", r.Relist)
				}
				if s := r.Relist; code == "RelistOverloaded" && (s.ColdRange.Low < 150 || s.ColdRange.High > 350 ||
					s.Sweep.Inspected > 60) {
					t.Errorf("cold %v, %d asked", s.ColdRange, s.Sweep.Inspected)
				}
			},
		}
		if code != "" {
			w.Codes, w.Among = []string{code}, true
		}
		return w
	}
	seldom := []string{
		"hang", "kubelet <= 1.35: NotReady about every 4m", "kubelet >= 1.36: Ready, pod updates 2m late",
	}
	slowList := slow("ListContainers", 6000)
	e2etest.Place{Program: e2etest.Program(t), Args: []string{"--runtime-endpoint", listen}}.Check(t, []fault{
		{Name: "healthy", Make: proxied(), Want: looks("5s", "", "")},
		{
			Name: "one status hangs", Make: proxied(hang("ContainerStatus", "pod-3")),
			Want: looks("5s", "InspectHang", checks.Critical, seldom...),
		},
		{
			Name: "ten statuses hang in one pod", Make: proxied(hang("*Status", "pod-3")),
			Want: looks("20s", "InspectHang", checks.Critical,
				append(seldom, "PodSandboxStatus of box/pod-3 and 9 others hang")...),
		},
		{
			Name: "ten statuses hang in ten pods",
			Make: proxied(hang("PodSandboxStatus", "pod-[0-8]"), hang("PodSandboxStatus", "pod-10")),
			Want: looks("20s", "InspectHang", checks.Critical, "and 9 others hang",
				"kubelet <= 1.35: NotReady about every 40m", "kubelet >= 1.36: NotReady about every 20m"),
		},
		{
			Name: "too many status calls for the time",
			Make: proxied(slow("ContainerStatus", 1500), slow("PodSandboxStatus", 1500)),
			Want: looks("8s", "RelistOverloaded", checks.Warning, "after a kubelet restart"),
		},
		// On a busy machine these two are critical.
		{
			Name: "a list of six seconds", Make: proxied(slowList),
			Want: looks("20s", "RuntimeSlow", "", "for the two lists of a relist"),
		},
		{
			Name: "a list of six seconds in eight", Make: proxied(slowList),
			Want: looks("8s", "RuntimeSlow", "", "for the two lists of a relist"),
		},
		{
			Name: "a list of six seconds in five", Make: proxied(slowList),
			Want: looks("5s", "ListHang", checks.Critical, `^critical 0\.[0-4].* or the list is slow`),
		},
		{
			Name: "all is slow, in five seconds", Make: proxied(slow("Version", 1000), slow("*", 3500)),
			Want: looks("5s", "RuntimeSlow", checks.Critical, "even Version took 1"),
		},
		{
			Name: "a list hangs", Make: proxied(fake.Fault{RPC: "ListContainers", Hang: true}),
			Want: looks("8s", "ListHang", checks.Critical, `^critical (0\.[5-9]|1)`),
		},
	})
}
