package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/plegbench"
)

// slowStep is the duration from which a step is slow: the whole start of a pod has 5 s, image pulls apart, at the
// 99th percentile (pod startup latency in the scalability SLOs of Kubernetes).
const slowStep = 5 * time.Second

// CanaryFacts are the facts of a canary.
type CanaryFacts struct {
	Runtime   checks.Runtime
	Result    *canary.Result  // nil when it was not begun
	CNI       bool            // it has its own network
	Command   []string        // that was to run instead of sleep
	Asked     string          // image that was asked for; empty when kdiag was to pick one
	Kubelet   *crictl.Kubelet // that runs on this host; nil when none does
	NoSystemd bool            // something else than systemd runs this host
	Connect   crictl.Connect  // what a probe found of a runtime that did not answer Version
	Again     string          // the command that was run, to be run again
	Preceding []string        // what kept kdiag from beginning
}

// A judgedCanary is a canary with its verdict.
type judgedCanary struct {
	CanaryFacts
	known  *facts.Facts       // of the runtime
	failed *checks.CanaryStep // the first step that failed; nil when none did
}

// NewCanaryReport judges a canary and makes the document of kdiag canary.
func NewCanaryReport(h checks.Header, f CanaryFacts) *checks.CanaryReport {
	in := &facts.Input{Runtime: f.Runtime}
	if f.Result != nil {
		in.Measurement = &plegbench.Measurement{Version: &f.Result.Version}
	}
	r := &checks.CanaryReport{
		Header:  fill(h, checks.KindCanaryReport, facts.New(in), checks.Unknown, nil),
		Runtime: facts.RuntimeOf(facts.New(in)), Network: "host", Steps: []checks.CanaryStep{}, CleanedUp: true,
	}
	if f.CNI {
		r.Network = "cni"
	}
	res := f.Result
	if res == nil {
		r.Summary = "no canary was run"
		if lines := cleanAll(f.Preceding); len(lines) > 0 {
			r.Summary, r.Problems = lines[0], lines
		}
		return r
	}
	r.Image, r.SandboxID = facts.Clean(res.Image), facts.Clean(res.SandboxID)
	r.Attempts, r.CleanedUp = res.Attempts, res.CleanedUp
	c := judgedCanary{f, facts.New(&facts.Input{Runtime: r.Runtime, Kubelet: f.Kubelet, NoSystemd: f.NoSystemd}), nil}
	for _, s := range res.Steps {
		step := canaryStep(s)
		r.Steps = append(r.Steps, step)
		r.Seconds += step.Seconds
		if c.failed == nil && step.Status == checks.StatusCritical {
			c.failed = &step
		}
	}
	r.Left, r.Earlier = cleanAll(res.Left), cleanAll(res.Earlier.Removed)
	r.Problems = noNil(c.problems())
	c.judge(r)
	if r.Status == checks.Unknown {
		r.Problems = append([]string{r.Summary}, r.Problems...)
	}
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

// looksUpPod reports whether a canary failed because its network add-on asks the API server for the pod or its
// namespace: Calico does (CmdAddK8s in cni-plugin/pkg/k8s), and Multus.
func (c *judgedCanary) looksUpPod() bool {
	return c.failed != nil && c.CNI && c.failed.Name == "RunPodSandbox" &&
		strings.Contains(c.failed.Error, canary.Namespace) && facts.Says(c.failed.Error, `" not found`, "forbidden")
}

// judge fills in status, summary and next steps. A canary that something else spoiled shows nothing of the runtime,
// unless it could not be cleaned up.
func (c *judgedCanary) judge(r *checks.CanaryReport) {
	var s causes.Steps
	if !r.CleanedUp {
		c.addRemoval(&s)
	}
	name, why, spoiled := "", "", c.Result.Spoiled
	if c.failed != nil {
		name, why = c.failed.Name, c.failed.Error
	}
	images := facts.CrictlCommand(c.known, "images")
	r.Status = checks.Unhealthy
	switch {
	case c.Connect.State == crictl.ConnectDenied:
		r.Status = checks.Unknown
		r.Summary = c.Runtime.Endpoint + ": permission denied; run with sudo"
	case spoiled == canary.Interrupt:
		r.Status, r.Summary = checks.Unknown, "the canary was interrupted"
	case name == facts.RPCVersion:
		r.Summary = WhySilent(c.Runtime, c.Connect, c.version())
	case spoiled == canary.NoImage && c.Asked != "":
		r.Status, r.Summary = checks.Unknown, "the image "+facts.Clean(c.Asked)+" is not on this node"
		s.Add(checks.TouchesNothing, images, "List the images on the node")
		s.Add(checks.TouchesPod, c.Again+" --pull", "Or pull it; this also tests the registry")
	case spoiled == canary.NoImage, spoiled == canary.ByImage:
		r.Status, r.Summary = checks.Unknown, "no busybox, alpine or pause image is on this node"
		if spoiled == canary.ByImage {
			r.Summary = "the image " + facts.Clean(c.Result.Image) + " cannot run `" +
				facts.Clean(append(slices.Clone(c.Command), "sleep")[0]) + "`: " + why
		}
		s.Add(checks.TouchesNothing, images,
			"Choose another image with --image: one that holds sleep, or with its program after --")
	case spoiled == canary.ByOther && c.Kubelet != nil && !c.known.Target.OtherEndpoint:
		r.Status = checks.Unknown
		r.Summary = "another client stopped the canary's sandbox before " + name +
			"; a running kubelet stops pods that it does not know"
		s.Add(checks.TouchesPod, c.Again,
			"Try again; a canary shorter than 2 s often fits between two rounds of the kubelet")
	case spoiled == canary.ByOther:
		r.Summary = "the canary's sandbox did not stay up: " + name + " failed: " + why
	case c.looksUpPod():
		r.Status = checks.Unknown
		r.Summary = "the network add-on looks for the pod in the API server; a canary is not there: " + why
		s.Add(checks.TouchesPod, facts.KdiagCommand(c.known, "canary"),
			"Test everything but the network; only a pod from the API server can test the network here")
	case c.failed != nil:
		r.Summary = name + " failed after " + units.Seconds(c.failed.Seconds) + ": " + why
		if c.failed.Hung {
			r.Summary = name + " hangs (" + why + ")"
		}
		c.addForStep(&s)
	case !c.Result.CleanedUp:
		r.Summary = "the canary could not be removed"
	default:
		r.Status, r.Summary = c.slowness(r.Steps)
	}
	switch r.Status {
	case checks.Unhealthy:
		s = append(s, StepWhenSilent(facts.KdiagCommand(c.known, "pleg")))
	case checks.Degraded:
		causes.AddPressure(c.known, &s)
	}
	r.NextSteps = noNil(causes.PlainSteps(c.known, s.Done()))
}

// slowness is the verdict on a canary whose steps all succeeded: by the slowest steps, or by all together.
func (c *judgedCanary) slowness(steps []checks.CanaryStep) (checks.Verdict, string) {
	var slow []string
	all := 0.0
	for _, s := range steps {
		if s.Name != "PullImage" {
			all += s.Seconds
		}
		if s.Status == checks.StatusWarning {
			slow = append(slow, s.Name+" took "+units.Seconds(s.Seconds))
		}
	}
	switch {
	case len(slow) > 0:
		return checks.Degraded, units.List(slow) + "; limit for a pod's whole start " + units.Duration(slowStep)
	case all > slowStep.Seconds():
		return checks.Degraded, "the canary took " + units.Seconds(all) + "; limit " + units.Duration(slowStep)
	}
	return checks.Healthy, "new sandbox and container created, started, stopped, removed"
}

// problems lists what went wrong beside the steps.
func (c *judgedCanary) problems() []string {
	var lines []string
	res := c.Result
	if res.Attempts > 1 {
		causes.Addf(&lines, "another client stopped the sandbox of %s; a running kubelet stops pods that it does "+
			"not know every 2 s", units.Count(res.Attempts-1, "earlier attempt"))
	}
	for _, i := range res.Unfit {
		if c.failed != nil && c.failed.Error == facts.Clean(i.Err) {
			continue // not the image's fault
		}
		causes.Addf(&lines, "tried another image, because %s failed: %s", facts.Clean(i.Name), facts.Clean(i.Err))
	}
	if !res.CleanedUp && len(res.Left) == 0 {
		causes.Addf(&lines, "sandbox creation timed out; the runtime may still complete it (the next kdiag canary "+
			"removes it)")
	}
	if res.LogsLeft != "" {
		causes.Addf(&lines, "the folder %s could not be removed", facts.Clean(res.LogsLeft))
	}
	if e := res.Earlier; e.Err != "" {
		causes.Addf(&lines, "could not remove all canaries of earlier runs (%s left): %s",
			units.Number(len(e.Failed)), facts.Clean(e.Err))
	}
	return lines
}

// version is the call of Version, as the judge of a node knows calls.
func (c *judgedCanary) version() crictl.Call {
	s := c.Result.Steps[0]
	call := crictl.Call{Method: facts.RPCVersion, Code: crictl.Unknown, Elapsed: s.Elapsed, Err: s.Err}
	if code, text, ok := strings.Cut(s.Err, ": "); ok && s.Outcome == canary.Failed && facts.Safe(code) {
		call.Code, call.Err = crictl.Code(code), text
	}
	if s.Outcome == canary.Hung {
		call.Code = crictl.DeadlineExceeded
	}
	return call
}

// addForStep adds where the reason is found for which a step failed.
func (c *judgedCanary) addForStep(s *causes.Steps) {
	why := c.failed.Error
	switch {
	case c.failed.Name == "PullImage":
		s.Add(checks.TouchesNothing, facts.CrictlCommand(c.known, "images"),
			"Choose another image on the node with --image")
	case c.failed.Name == "RunPodSandbox" && c.CNI:
		s.Add(checks.TouchesPod, facts.KdiagCommand(c.known, "canary"),
			"Try the host's network; if that works, CNI fails")
		s.Add(checks.TouchesNothing, "ls -l /etc/cni/net.d /opt/cni/bin",
			"Check for a network configuration and its plugins")
	}
	makes := slices.Contains([]string{"RunPodSandbox", "CreateContainer", "StartContainer"}, c.failed.Name)
	if c.failed.Hung || !makes {
		return
	}
	if c.failed.Name == "RunPodSandbox" && facts.Says(why, "sandbox image", "pause") {
		s.Add(checks.TouchesNothing, facts.CrictlCommand(c.known, "images"),
			"Check that the sandbox image in the error is on the node; if it cannot be pulled, import it: "+
				"ctr -n k8s.io images import FILE")
	}
	if c.failed.Name == "CreateContainer" || facts.Says(why, "read-only file system", "no space left",
		"quota exceeded", "input/output error") {
		causes.AddDisk(c.known, s, "Check the space in the runtime's root folder and below /run")
		s.Add(checks.TouchesNothing, "grep -E ' ro[, ]' /proc/mounts", "Check whether one of them is read-only")
	}
	causes.AddService(c.known, s)
}

// addRemoval adds the removal of leftovers by hand.
func (c *judgedCanary) addRemoval(s *causes.Steps) {
	if left := c.Result.Left; len(left) > 0 && facts.Safe(left...) {
		s.Add(checks.TouchesPod, facts.CrictlCommand(c.known, "rmp -f "+strings.Join(left, " ")),
			"Remove what is left of the canary, once the runtime answers again")
		return
	}
	s.Add(checks.TouchesNothing, facts.CrictlCommand(c.known, fmt.Sprintf("pods --label %s=true", canary.Label)),
		"List the sandboxes that a canary left; crictl rmp -f removes one")
}
