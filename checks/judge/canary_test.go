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
func canaryRun(change func(*canary.Result)) *canary.Result {
	r := &canary.Result{
		Version: crictl.Version{RuntimeName: "containerd", RuntimeVersion: "v2.1.4", RuntimeAPIVersion: "v1"},
		Image:   "docker.io/library/busybox:1", SandboxID: canaryID, Attempts: 1, CleanedUp: true,
	}
	for _, name := range []string{
		"RunPodSandbox", "CreateContainer", "StartContainer", "StopPodSandbox",
		"RemovePodSandbox",
	} {
		r.Steps = append(r.Steps, canary.Step{Name: name, Elapsed: 100 * time.Millisecond, Outcome: canary.OK})
	}
	change(r)
	return r
}

// firstFails is a canary that ends with its first call.
func firstFails(outcome canary.Outcome, text string) func(*canary.Result) {
	return func(r *canary.Result) {
		r.Steps = []canary.Step{{Name: "Version", Elapsed: 100 * time.Millisecond, Outcome: outcome, Err: text}}
	}
}

// canaryFailure makes one of the steps fail.
func canaryFailure(step int, outcome canary.Outcome, text string) func(*canary.Result) {
	return func(r *canary.Result) { r.Steps[step].Outcome, r.Steps[step].Err = outcome, text }
}

func TestNewCanaryReport(t *testing.T) {
	both := func(changes ...func(*canary.Result)) func(*canary.Result) {
		return func(r *canary.Result) {
			for _, c := range changes {
				c(r)
			}
		}
	}
	spoiled := func(by canary.Spoiled) func(*canary.Result) { return func(r *canary.Result) { r.Spoiled = by } }
	left := func(r *canary.Result) { r.CleanedUp, r.Left = false, []string{canaryID} }
	for _, tt := range []struct {
		name     string
		change   func(*canary.Result)
		facts    CanaryFacts
		want     checks.Verdict
		summary  string
		commands []string // next steps
		problem  string   // in the first
	}{
		{
			name: "fine", change: func(*canary.Result) {}, want: checks.Healthy,
			summary: "a new sandbox and container went through their whole life",
		},
		{
			name: "just quick enough", change: func(r *canary.Result) { r.Steps[0].Elapsed = 5 * time.Second },
			want: checks.Healthy, summary: "a new sandbox and container went through their whole life",
		},
		{
			name: "slow", change: func(r *canary.Result) {
				r.Steps[0].Elapsed,
					r.Steps[3].Elapsed = 5001*time.Millisecond, 8*time.Second
			},
			want: checks.Degraded, summary: "RunPodSandbox took 5s and StopPodSandbox took 8s; a pod's whole " +
				"start should take less than 5s",
			commands: []string{"grep . /proc/pressure/*"},
		},
		{
			name: "a pull takes its time", change: func(r *canary.Result) {
				r.Steps[0] = canary.Step{Name: "PullImage", Elapsed: time.Minute, Outcome: canary.OK}
			},
			want: checks.Healthy, summary: "a new sandbox and container went through their whole life",
		},
		{
			name: "failed", change: canaryFailure(1, canary.Failed, "Unknown: \x1b[31mno space left on device"),
			want:     checks.Unhealthy,
			summary:  `CreateContainer failed after 100ms: Unknown: \u001b[31mno space left on device`,
			commands: []string{"df -h /var/lib/containerd /run; df -i /var/lib/containerd /run", "grep -E ' ro[, ]' /proc/mounts", "systemctl status --no-pager containerd", "journalctl --no-pager -n 100 -u containerd", "kdiag pleg"},
		},
		{
			name: "hung, and the endpoint was given", change: canaryFailure(2, canary.Hung, "no answer within 10s"),
			facts: CanaryFacts{Runtime: checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "flag"}},
			want:  checks.Unhealthy, summary: "StartContainer did not answer in 100ms",
			commands: []string{"kdiag pleg --runtime-endpoint unix:///run/x.sock"},
		},
		{
			name: "the network", change: canaryFailure(0, canary.Failed, "Unknown: cni"), facts: CanaryFacts{CNI: true},
			want: checks.Unhealthy, summary: "RunPodSandbox failed after 100ms: Unknown: cni",
			commands: []string{"ls -l /etc/cni/net.d /opt/cni/bin", "systemctl status --no-pager containerd", "journalctl --no-pager -n 100 -u containerd", "kdiag pleg", "kdiag canary"},
		},
		{
			name:   "the network add-on asks the API server",
			change: canaryFailure(0, canary.Failed, `Unknown: plugin type="calico" failed (add): error getting Namespace: namespaces "kdiag-canary" not found`),
			facts:  CanaryFacts{CNI: true}, want: checks.Unknown,
			summary:  `the network add-on looks the pod up in the API server, where a canary is not: Unknown: plugin type="calico" failed (add): error getting Namespace: namespaces "kdiag-canary" not found`,
			commands: []string{"kdiag canary"},
		},
		{
			name: "left", change: both(canaryFailure(4, canary.Failed, "Unknown: busy"), left),
			facts: CanaryFacts{Runtime: checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "well-known"}},
			want:  checks.Unhealthy, summary: "RemovePodSandbox failed after 100ms: Unknown: busy",
			commands: []string{"kdiag pleg", "crictl -r unix:///run/x.sock -t 60s rmp -f " + canaryID},
		},
		{
			name:   "left, with an id that no shell should see",
			change: both(left, func(r *canary.Result) { r.Left = []string{"$(reboot)"} }), want: checks.Unhealthy,
			summary:  "the canary could not be removed",
			commands: []string{"crictl -t 60s pods --label io.kdiag/canary=true", "kdiag pleg"},
		},
		{
			name:   "perhaps left",
			change: both(canaryFailure(0, canary.Hung, "no answer within 20s"), func(r *canary.Result) { r.CleanedUp = false }),
			want:   checks.Unhealthy, summary: "RunPodSandbox did not answer in 100ms",
			commands: []string{"crictl -t 60s pods --label io.kdiag/canary=true", "kdiag pleg"},
			problem:  "the runtime may still complete it",
		},
		{
			name:   "the kubelet",
			change: both(canaryFailure(2, canary.Failed, "NotFound: x"), spoiled(canary.ByOther), func(r *canary.Result) { r.Attempts = 3 }),
			facts:  CanaryFacts{Kubelet: &crictl.Kubelet{}, Again: "kdiag canary --cni"}, want: checks.Unknown,
			summary:  "something else stopped the canary's sandbox before StartContainer, " + "as a running kubelet does with pods that it does not know",
			commands: []string{"kdiag canary --cni"}, problem: "2 earlier attempts",
		},
		{
			name: "no kubelet", change: both(canaryFailure(2, canary.Failed, "NotFound: x"), spoiled(canary.ByOther)),
			want: checks.Unhealthy, summary: "the canary's sandbox did not stay up: StartContainer failed: NotFound: x",
			commands: []string{"kdiag pleg"},
		},
		{
			name:   "the kubelet of another runtime",
			change: both(canaryFailure(2, canary.Failed, "NotFound: x"), spoiled(canary.ByOther)),
			facts:  CanaryFacts{Kubelet: &crictl.Kubelet{Endpoint: "unix:///run/other.sock"}, Runtime: checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "env"}},
			want:   checks.Unhealthy, summary: "the canary's sandbox did not stay up: StartContainer failed: NotFound: x",
			commands: []string{"kdiag pleg"},
		},
		{
			name: "the image", change: both(canaryFailure(2, canary.Failed, "no sleep"), spoiled(canary.ByImage)),
			want: checks.Unknown, summary: "the image docker.io/library/busybox:1 cannot be run so: no sleep",
			commands: []string{"crictl -t 60s images"},
		},
		{
			name: "no such image", change: spoiled(canary.NoImage),
			facts: CanaryFacts{Asked: "x:1", Again: "kdiag canary --image x:1"}, want: checks.Unknown,
			summary:  "the image x:1 is not on this node",
			commands: []string{"crictl -t 60s images", "kdiag canary --image x:1 --pull"},
		},
		{
			name: "no image", change: spoiled(canary.NoImage), want: checks.Unknown,
			summary: "there is no image on this node", commands: []string{"crictl -t 60s images"},
		},
		{
			name: "interrupted", change: both(canaryFailure(2, canary.Cut, "x"), spoiled(canary.Interrupt)),
			want: checks.Unknown, summary: "the canary was interrupted",
		},
		{
			name: "interrupted and left", change: both(left, spoiled(canary.Interrupt)), want: checks.Unknown,
			summary: "the canary was interrupted", commands: []string{"crictl -t 60s rmp -f " + canaryID},
		},
		{
			name: "denied", change: canaryFailure(0, canary.Failed, "Unavailable"),
			facts:   CanaryFacts{Connect: crictl.Connect{State: crictl.ConnectDenied}, Runtime: checks.Runtime{Endpoint: "unix:///run/x.sock"}},
			want:    checks.Unknown,
			summary: "unix:///run/x.sock may not be opened by this user: run kdiag as root " + "(sudo kdiag ...)",
		},
		{
			name: "nobody listens", change: firstFails(canary.Failed, "Unavailable: connection error"),
			facts:    CanaryFacts{Connect: crictl.Connect{State: crictl.ConnectRefused}, Runtime: checks.Runtime{Endpoint: "unix:///run/x.sock", EndpointSource: "flag"}},
			want:     checks.Unhealthy,
			summary:  "RuntimeDown: nothing listens: /run/x.sock is there, but connecting " + "to it is refused",
			commands: []string{"kdiag pleg --runtime-endpoint unix:///run/x.sock"},
		},
		{
			name: "nothing answers", change: firstFails(canary.Hung, "no answer within 10s"),
			facts:    CanaryFacts{Connect: crictl.Connect{State: crictl.ConnectSilent, Elapsed: time.Second}},
			want:     checks.Unhealthy,
			summary:  "RuntimeHung: the runtime accepts connections and never says a word: " + "stopped, or waiting in the kernel",
			commands: []string{"kdiag pleg"},
		},
		{
			name: "not CRI", change: firstFails(canary.Failed, "Unimplemented: unknown service runtime.v1.RuntimeService"),
			facts: CanaryFacts{Connect: crictl.Connect{State: crictl.ConnectOK}}, want: checks.Unhealthy,
			summary:  "RuntimeUnsupported: the runtime speaks gRPC, but serves no CRI v1: " + "plugin disabled or not loaded, too old, or the wrong socket",
			commands: []string{"kdiag pleg"},
		},
		{
			name:     "the sandbox image is missing",
			change:   canaryFailure(0, canary.Failed, `Unknown: failed to get sandbox image "registry.k8s.io/pause:3.6": no such host`),
			want:     checks.Unhealthy,
			summary:  `RunPodSandbox failed after 100ms: Unknown: failed to get sandbox image "registry.k8s.io/pause:3.6": no such host`,
			commands: []string{"crictl -t 60s images", "systemctl status --no-pager containerd", "journalctl --no-pager -n 100 -u containerd", "kdiag pleg"},
		},
		{
			name: "earlier ones", change: func(r *canary.Result) {
				r.Earlier = canary.Earlier{Failed: []string{"a", "b"}, Err: "Unknown: busy"}
			},
			want: checks.Healthy, summary: "a new sandbox and container went through their whole life", problem: "canaries that earlier runs left (2)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Result = canaryRun(tt.change)
			got := NewCanaryReport(checks.Header{}, tt.facts)
			if got.Status != tt.want || got.Summary != tt.summary {
				t.Errorf("%s, %q; want %s, %q", got.Status, got.Summary, tt.want, tt.summary)
			}
			var commands []string
			for _, s := range got.NextSteps {
				commands = append(commands, s.Command)
			}
			if diff := cmp.Diff(tt.commands, commands); diff != "" {
				t.Errorf("next steps (-want +got):\n%s", diff)
			}
			if problem := strings.Join(got.Problems, "\n"); (tt.problem == "") != (problem == "") ||
				!strings.Contains(problem, tt.problem) {
				t.Errorf("problems %q, want %q", got.Problems, tt.problem)
			}
			if got.Kind != "CanaryReport" || got.Runtime.Name != "containerd" ||
				got.CleanedUp != tt.facts.Result.CleanedUp {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestCanaryNotBegun wants a document also when there was no runtime to ask.
func TestCanaryNotBegun(t *testing.T) {
	got := NewCanaryReport(checks.Header{}, CanaryFacts{Preceding: []string{
		"no runtime socket was found",
		"there is none: /run/x.sock",
	}})
	if got.Status != checks.Unknown || got.Steps == nil || got.NextSteps == nil || !got.CleanedUp ||
		len(got.Problems) != 1 || got.Summary != "no runtime socket was found" {
		t.Errorf("%+v", got)
	}
	if got := NewCanaryReport(checks.Header{}, CanaryFacts{}); got.Status != checks.Unknown || got.Summary == "" {
		t.Errorf("%+v", got)
	}
}

func TestCanaryStep(t *testing.T) {
	for _, tt := range []struct {
		step canary.Step
		want checks.CanaryStep
	}{
		{
			canary.Step{Name: "A", Elapsed: time.Second, Outcome: canary.OK},
			checks.CanaryStep{Name: "A", Seconds: 1, Status: checks.StatusOK},
		},
		{
			canary.Step{Name: "A", Outcome: canary.Skipped, Err: "why"},
			checks.CanaryStep{Name: "A", Status: checks.StatusSkipped, Skipped: "why"},
		},
		{
			canary.Step{Name: "A", Outcome: canary.Cut, Err: "why"},
			checks.CanaryStep{Name: "A", Status: checks.StatusCritical, Error: "why"},
		},
		{
			canary.Step{Name: "A", Outcome: canary.Hung, Err: "why"},
			checks.CanaryStep{Name: "A", Status: checks.StatusCritical, Error: "why", Hung: true},
		},
		{
			canary.Step{Name: "A", Elapsed: time.Minute, Outcome: canary.Failed, Err: "\x07"},
			checks.CanaryStep{Name: "A", Seconds: 60, Status: checks.StatusCritical, Error: `\u0007`},
		},
	} {
		if diff := cmp.Diff(tt.want, canaryStep(tt.step), cmp.AllowUnexported(checks.CanaryStep{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
