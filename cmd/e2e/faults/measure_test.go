//go:build e2e

package faults

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestEndToEndMeasure delays and withholds answers of a real containerd of 14 pods with 9 containers each.
func TestEndToEndMeasure(t *testing.T) {
	t.Parallel()
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true})
	e2etest.RunPods(t, c, nodebox.Pods{Count: 14, Containers: 9, State: crictl.ContainerCreated})
	endpoint, set := e2etest.Proxy(t, c.Endpoint())
	proxied := func(faults ...fake.Fault) e2etest.Maker {
		return func(t *testing.T, _ *place) {
			set(faults...)
			t.Cleanup(func() { set() })
		}
	}
	slow := func(rpc string, delay time.Duration) fake.Fault {
		return fake.Fault{RPC: rpc, Delay: fake.Duration(delay)}
	}
	// looks is what is wanted of kdiag pleg with so much time.
	looks := func(timeout, code string, severity checks.Severity, lines ...string) want {
		return want{
			Codes: []string{code}, Among: true, Severity: severity, Lines: lines, Only: "pleg",
			Flags: []string{"--timeout", timeout},
		}
	}
	overloaded := looks("8s", "RelistOverloaded", checks.Warning, "after a kubelet restart")
	overloaded.Also = func(t *testing.T, r *checks.Report) {
		if s := r.Relist; s.ColdRange == nil || s.ColdRange.Low < 150 || s.ColdRange.High > 350 || s.Sweep.Inspected > 60 {
			t.Errorf("cold %v, %+v", s.ColdRange, s.Sweep)
		}
	}
	e2etest.Place{Program: e2etest.Program(t), Args: []string{"--runtime-endpoint", endpoint}}.Check(t, []fault{
		{
			Name: "ten statuses hang in one pod",
			Make: proxied(fake.Fault{RPC: "*Status", Hang: true, Object: fake.Object{Pod: "pod-3"}}),
			Want: looks("20s", "InspectHang", checks.Critical, "hang", "PodSandboxStatus of box/pod-3 and 9 others hang",
				"kubelet <= 1.35: NotReady about every 4m", "kubelet >= 1.36: Ready, pod updates 2m late"),
		},
		{
			Name: "too many status calls for the time",
			Make: proxied(slow("ContainerStatus", 1500*time.Millisecond), slow("PodSandboxStatus", 1500*time.Millisecond)),
			Want: overloaded,
		},
		{
			Name: "a list of six seconds", Make: proxied(slow("ListContainers", 6*time.Second)), // critical on a busy machine
			Want: looks("20s", "RuntimeSlow", "", "for the two lists of a relist"),
		},
	})
}
