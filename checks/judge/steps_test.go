package judge

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
)

func lines(steps []checks.NextStep) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Command+": "+s.Touches)
	}
	return out
}

// TestLeastIsLostFirst checks that a pod is deleted through the API before its shim is killed, and that what writes a
// dump is no mere look.
func TestLeastIsLostFirst(t *testing.T) {
	f := node(statusHangs("container1-0"))
	f.Processes = append(f.Processes, host.Process{
		PID: 5000, Name: "containerd-shim", Role: host.RoleShim, State: 'S', ObjectID: "sandbox1",
	})
	var got []string
	for _, s := range only(t, f, causes.InspectHang).NextSteps {
		word, _, _ := strings.Cut(s.Command, " -")
		got = append(got, word+": "+s.Touches)
	}
	dump, deletes := slices.Index(got, "kdiag stacks: a dump"), slices.Index(got, "kubectl delete pod: one pod")
	kill := slices.Index(got, "kill: one pod")
	if dump < 0 || deletes < dump || kill < deletes {
		t.Errorf("%q", got)
	}
}

// TestPathsInCommands checks that no path that a shell would read otherwise stands in a command.
func TestPathsInCommands(t *testing.T) {
	for _, point := range []string{"/mnt/a b", "/mnt/$(reboot)", "/mnt/`x`", "/mnt/a;b", "/mnt/'x'", "/mnt/\n"} {
		f := node(seen(func(n *facts.Node) {
			n.Mounts.Value.Probed[0].Hung, n.Mounts.Value.Probed[0].Point = true, point
			n.Spaces.Value[0].Free, n.Spaces.Value[0].Mount = 0, point
			n.Spaces.Value[0].Folders = []host.Folder{{Path: point, Role: host.FolderRuntime}}
		}))
		named := Judge(f)
		if diff := strings.Join(codes(named), " "); diff != "FilesystemHung DiskFull" &&
			diff != "DiskFull FilesystemHung" {
			t.Errorf("%q: %s", point, diff)
		}
		for _, c := range named {
			if mentions(lines(c.NextSteps), point) {
				t.Errorf("%s: %q", c.Code, lines(c.NextSteps))
			}
		}
	}
}

// TestStepsWithoutSystemd has what is found on a host with systemd once more on one without, and for the commands
// that look at the runtime alone.
func TestStepsWithoutSystemd(t *testing.T) {
	steps := map[string][]checks.NextStep{}
	for name, f := range gallery() {
		f.NoSystemd = true
		for _, c := range Judge(f) {
			steps[name+" "+c.Code] = c.NextSteps
		}
	}
	alone := func(tweaks ...tweak) *facts.Input {
		f := node(tweaks...)
		f.NoSystemd = true
		return f
	}
	steps["runtime"] = NewRuntimeProbe(checks.Header{}, alone(hangs(everyRPC()...))).Causes[0].NextSteps
	steps["relist"] = NewRelistBenchmark(checks.Header{},
		alone(takes(3*time.Second, everyRPC()...))).Causes[0].NextSteps
	steps["canary"] = NewCanaryReport(checks.Header{}, CanaryFacts{
		NoSystemd: true,
		Runtime:   checks.Runtime{Endpoint: "unix:///run/containerd/containerd.sock", EndpointSource: "flag"},
		Result:    canaryRun(canaryFailure(0, canary.Failed, "Unknown: read-only file system")),
	}).NextSteps
	for name, all := range steps {
		if got := lines(all); len(got) == 0 || mentions(got, "systemctl ") || mentions(got, "journalctl ") ||
			mentions(got, "timedatectl") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestStepsAreShell has a shell read every command of the recorded cases, without running it.
func TestStepsAreShell(t *testing.T) {
	var script strings.Builder
	for _, f := range gallery() {
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				fmt.Fprintln(&script, s.Command)
			}
		}
	}
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(script.String())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, script.String())
	}
}

// TestKdiagCommand checks that next steps are about the runtime that was asked, and a simulation's never about the node
// at hand.
func TestKdiagCommand(t *testing.T) {
	for want, r := range map[string]checks.Runtime{
		"kdiag pleg": {Endpoint: "unix:///run/x.sock", EndpointSource: "well-known"},
		"kdiag pleg --runtime-endpoint unix:///run/x.sock": {Endpoint: "unix:///run/x.sock", EndpointSource: "flag"},
		"kdiag pleg --simulate exited-flood":               {EndpointSource: "simulated", Simulate: "exited-flood"},
		"kdiag pleg --simulate './a b.yaml'":               {EndpointSource: "simulated", Simulate: "'./a b.yaml'"},
		"kdiag pleg --simulate SCENARIO":                   {EndpointSource: "simulated"},
	} {
		if got := facts.KdiagCommand(facts.New(&facts.Input{Runtime: r}), "pleg"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestLoadingIsWaitedFor checks that the steps for a runtime that loads its state wait for it before any restart.
func TestLoadingIsWaitedFor(t *testing.T) {
	for _, tweak := range []tweak{condition(0, false), fails(crictl.Unavailable, notInitialised, everyRPC()...)} {
		c := only(t, node(tweak), causes.RuntimeNotReady)
		first := slices.IndexFunc(
			c.NextSteps,
			func(s checks.NextStep) bool { return s.Touches != checks.TouchesNothing },
		)
		if first < 1 || !mentions(lines(c.NextSteps[:first]), "kdiag runtime") ||
			!strings.HasPrefix(c.NextSteps[first].Why, "Only if") {
			t.Errorf("%+v", c.NextSteps)
		}
	}
}
