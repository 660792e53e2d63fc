package checks

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
)

// KindCanaryReport is the kind of the document of kdiag canary.
const KindCanaryReport = "CanaryReport"

// slowStep is how long a step may take before it is slow: the whole start of a pod has 5 s, image pulls apart, at the 99th
// percentile (pod startup latency in the scalability SLOs of Kubernetes).
const slowStep = 5 * time.Second

// A CanaryReport is the answer of kdiag canary.
type CanaryReport struct {
	Header
	Runtime   Runtime      `json:"runtime"`
	Status    Verdict      `json:"status"`
	Summary   string       `json:"summary"`             // one sentence
	Network   string       `json:"network"`             // host or cni
	Image     string       `json:"image,omitempty"`     // that was run
	SandboxID string       `json:"sandboxID,omitempty"` // of the last attempt
	Attempts  int          `json:"attempts"`            // 0 when nothing was made; more than 1 when something else stopped the earlier ones
	Seconds   float64      `json:"seconds"`             // of all steps
	Steps     []CanaryStep `json:"steps"`               // of the last attempt, in order
	CleanedUp bool         `json:"cleanedUp"`           // nothing of it is left in the runtime
	Left      []string     `json:"left,omitempty"`      // sandboxes that are left
	Earlier   []string     `json:"earlierRemoved,omitempty"`
	NextSteps []NextStep   `json:"nextSteps"`
	Problems  []string     `json:"problems,omitempty"` // why the answer is unknown or not whole, for a person
}

// A CanaryStep is one timed call of a canary.
type CanaryStep struct {
	Name    string  `json:"name"` // of the RPC
	Seconds float64 `json:"seconds"`
	Status  Status  `json:"status"` // warning is slow
	Error   string  `json:"error,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why it was

	hung bool
}

// CanaryFacts are what a canary is judged by.
type CanaryFacts struct {
	Runtime   Runtime
	Result    *canary.Result  // nil when it was not begun
	CNI       bool            // it has a network of its own
	Asked     string          // image that was asked for; empty when kdiag was to pick one
	Kubelet   *crictl.Kubelet // that runs on this host; nil when none does
	NoSystemd bool            // something else than systemd runs this host
	Connect   crictl.Connect  // what a knock found of a runtime that did not answer Version
	Again     string          // the command that was run, to be run again
	Preceding []string        // what kept kdiag from beginning
}

// NewCanaryReport judges a canary and makes the document of kdiag canary.
func NewCanaryReport(h Header, f CanaryFacts) *CanaryReport {
	r := &CanaryReport{
		Header: h.fill(KindCanaryReport, nil), Runtime: (&Facts{Runtime: f.Runtime}).runtime(), Status: Unknown, Network: "host",
		Steps: []CanaryStep{}, CleanedUp: true, NextSteps: []NextStep{},
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
	r.Runtime.Name = or(r.Runtime.Name, clean(res.Version.RuntimeName))
	r.Runtime.Version = or(r.Runtime.Version, clean(res.Version.RuntimeVersion))
	r.Runtime.APIVersion = or(r.Runtime.APIVersion, clean(res.Version.RuntimeAPIVersion))
	r.Image, r.SandboxID, r.Attempts, r.CleanedUp = clean(res.Image), clean(res.SandboxID), res.Attempts, res.CleanedUp
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

func canaryStep(s canary.Step) CanaryStep {
	out := CanaryStep{Name: clean(s.Name), Seconds: s.Elapsed.Seconds(), Status: StatusOK}
	switch {
	case s.Outcome == canary.Skipped:
		out.Status, out.Skipped = StatusSkipped, clean(s.Err)
	case s.Outcome != canary.OK:
		out.Status, out.Error, out.hung = StatusCritical, clean(s.Err), s.Outcome == canary.Hung
	case s.Elapsed > slowStep && s.Name != "PullImage": // that takes what the network gives
		out.Status = StatusWarning
	}
	return out
}

func cleanAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, clean(s))
	}
	return out
}

// failedStep is the first step that failed; nil when none did.
func failedStep(steps []CanaryStep) *CanaryStep {
	for i := range steps {
		if steps[i].Status == StatusCritical {
			return &steps[i]
		}
	}
	return nil
}

// housekept reports whether a kubelet looks after the runtime in which the canary was run.
func (f *CanaryFacts) housekept() bool {
	return f.Kubelet != nil && !(&Facts{Runtime: f.Runtime, Kubelet: f.Kubelet}).otherEndpoint()
}

// looksUpPod reports whether a canary failed because its network add-on asks the API server for the pod or its namespace: Calico does
// (CmdAddK8s in cni-plugin/pkg/k8s), and Multus.
func (f *CanaryFacts) looksUpPod(failed *CanaryStep) bool {
	return failed != nil && f.CNI && failed.Name == "RunPodSandbox" && strings.Contains(failed.Error, canary.Namespace) && says(failed.Error, `" not found`, "forbidden")
}

// verdict judges the course. What spoiled it makes it say nothing of the runtime, unless it could not be cleaned up.
func (f *CanaryFacts) verdict(steps []CanaryStep) (Verdict, string) {
	failed := failedStep(steps)
	name, why := "", ""
	if failed != nil {
		name, why = failed.Name, failed.Error
	}
	switch {
	case f.Connect.State == crictl.ConnectDenied:
		return Unknown, f.Runtime.Endpoint + " may not be opened by this user: run kdiag as root (sudo kdiag ...)"
	case f.Result.Spoiled == canary.Interrupt:
		return Unknown, "the canary was interrupted"
	case name == rpcVersion:
		return Unhealthy, WhySilent(f.Runtime, f.Connect, f.firstCall())
	case f.Result.Spoiled == canary.NoImage && f.Asked != "":
		return Unknown, "the image " + clean(f.Asked) + " is not on this node"
	case f.Result.Spoiled == canary.NoImage:
		return Unknown, "there is no image on this node"
	case f.Result.Spoiled == canary.ByImage:
		return Unknown, "the image " + clean(f.Result.Image) + " cannot be run so: " + why
	case f.Result.Spoiled == canary.ByOther && f.housekept():
		return Unknown, "something else stopped the canary's sandbox before " + name + ", as a running kubelet does with pods that it does not know"
	case f.Result.Spoiled == canary.ByOther:
		return Unhealthy, "the canary's sandbox did not stay up: " + name + " failed: " + why
	case failed != nil && failed.hung:
		return Unhealthy, name + " did not answer in " + units.Seconds(failed.Seconds)
	case f.looksUpPod(failed):
		return Unknown, "the network add-on looks the pod up in the API server, where a canary is not: " + why
	case failed != nil:
		return Unhealthy, name + " failed after " + units.Seconds(failed.Seconds) + ": " + why
	case !f.Result.CleanedUp:
		return Unhealthy, "the canary could not be removed"
	}
	var slow []string
	for _, s := range steps {
		if s.Status == StatusWarning {
			slow = append(slow, s.Name+" took "+units.Seconds(s.Seconds))
		}
	}
	if len(slow) > 0 {
		return Degraded, units.List(slow) + "; a pod's whole start should take less than " + units.Duration(slowStep)
	}
	return Healthy, "a new sandbox and container went through their whole life"
}

// problems says what was not as it should be beside the course.
func (f *CanaryFacts) problems() []string {
	var lines []string
	res := f.Result
	if res.Attempts > 1 {
		addf(&lines, "%s had its sandbox stopped by something else: a running kubelet stops pods that it does not know every 2 s",
			units.Count(res.Attempts-1, "earlier attempt"))
	}
	if !res.CleanedUp && len(res.Left) == 0 {
		lines = append(lines, "the making of the sandbox was given up, and the runtime may still complete it; "+
			"the next kdiag canary looks for it once its time is over")
	}
	if res.LogsLeft != "" {
		addf(&lines, "the folder %s could not be removed", clean(res.LogsLeft))
	}
	if e := res.Earlier; e.Err != "" {
		what := "looking for canaries that earlier runs left"
		if len(e.Failed) > 0 {
			what = "removing " + units.Count(len(e.Failed), "canary") + " of an earlier run"
		}
		if n := len(e.Failed); n > 1 {
			what = "removing " + units.Number(n) + " canaries of earlier runs"
		}
		addf(&lines, "%s: %s", what, clean(e.Err))
	}
	return lines
}

// nextSteps says what to do with the answer.
func (f *CanaryFacts) nextSteps(r *CanaryReport) []NextStep {
	var s steps
	facts := &Facts{Runtime: r.Runtime, NoSystemd: f.NoSystemd}
	if !r.CleanedUp {
		f.addRemoval(&s, facts)
	}
	failed := failedStep(r.Steps)
	switch {
	case f.Connect.State == crictl.ConnectDenied:
	case f.Result.Spoiled == canary.NoImage && f.Asked != "":
		s.add(TouchesNothing, facts.crictlCommand("images"), "Which images are on the node?")
		s.add(TouchesPod, f.Again+" --pull", "Or let the runtime pull it, which also tries the registry.")
	case f.Result.Spoiled == canary.NoImage, f.Result.Spoiled == canary.ByImage:
		s.add(TouchesNothing, facts.crictlCommand("images"), "Which images are on the node? Name one that holds sleep with --image, or its program after --.")
	case f.Result.Spoiled == canary.ByOther && f.housekept():
		s.add(TouchesPod, f.Again, "Try again: a canary that takes less than 2 s often gets through between two rounds of the kubelet.")
	case f.looksUpPod(failed):
		s.add(TouchesPod, facts.kdiagCommand("canary"), "Tries everything but the network. Only a pod from the API server tries that one as well.")
	case failed != nil && failed.Name == "RunPodSandbox" && f.CNI:
		s.add(TouchesPod, facts.kdiagCommand("canary"), "Does it work on the host's network? Then CNI is what fails.")
		s.add(TouchesNothing, "ls -l /etc/cni/net.d /opt/cni/bin", "Is there a network configuration, and are its plugins there?")
	case failed != nil && failed.Name == "PullImage":
		s.add(TouchesNothing, facts.crictlCommand("images"), "Is there another image on the node to use with --image?")
	}
	if failed != nil && !failed.hung && r.Status == Unhealthy && f.Result.Spoiled == "" {
		facts.addForStep(&s, failed)
	}
	if r.Status == Unhealthy {
		s = append(s, StepWhenSilent(facts.kdiagCommand("pleg")))
	}
	if r.Status == Degraded {
		facts.addPressure(&s)
	}
	return facts.plainSteps(s.done())
}

// firstCall is Version, as the judge of a node knows calls.
func (f *CanaryFacts) firstCall() crictl.Call {
	call := crictl.Call{Method: rpcVersion, Code: crictl.Unknown}
	for _, s := range f.Result.Steps {
		if s.Name != rpcVersion {
			continue
		}
		call.Elapsed, call.Err = s.Elapsed, s.Err
		if code, text, ok := strings.Cut(s.Err, ": "); ok && s.Outcome == canary.Failed && safe(code) {
			call.Code, call.Err = crictl.Code(code), text
		}
		if s.Outcome == canary.Hung {
			call.Code = crictl.DeadlineExceeded
		}
	}
	return call
}

// addForStep adds where the reason is found of a step that failed: its words say more than its name.
func (f *Facts) addForStep(s *steps, failed *CanaryStep) {
	run, create := failed.Name == "RunPodSandbox", failed.Name == "CreateContainer"
	if !run && !create && failed.Name != "StartContainer" {
		return
	}
	if run && says(failed.Error, "sandbox image", "pause") {
		s.add(TouchesNothing, f.crictlCommand("images"), "Is the sandbox image that the error names on the node? If not, and it cannot be pulled, import it: ctr -n k8s.io images import FILE.")
	}
	if create || says(failed.Error, "read-only file system", "no space left", "quota exceeded", "input/output error") {
		f.addDisk(s, "Is there space for what the runtime writes: its root folder, and the state of what runs below /run?")
		s.add(TouchesNothing, "grep -E ' ro[, ]' /proc/mounts", "Is one of them read-only?")
	}
	f.addService(s)
}

// addRemoval adds the removal by hand of what is left.
func (f *CanaryFacts) addRemoval(s *steps, facts *Facts) {
	const why = "Removes what is left of the canary, once the runtime answers again."
	if len(f.Result.Left) > 0 && safe(f.Result.Left...) {
		s.add(TouchesPod, facts.crictlCommand("rmp -f "+strings.Join(f.Result.Left, " ")), why)
		return
	}
	s.add(TouchesNothing, facts.crictlCommand(fmt.Sprintf("pods --label %s=true", canary.Label)),
		"Has the runtime made the sandbox after all? crictl rmp -f removes it.")
}
