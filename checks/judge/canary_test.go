package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
)

const canaryID = "5f0e1d2c3b4a59687786958473625140f1e2d3c4b5a69788796a5b4c3d2e1f00"

// canaryRun is a canary that went well, changed.
func canaryRun(changes ...func(*canary.Result)) *canary.Result {
	r := &canary.Result{
		Version: crictl.Version{RuntimeName: "containerd", RuntimeVersion: "v2.1.4", RuntimeAPIVersion: "v1"},
		Image:   "docker.io/library/busybox:1", SandboxID: canaryID, Attempts: 1, CleanedUp: true,
	}
	for _, name := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopPodSandbox", "RemovePodSandbox"} {
		r.Steps = append(r.Steps, canary.Step{Name: name, Elapsed: 100 * time.Millisecond, Outcome: canary.OK})
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

// canaryFailure makes one of the steps fail.
func canaryFailure(step int, outcome canary.Outcome, text string) func(*canary.Result) {
	return func(r *canary.Result) { r.Steps[step].Outcome, r.Steps[step].Err = outcome, text }
}

// versionFails is a canary that ends with its first call.
func versionFails(outcome canary.Outcome, text string) func(*canary.Result) {
	return func(r *canary.Result) {
		r.Steps = []canary.Step{{Name: "Version", Elapsed: 100 * time.Millisecond, Outcome: outcome, Err: text}}
	}
}

func spoiled(by canary.Spoiled) func(*canary.Result) {
	return func(r *canary.Result) { r.Spoiled = by }
}

func TestNewCanaryReport(t *testing.T) {
	left := func(id string) func(*canary.Result) {
		return func(r *canary.Result) { r.CleanedUp, r.Left = false, []string{id} }
	}
	takes := func(step int, name string, d time.Duration) func(*canary.Result) {
		return func(r *canary.Result) { r.Steps[step].Name, r.Steps[step].Elapsed = name, d }
	}
	given := checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "flag"}
	found := checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "well-known"}
	state := func(s crictl.ConnectState) crictl.Connect { return crictl.Connect{State: s} }
	gone := canaryFailure(2, canary.Failed, "NotFound: x")
	other := crictl.Kubelet{Endpoint: "unix:///run/other.sock"}
	const service = "systemctl status --no-pager containerd | journalctl --no-pager -n 100 -u containerd"
	const calico = `Unknown: plugin type="calico" failed (add): namespaces "kdiag-canary" not found`
	type tweaks = []func(*canary.Result)
	for _, tt := range []struct {
		name     string
		want     checks.Verdict
		in       string // the summary
		commands string // of the next steps, all of them
		problem  string
		facts    CanaryFacts
		changes  tweaks
	}{
		{"fine", checks.Healthy, "whole life", "", "", CanaryFacts{}, nil},
		{
			"just quick enough", checks.Healthy, "whole life", "", "",
			CanaryFacts{},
			tweaks{takes(0, "RunPodSandbox", 5*time.Second)},
		},
		{
			"slow", checks.Degraded, "RunPodSandbox took 6s", "grep . /proc/pressure/*", "",
			CanaryFacts{},
			tweaks{takes(0, "RunPodSandbox", 6*time.Second)},
		},
		{
			"a pull takes its time", checks.Healthy, "whole life", "", "",
			CanaryFacts{},
			tweaks{takes(0, "PullImage", time.Minute)},
		},
		{
			"failed", checks.Unhealthy, `CreateContainer failed after 100ms: Unknown: \u001b[31mno space`,
			"df -h /var/lib/containerd /run; df -i /var/lib/containerd /run | grep -E ' ro[, ]' /proc/mounts | " + service + " | kdiag pleg",
			"",
			CanaryFacts{},
			tweaks{canaryFailure(1, canary.Failed, "Unknown: \x1b[31mno space left on device")},
		},
		{
			"hung, and the endpoint was given", checks.Unhealthy, "StartContainer did not answer in 100ms",
			"kdiag pleg --runtime-endpoint unix:///run/x.sock", "",
			CanaryFacts{Runtime: given},
			tweaks{canaryFailure(2, canary.Hung, "no answer")},
		},
		{
			"the network", checks.Unhealthy, "RunPodSandbox failed after 100ms: Unknown: cni",
			"ls -l /etc/cni/net.d /opt/cni/bin | " + service + " | kdiag pleg | kdiag canary", "",
			CanaryFacts{CNI: true},
			tweaks{canaryFailure(0, canary.Failed, "Unknown: cni")},
		},
		{
			"the network add-on asks the API server", checks.Unknown, "the network add-on looks the pod up",
			"kdiag canary", "",
			CanaryFacts{CNI: true},
			tweaks{canaryFailure(0, canary.Failed, calico)},
		},
		{
			"left", checks.Unhealthy, "RemovePodSandbox failed after 100ms: Unknown: busy",
			"kdiag pleg | crictl -r unix:///run/x.sock -t 60s rmp -f " + canaryID, "",
			CanaryFacts{Runtime: found},
			tweaks{canaryFailure(4, canary.Failed, "Unknown: busy"), left(canaryID)},
		},
		{
			"left, with an id that no shell should see", checks.Unhealthy, "could not be removed",
			"crictl -t 60s pods --label io.kdiag/canary=true | kdiag pleg", "",
			CanaryFacts{},
			tweaks{left("$(reboot)")},
		},
		{
			"perhaps left", checks.Unhealthy, "RunPodSandbox did not answer",
			"crictl -t 60s pods --label io.kdiag/canary=true | kdiag pleg", "the runtime may still complete it",
			CanaryFacts{},
			tweaks{canaryFailure(0, canary.Hung, "no answer"), func(r *canary.Result) { r.CleanedUp = false }},
		},
		{
			"the kubelet", checks.Unknown, "something else stopped the canary's sandbox before StartContainer",
			"kdiag canary --cni", "2 earlier attempts",
			CanaryFacts{Kubelet: &crictl.Kubelet{}, Again: "kdiag canary --cni"},
			tweaks{gone, spoiled(canary.ByOther), func(r *canary.Result) { r.Attempts = 3 }},
		},
		{
			"no kubelet", checks.Unhealthy, "did not stay up: StartContainer failed", "kdiag pleg", "",
			CanaryFacts{},
			tweaks{gone, spoiled(canary.ByOther)},
		},
		{
			"the kubelet of another runtime", checks.Unhealthy, "did not stay up", "kdiag pleg", "",
			CanaryFacts{Kubelet: &other, Runtime: found},
			tweaks{gone, spoiled(canary.ByOther)},
		},
		{
			"the image", checks.Unknown, "cannot be run so", "crictl -t 60s images", "",
			CanaryFacts{},
			tweaks{gone, spoiled(canary.ByImage)},
		},
		{
			"no such image", checks.Unknown, "the image x:1 is not on this node",
			"crictl -t 60s images | kdiag canary --image x:1 --pull", "",
			CanaryFacts{Asked: "x:1", Again: "kdiag canary --image x:1"},
			tweaks{spoiled(canary.NoImage)},
		},
		{
			"no image", checks.Unknown, "there is no image on this node", "crictl -t 60s images", "",
			CanaryFacts{},
			tweaks{spoiled(canary.NoImage)},
		},
		{
			"interrupted and left", checks.Unknown, "interrupted", "crictl -t 60s rmp -f " + canaryID, "",
			CanaryFacts{},
			tweaks{canaryFailure(2, canary.Cut, "x"), left(canaryID), spoiled(canary.Interrupt)},
		},
		{
			"denied", checks.Unknown, "run kdiag as root", "", "",
			CanaryFacts{Connect: state(crictl.ConnectDenied)},
			tweaks{versionFails(canary.Failed, "Unavailable")},
		},
		{
			"nobody listens", checks.Unhealthy, "RuntimeDown: ", "kdiag pleg --runtime-endpoint unix:///run/x.sock", "",
			CanaryFacts{Connect: state(crictl.ConnectRefused), Runtime: given},
			tweaks{versionFails(canary.Failed, "Unavailable: refused")},
		},
		{
			"nothing answers", checks.Unhealthy, "RuntimeHung: ", "kdiag pleg", "",
			CanaryFacts{Connect: state(crictl.ConnectSilent)},
			tweaks{versionFails(canary.Hung, "no answer within 10s")},
		},
		{
			"not CRI", checks.Unhealthy, "RuntimeUnsupported: ", "kdiag pleg", "",
			CanaryFacts{Connect: state(crictl.ConnectOK)},
			tweaks{versionFails(canary.Failed, "Unimplemented: unknown service runtime.v1.RuntimeService")},
		},
		{
			"the sandbox image is missing", checks.Unhealthy, "RunPodSandbox failed",
			"crictl -t 60s images | " + service + " | kdiag pleg", "",
			CanaryFacts{},
			tweaks{canaryFailure(0, canary.Failed, `Unknown: failed to get sandbox image "pause:3.6": no such host`)},
		},
		{
			"earlier ones", checks.Healthy, "whole life", "", "canaries that earlier runs left (2)",
			CanaryFacts{},
			tweaks{func(r *canary.Result) { r.Earlier = canary.Earlier{Failed: []string{"a", "b"}, Err: "Unknown: busy"} }},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Result = canaryRun(tt.changes...)
			got := NewCanaryReport(checks.Header{}, tt.facts)
			if got.Status != tt.want || !strings.Contains(got.Summary, tt.in) {
				t.Errorf("%s, %q; want %s, %q", got.Status, got.Summary, tt.want, tt.in)
			}
			var commands []string
			for _, s := range got.NextSteps {
				commands = append(commands, s.Command)
			}
			if diff := cmp.Diff(tt.commands, strings.Join(commands, " | ")); diff != "" {
				t.Errorf("next steps (-want +got):\n%s", diff)
			}
			if problem := strings.Join(got.Problems, "\n"); (tt.problem == "") != (problem == "") ||
				!strings.Contains(problem, tt.problem) {
				t.Errorf("problems %q, want %q", got.Problems, tt.problem)
			}
			if got.Runtime.Name != "containerd" || got.CleanedUp != tt.facts.Result.CleanedUp ||
				len(got.Steps) != len(tt.facts.Result.Steps) {
				t.Errorf("%+v", got)
			}
		})
	}
	none := NewCanaryReport(checks.Header{},
		CanaryFacts{Preceding: []string{"no runtime socket was found", "there is none"}})
	if none.Status != checks.Unknown || none.Steps == nil || none.NextSteps == nil || len(none.Problems) != 1 ||
		none.Summary != "no runtime socket was found" || NewCanaryReport(checks.Header{}, CanaryFacts{}).Summary == "" {
		t.Errorf("not begun: %+v", none)
	}
	if s := canaryStep(canary.Step{Outcome: canary.Skipped, Err: "\x07"}); s.Status != checks.StatusSkipped ||
		s.Skipped != `\u0007` ||
		s.Error != "" {
		t.Errorf("%+v", s)
	}
}
