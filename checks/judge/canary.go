package judge

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
)

// slowStep is how long a step may take before it is slow: the whole start of a pod has 5 s, image pulls apart, at the
// 99th percentile (pod startup latency in the scalability SLOs of Kubernetes).
const slowStep = 5 * time.Second

// CanaryFacts are what a canary is judged by.
type CanaryFacts struct {
	Runtime   checks.Runtime
	Result    *canary.Result  // nil when it was not begun
	CNI       bool            // it has a network of its own
	Asked     string          // image that was asked for; empty when kdiag was to pick one
	Kubelet   *crictl.Kubelet // that runs on this host; nil when none does
	NoSystemd bool            // something else than systemd runs this host
	Connect   crictl.Connect  // what a probe found of a runtime that did not answer Version
	Again     string          // the command that was run, to be run again
	Preceding []string        // what kept kdiag from beginning
}

// NewCanaryReport judges a canary and makes the document of kdiag canary.
func NewCanaryReport(h checks.Header, f CanaryFacts) *checks.CanaryReport {
	r := &checks.CanaryReport{
		Header: fill(h, checks.KindCanaryReport,
			&facts.Facts{}), Runtime: facts.RuntimeOf(facts.New(&facts.Input{Runtime: f.Runtime})), Status: checks.Unknown, Network: "host",
		Steps: []checks.CanaryStep{}, CleanedUp: true, NextSteps: []checks.NextStep{},
	}
	if f.CNI {
		r.Network = "cni"
	}
	res := f.Result
	if res == nil {
		r.Summary = "no canary was run"
		if lines := cleanAll(f.Preceding); len(lines) > 0 {
			r.Summary, r.Problems = lines[0], lines[1:]
		}
		return r
	}
	r.Runtime.Name = cmp.Or(r.Runtime.Name, facts.Clean(res.Version.RuntimeName))
	r.Runtime.Version = cmp.Or(r.Runtime.Version, facts.Clean(res.Version.RuntimeVersion))
	r.Runtime.APIVersion = cmp.Or(r.Runtime.APIVersion, facts.Clean(res.Version.RuntimeAPIVersion))
	r.Image, r.SandboxID, r.Attempts, r.CleanedUp = facts.Clean(res.Image), facts.Clean(res.SandboxID), res.Attempts, res.CleanedUp
	for _, s := range res.Steps {
		r.Steps = append(r.Steps, canaryStep(s))
		r.Seconds += s.Elapsed.Seconds()
	}
	r.Left, r.Earlier = cleanAll(res.Left), cleanAll(res.Earlier.Removed)
	r.Status, r.Summary = f.verdict(r.Steps)
	r.Problems = append(r.Problems, f.problems()...)
	r.NextSteps = noNil(f.nextSteps(r))
	return r
}

func canaryStep(s canary.Step) checks.CanaryStep {
	out := checks.CanaryStep{Name: facts.Clean(s.Name), Seconds: s.Elapsed.Seconds(), Status: checks.StatusOK}
	switch {
	case s.Outcome == canary.Skipped:
		out.Status, out.Skipped = checks.StatusSkipped, facts.Clean(s.Err)
	case s.Outcome != canary.OK:
		out.Status, out.Error, out.Hung = checks.StatusCritical, facts.Clean(s.Err), s.Outcome == canary.Hung
	case s.Elapsed > slowStep && s.Name != "PullImage": // that takes what the network gives
		out.Status = checks.StatusWarning
	}
	return out
}

func cleanAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, facts.Clean(s))
	}
	return out
}

// failedStep is the first step that failed; nil when none did.
func failedStep(steps []checks.CanaryStep) *checks.CanaryStep {
	for i := range steps {
		if steps[i].Status == checks.StatusCritical {
			return &steps[i]
		}
	}
	return nil
}

// housekept reports whether a kubelet looks after the runtime in which the canary was run.
func (f *CanaryFacts) housekept() bool {
	return f.Kubelet != nil && !facts.New(&facts.Input{Runtime: f.Runtime, Kubelet: f.Kubelet}).Target.OtherEndpoint
}

// looksUpPod reports whether a canary failed because its network add-on asks the API server for the pod or its
// namespace: Calico does (CmdAddK8s in cni-plugin/pkg/k8s), and Multus.
func (f *CanaryFacts) looksUpPod(failed *checks.CanaryStep) bool {
	return failed != nil && f.CNI && failed.Name == "RunPodSandbox" &&
		strings.Contains(failed.Error, canary.Namespace) && facts.Says(failed.Error, `" not found`, "forbidden")
}

// verdict judges the course. What spoiled it makes it say nothing of the runtime, unless it could not be cleaned up.
func (f *CanaryFacts) verdict(steps []checks.CanaryStep) (checks.Verdict, string) {
	failed := failedStep(steps)
	name, why := "", ""
	if failed != nil {
		name, why = failed.Name, failed.Error
	}
	switch {
	case f.Connect.State == crictl.ConnectDenied:
		return checks.Unknown, f.Runtime.Endpoint +
			" may not be opened by this user: run kdiag as root (sudo kdiag ...)"
	case f.Result.Spoiled == canary.Interrupt:
		return checks.Unknown, "the canary was interrupted"
	case name == facts.RPCVersion:
		return checks.Unhealthy, WhySilent(f.Runtime, f.Connect, f.firstCall())
	case f.Result.Spoiled == canary.NoImage && f.Asked != "":
		return checks.Unknown, "the image " + facts.Clean(f.Asked) + " is not on this node"
	case f.Result.Spoiled == canary.NoImage:
		return checks.Unknown, "there is no image on this node"
	case f.Result.Spoiled == canary.ByImage:
		return checks.Unknown, "the image " + facts.Clean(f.Result.Image) + " cannot be run so: " + why
	case f.Result.Spoiled == canary.ByOther && f.housekept():
		return checks.Unknown, "something else stopped the canary's sandbox before " + name +
			", as a running kubelet does with pods that it does not know"
	case f.Result.Spoiled == canary.ByOther:
		return checks.Unhealthy, "the canary's sandbox did not stay up: " + name + " failed: " + why
	case failed != nil && failed.Hung:
		return checks.Unhealthy, name + " did not answer in " + units.Seconds(failed.Seconds)
	case f.looksUpPod(failed):
		return checks.Unknown, "the network add-on looks the pod up in the API server, where a canary is not: " + why
	case failed != nil:
		return checks.Unhealthy, name + " failed after " + units.Seconds(failed.Seconds) + ": " + why
	case !f.Result.CleanedUp:
		return checks.Unhealthy, "the canary could not be removed"
	}
	var slow []string
	for _, s := range steps {
		if s.Status == checks.StatusWarning {
			slow = append(slow, s.Name+" took "+units.Seconds(s.Seconds))
		}
	}
	if len(slow) > 0 {
		return checks.Degraded, units.List(slow) + "; a pod's whole start should take less than " +
			units.Duration(slowStep)
	}
	return checks.Healthy, "a new sandbox and container went through their whole life"
}

// problems says what was not as it should be beside the course.
func (f *CanaryFacts) problems() []string {
	var lines []string
	res := f.Result
	if res.Attempts > 1 {
		causes.Addf(&lines, "%s had its sandbox stopped by something else: a running kubelet stops pods that it "+
			"does not know every 2 s",
			units.Count(res.Attempts-1, "earlier attempt"))
	}
	if !res.CleanedUp && len(res.Left) == 0 {
		lines = append(lines, "the making of the sandbox was given up, and the runtime may still complete it; "+
			"the next kdiag canary looks for it once its time is over")
	}
	if res.LogsLeft != "" {
		causes.Addf(&lines, "the folder %s could not be removed", facts.Clean(res.LogsLeft))
	}
	if e := res.Earlier; e.Err != "" {
		what := "looking for canaries that earlier runs left"
		if len(e.Failed) > 0 {
			what = "removing " + units.Count(len(e.Failed), "canary") + " of an earlier run"
		}
		if n := len(e.Failed); n > 1 {
			what = "removing " + units.Number(n) + " canaries of earlier runs"
		}
		causes.Addf(&lines, "%s: %s", what, facts.Clean(e.Err))
	}
	return lines
}

// nextSteps says what to do with the answer.
func (f *CanaryFacts) nextSteps(r *checks.CanaryReport) []checks.NextStep {
	var s causes.Steps
	known := facts.New(&facts.Input{Runtime: r.Runtime, NoSystemd: f.NoSystemd})
	if !r.CleanedUp {
		f.addRemoval(&s, known)
	}
	failed := failedStep(r.Steps)
	switch {
	case f.Connect.State == crictl.ConnectDenied:
	case f.Result.Spoiled == canary.NoImage && f.Asked != "":
		s.Add(checks.TouchesNothing, facts.CrictlCommand(known, "images"), "Which images are on the node?")
		s.Add(checks.TouchesPod, f.Again+" --pull", "Or let the runtime pull it, which also tries the registry.")
	case f.Result.Spoiled == canary.NoImage, f.Result.Spoiled == canary.ByImage:
		s.Add(checks.TouchesNothing, facts.CrictlCommand(known, "images"),
			"Which images are on the node? Name one that holds sleep with --image, or its program after --.")
	case f.Result.Spoiled == canary.ByOther && f.housekept():
		s.Add(checks.TouchesPod, f.Again,
			"Try again: a canary that takes less than 2 s often gets through between two rounds of the kubelet.")
	case f.looksUpPod(failed):
		s.Add(checks.TouchesPod, facts.KdiagCommand(known, "canary"),
			"Tries everything but the network. Only a pod from the API server tries that one as well.")
	case failed != nil && failed.Name == "RunPodSandbox" && f.CNI:
		s.Add(checks.TouchesPod, facts.KdiagCommand(known, "canary"),
			"Does it work on the host's network? Then CNI is what fails.")
		s.Add(checks.TouchesNothing, "ls -l /etc/cni/net.d /opt/cni/bin",
			"Is there a network configuration, and are its plugins there?")
	case failed != nil && failed.Name == "PullImage":
		s.Add(checks.TouchesNothing, facts.CrictlCommand(known, "images"),
			"Is there another image on the node to use with --image?")
	}
	if failed != nil && !failed.Hung && r.Status == checks.Unhealthy && f.Result.Spoiled == "" {
		addForStep(known, &s, failed)
	}
	if r.Status == checks.Unhealthy {
		s = append(s, StepWhenSilent(facts.KdiagCommand(known, "pleg")))
	}
	if r.Status == checks.Degraded {
		causes.AddPressure(known, &s)
	}
	return causes.PlainSteps(known, s.Done())
}

// firstCall is Version, as the judge of a node knows calls.
func (f *CanaryFacts) firstCall() crictl.Call {
	call := crictl.Call{Method: facts.RPCVersion, Code: crictl.Unknown}
	for _, s := range f.Result.Steps {
		if s.Name != facts.RPCVersion {
			continue
		}
		call.Elapsed, call.Err = s.Elapsed, s.Err
		if code, text, ok := strings.Cut(s.Err, ": "); ok && s.Outcome == canary.Failed && facts.Safe(code) {
			call.Code, call.Err = crictl.Code(code), text
		}
		if s.Outcome == canary.Hung {
			call.Code = crictl.DeadlineExceeded
		}
	}
	return call
}

// addForStep adds where the reason is found of a step that failed: its words say more than its name.
func addForStep(f *facts.Facts, s *causes.Steps, failed *checks.CanaryStep) {
	run, create := failed.Name == "RunPodSandbox", failed.Name == "CreateContainer"
	if !run && !create && failed.Name != "StartContainer" {
		return
	}
	if run && facts.Says(failed.Error, "sandbox image", "pause") {
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "images"),
			"Is the sandbox image that the error names on the node? If not, and it cannot be pulled, import it: "+
				"ctr -n k8s.io images import FILE.")
	}
	if create || facts.Says(failed.Error, "read-only file system", "no space left", "quota exceeded",
		"input/output error") {
		causes.AddDisk(f, s, "Is there space for what the runtime writes: its root folder, and the state of what "+
			"runs below /run?")
		s.Add(checks.TouchesNothing, "grep -E ' ro[, ]' /proc/mounts", "Is one of them read-only?")
	}
	causes.AddService(f, s)
}

// addRemoval adds the removal by hand of what is left.
func (f *CanaryFacts) addRemoval(s *causes.Steps, known *facts.Facts) {
	const why = "Removes what is left of the canary, once the runtime answers again."
	if len(f.Result.Left) > 0 && facts.Safe(f.Result.Left...) {
		s.Add(checks.TouchesPod, facts.CrictlCommand(known, "rmp -f "+strings.Join(f.Result.Left, " ")), why)
		return
	}
	s.Add(checks.TouchesNothing, facts.CrictlCommand(known, fmt.Sprintf("pods --label %s=true", canary.Label)),
		"Has the runtime made the sandbox after all? crictl rmp -f removes it.")
}
