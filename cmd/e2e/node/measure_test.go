//go:build e2e

package node

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// TestEndToEndMeasure delays and withholds answers of a real containerd of 14 pods with 9 containers each, and looks
// with little and with much time.
func TestEndToEndMeasure(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{})
	e2etest.RunPods(t, c, nodebox.Pods{Count: 14, Containers: 9, State: crictl.ContainerCreated})
	listen := "unix://" + filepath.Join(t.TempDir(), "proxy.sock")
	proxy, err := fault.New(fault.Config{Backend: c.Endpoint(), Listen: listen})
	e2etest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		e2etest.Must(t, <-ended)
	})

	const second = fake.Duration(time.Second)
	status := func(rpc, pod string) fake.Fault {
		return fake.Fault{RPC: rpc, Hang: true, Object: fake.Object{Pod: pod}}
	}
	overloaded := []fake.Fault{
		{RPC: "ContainerStatus", Delay: second * 3 / 2}, {RPC: "PodSandboxStatus", Delay: second * 3 / 2},
	}
	slowList := []fake.Fault{{RPC: "ListContainers", Delay: 6 * second}}
	slow := []fake.Fault{{RPC: "Version", Delay: second}, {RPC: "*", Delay: second * 7 / 2}}
	for _, tt := range []struct {
		name    string
		faults  []fake.Fault
		timeout string
		code    string // of the cause; critical with "!", or with "~" on a busy machine; confidence below 0.5 with "?"
		summary string // a part
		effect  []string
	}{
		{"healthy", nil, "5s", "", "", nil},
		{
			"one status hung",
			[]fake.Fault{status("ContainerStatus", "pod-3")},
			"5s", "InspectHang!",
			"hang",
			[]string{"kubelet <= 1.35: NotReady about every 4m", "kubelet >= 1.36: Ready, pod updates 2m late"},
		},
		{
			"ten statuses hung in one pod",
			[]fake.Fault{status("*Status", "pod-3")},
			"20s", "InspectHang!", "PodSandboxStatus of box/pod-3 and 9 others hang",
			[]string{"kubelet <= 1.35: NotReady about every 4m", "kubelet >= 1.36: Ready, pod updates 2m late"},
		},
		{
			"ten statuses hung in ten pods",
			[]fake.Fault{
				status("PodSandboxStatus", "pod-[0-8]"), status("PodSandboxStatus", "pod-10"),
			},
			"20s", "InspectHang!", "and 9 others hang",
			[]string{"kubelet <= 1.35: NotReady about every 40m", "kubelet >= 1.36: NotReady about every 20m"},
		},
		{
			"too many status calls for the time", overloaded, "8s", "RelistOverloaded",
			"after a kubelet restart", nil,
		},
		{"a list of six seconds", slowList, "20s", "RuntimeSlow~", "for the two lists of a relist", nil},
		{"a list of six seconds in eight", slowList, "8s", "RuntimeSlow~", "for the two lists of a relist", nil},
		{"a list of six seconds in five", slowList, "5s", "ListHang!?", "or the list is slow", nil},
		{"all slow, in five seconds", slow, "5s", "RuntimeSlow!", "even Version took 1", nil},
		{"a list hung", []fake.Fault{{RPC: "ListContainers", Hang: true}}, "8s", "ListHang!", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e2etest.Must(t, proxy.SetFaults(tt.faults, nil))
			o := e2etest.Kdiag(t.Context(), t, "pleg", "--runtime-endpoint", listen, "--timeout", tt.timeout, "-o", "json")
			r := o.Report(t)
			if r.Relist == nil || (r.Relist.ColdSeconds == nil) != (r.Relist.ColdRange == nil) {
				t.Errorf("no range: %s", o.Stdout)
			}
			if s := r.Relist; tt.code == "RelistOverloaded" && (s.ColdRange.Low < 150 || s.ColdRange.High > 350 ||
				s.Sweep.Inspected > 60) {
				t.Errorf("cold %v, %d asked", s.ColdRange, s.Sweep.Inspected)
			}
			code := strings.TrimRight(tt.code, "!?~")
			signs := strings.TrimPrefix(tt.code, code)
			for _, cause := range r.Causes {
				if cause.Code != code {
					continue
				}
				if strings.Contains(signs, "?") != (cause.Confidence < 0.5) ||
					signs != "~" && strings.Contains(signs, "!") != (cause.Severity == checks.Critical) ||
					!strings.Contains(cause.Summary, tt.summary) {
					t.Errorf("%s %s %.2f: %s", cause.Severity, cause.Code, cause.Confidence, cause.Summary)
				}
				if diff := cmp.Diff(tt.effect, cause.Effect); tt.effect != nil && diff != "" {
					t.Errorf("effect (-want +got):\n%s", diff)
				}
				return
			}
			if code != "" {
				t.Errorf("causes %v, want %s", e2etest.Codes(r), tt.code)
			}
		})
	}
}
