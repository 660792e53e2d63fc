package judge

import (
	"slices"
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
	const names = "RunPodSandbox CreateContainer StartContainer StopPodSandbox RemovePodSandbox"
	for name := range strings.FieldsSeq(names) {
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
	type row struct {
		name     string
		want     checks.Verdict
		commands string // of the next steps, all of them
		facts    CanaryFacts
		changes  []func(*canary.Result)
	}
	test := func(name string, want checks.Verdict, commands string, f CanaryFacts,
		changes ...func(*canary.Result),
	) row {
		return row{name, want, commands, f, changes}
	}
	for _, tt := range []row{
		test("fine", checks.Healthy, "", CanaryFacts{}),
		test("just quick enough", checks.Healthy, "", CanaryFacts{}, takes(0, "RunPodSandbox", 4500*time.Millisecond)),
		test("slow in all", checks.Degraded, "grep . /proc/pressure/*", CanaryFacts{},
			takes(0, "RunPodSandbox", 3*time.Second), takes(1, "CreateContainer", 2*time.Second)),
		test("slow", checks.Degraded, "grep . /proc/pressure/*", CanaryFacts{},
			takes(0, "RunPodSandbox", 6*time.Second)),
		test("a pull takes its time", checks.Healthy, "", CanaryFacts{}, takes(0, "PullImage", time.Minute)),
		test("failed", checks.Unhealthy, "df -h /var/lib/containerd /run; df -i /var/lib/containerd /run | "+
			"grep -E ' ro[, ]' /proc/mounts | "+service+" | kdiag pleg",
			CanaryFacts{}, canaryFailure(1, canary.Failed, "Unknown: \x1b[31mno space left on device")),
		test("hung, and the endpoint was given", checks.Unhealthy, "kdiag pleg --runtime-endpoint unix:///run/x.sock",
			CanaryFacts{Runtime: given}, canaryFailure(2, canary.Hung, "no answer")),
		test("the network", checks.Unhealthy,
			"ls -l /etc/cni/net.d /opt/cni/bin | "+service+" | kdiag pleg | kdiag canary",
			CanaryFacts{CNI: true}, canaryFailure(0, canary.Failed, "Unknown: cni")),
		test("the network add-on asks the API server", checks.Unknown, "kdiag canary",
			CanaryFacts{CNI: true}, canaryFailure(0, canary.Failed, calico)),
		test("left", checks.Unhealthy, "kdiag pleg | crictl -r unix:///run/x.sock -t 60s rmp -f "+canaryID,
			CanaryFacts{Runtime: found}, canaryFailure(4, canary.Failed, "Unknown: busy"), left(canaryID)),
		test("left, with an id that no shell should see", checks.Unhealthy,
			"crictl -t 60s pods --label io.kdiag/canary=true | kdiag pleg", CanaryFacts{}, left("$(reboot)")),
		test("perhaps left", checks.Unhealthy, "crictl -t 60s pods --label io.kdiag/canary=true | kdiag pleg",
			CanaryFacts{}, canaryFailure(0, canary.Hung, "no answer"), func(r *canary.Result) { r.CleanedUp = false }),
		test("the kubelet", checks.Unknown, "kdiag canary --cni",
			CanaryFacts{Kubelet: &crictl.Kubelet{}, Again: "kdiag canary --cni"}, gone, spoiled(canary.ByOther),
			func(r *canary.Result) { r.Attempts = 3 }),
		test("no kubelet", checks.Unhealthy, "kdiag pleg", CanaryFacts{}, gone, spoiled(canary.ByOther)),
		test("the kubelet of another runtime", checks.Unhealthy, "kdiag pleg",
			CanaryFacts{Kubelet: &other, Runtime: found}, gone, spoiled(canary.ByOther)),
		test("the image", checks.Unknown, "crictl -t 60s images", CanaryFacts{}, gone, spoiled(canary.ByImage)),
		test("no such image", checks.Unknown, "crictl -t 60s images | kdiag canary --image x:1 --pull",
			CanaryFacts{Asked: "x:1", Again: "kdiag canary --image x:1"}, spoiled(canary.NoImage)),
		test("no image", checks.Unknown, "crictl -t 60s images", CanaryFacts{}, spoiled(canary.NoImage)),
		test("interrupted and left", checks.Unknown, "crictl -t 60s rmp -f "+canaryID, CanaryFacts{},
			canaryFailure(2, canary.Cut, "x"), left(canaryID), spoiled(canary.Interrupt)),
		test("denied", checks.Unknown, "", CanaryFacts{Connect: state(crictl.ConnectDenied)},
			versionFails(canary.Failed, "Unavailable")),
		test("RuntimeDown: nobody listens", checks.Unhealthy, "kdiag pleg --runtime-endpoint unix:///run/x.sock",
			CanaryFacts{Connect: state(crictl.ConnectRefused), Runtime: given},
			versionFails(canary.Failed, "Unavailable: refused")),
		test("RuntimeHung: nothing answers", checks.Unhealthy, "kdiag pleg",
			CanaryFacts{Connect: state(crictl.ConnectSilent)}, versionFails(canary.Hung, "no answer within 10s")),
		test("RuntimeUnsupported: not CRI", checks.Unhealthy, "kdiag pleg",
			CanaryFacts{Connect: state(crictl.ConnectOK)},
			versionFails(canary.Failed, "Unimplemented: unknown service runtime.v1.RuntimeService")),
		test("the sandbox image is missing", checks.Unhealthy, "crictl -t 60s images | "+service+" | kdiag pleg",
			CanaryFacts{},
			canaryFailure(0, canary.Failed, `Unknown: failed to get sandbox image "pause:3.6": no such host`)),
		test("earlier ones", checks.Healthy, "", CanaryFacts{},
			func(r *canary.Result) { r.Earlier = canary.Earlier{Failed: []string{"a", "b"}, Err: "Unknown: busy"} }),
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Result = canaryRun(tt.changes...)
			got := NewCanaryReport(checks.Header{}, tt.facts)
			code, _, hasCode := strings.Cut(tt.name, ": ") // the cause that a runtime has which does not answer
			if got.Status != tt.want || got.Summary == "" || hasCode && !strings.HasPrefix(got.Summary, code+": ") {
				t.Errorf("%s, %q; want %s", got.Status, got.Summary, tt.want)
			}
			var commands []string
			for _, s := range got.NextSteps {
				commands = append(commands, s.Command)
			}
			if diff := cmp.Diff(tt.commands, strings.Join(commands, " | ")); diff != "" {
				t.Errorf("next steps (-want +got):\n%s", diff)
			}
			problems := 0
			if slices.Contains([]string{"perhaps left", "the kubelet", "earlier ones"}, tt.name) {
				problems++
			}
			if got.Status == checks.Unknown {
				problems++ // why
			}
			if len(got.Problems) != problems {
				t.Errorf("problems %q", got.Problems)
			}
			if got.Runtime.Name != "containerd" || got.CleanedUp != tt.facts.Result.CleanedUp ||
				len(got.Steps) != len(tt.facts.Result.Steps) {
				t.Errorf("%+v", got)
			}
		})
	}
	none := NewCanaryReport(checks.Header{},
		CanaryFacts{Preceding: []string{"no runtime socket was found", "there is none"}})
	if none.Status != checks.Unknown || none.Steps == nil || len(none.Problems) != 2 ||
		none.Summary != "no runtime socket was found" || NewCanaryReport(checks.Header{}, CanaryFacts{}).Summary == "" {
		t.Errorf("not begun: %+v", none)
	}
	if s := canaryStep(canary.Step{Outcome: canary.Skipped, Err: "\x07"}); s.Status != checks.StatusSkipped ||
		s.Skipped != `\u0007` ||
		s.Error != "" {
		t.Errorf("%+v", s)
	}
}
