package checks

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// shortDeadline is the RPC deadline below which a slow runtime is easily taken for a hung one.
const shortDeadline = 2 * time.Second

// cause builds a cause; its confidence follows from step and evidence.
func newCause(code string, severity Severity, step float64, summary string, e Evidence) *Cause {
	e.For, e.Against, e.Missing = noNil(e.For), noNil(e.Against), noNil(e.Missing)
	return &Cause{
		Code: code, Severity: severity, Confidence: Confidence(step, e), Summary: summary, Evidence: e, NextSteps: []NextStep{},
	}
}

// noNil makes a list that prints as [] in JSON.
func noNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// addf appends a formatted line.
func addf(lines *[]string, format string, args ...any) {
	*lines = append(*lines, fmt.Sprintf(format, args...))
}

// missingHost notes that no processes could be looked at.
func (f *Facts) missingHost(e *Evidence) {
	if f.HostMissing != "" {
		addf(&e.Missing, "processes of this host were not read: %s", clean(f.HostMissing))
	}
}

// missingKubelet notes that the kubelet's own settings are assumed.
func (f *Facts) missingKubelet(e *Evidence) {
	if f.Kubelet == nil {
		addf(&e.Missing, "no kubelet was seen on this host, so its defaults are assumed: %s for one call, %s for PLEG",
			units.Duration(f.requestTimeout()), units.Duration(f.threshold()))
	}
}

// missingSweep notes how far the status calls went when that was not everywhere.
func (f *Facts) missingSweep(e *Evidence) {
	if f.Measurement == nil {
		return
	}
	s, made := f.Measurement.Sweep, len(f.inspections())
	if s.Total > made {
		reach := clean(s.Reach)
		if reach == "" {
			reach = fmt.Sprintf("%s of %s objects", units.Number(made), units.Number(s.Total))
		}
		e.Missing = append(e.Missing, "status calls did not reach everything: "+reach)
	}
}

// impatient reports whether the deadline was so short that a slow runtime may only look hung.
func (f *Facts) impatient() bool { return f.rpcTimeout() < shortDeadline }

// patientStep is the step from which a hang starts: a short deadline leaves slowness as another cause.
func (f *Facts) patientStep(step float64) float64 {
	if f.impatient() {
		return min(step, Fair)
	}
	return step
}

// missingDeadline notes that kdiag gave up long before a kubelet would.
func (f *Facts) missingDeadline(e *Evidence) {
	if t, whole := f.rpcTimeout(), f.requestTimeout(); t < whole {
		addf(&e.Missing, "whether it comes within the kubelet's own deadline of %s: kdiag waited %s", units.Duration(whole), units.Duration(t))
	}
}

// missingPatience notes that the deadline was too short to tell slow from hung.
func (f *Facts) missingPatience(e *Evidence) {
	if t := f.rpcTimeout(); f.impatient() {
		addf(&e.Missing, "whether more time would have brought an answer: a deadline of %s cannot tell slow from hung; "+
			"--rpc-timeout %s can", units.Duration(t), DefaultLimits().RPCTimeout)
	}
}

// pressureEvidence adds what tells a starved daemon from a broken one, or that it was not read. It points neither way: a daemon
// may be broken on a node that starves.
func (f *Facts) pressureEvidence(e *Evidence) {
	if line := f.pressureLine(); line != "" {
		e.For = append(e.For, line)
		return
	}
	e.Missing = append(e.Missing, "pressure of disk, CPU and memory (/proc/pressure) was not read")
}

// pressureLine says how much the host starves; empty when that was not read.
func (f *Facts) pressureLine() string {
	p := f.seen().Pressure
	if !p.OK {
		return ""
	}
	var words []string
	for _, r := range []struct {
		name  string
		stall *host.Stall
		of    func(*host.Stall) float64
	}{
		{"CPU some", p.Value.CPU, func(s *host.Stall) float64 { return s.Some.Avg10 }},
		{"memory full", p.Value.Memory, func(s *host.Stall) float64 { return s.Full.Avg10 }},
		{"io full", p.Value.IO, func(s *host.Stall) float64 { return s.Full.Avg10 }},
	} {
		if r.stall != nil {
			words = append(words, fmt.Sprintf("%s %.0f%%", r.name, r.of(r.stall)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "pressure in the last 10 s: " + units.List(words)
}

// callLine says what became of one call: "ListContainers did not answer in 5.0 s".
func callLine(c crictl.Call) string {
	name := canonical(c.Method)
	switch {
	case c.Hung():
		return fmt.Sprintf("%s did not answer in %s", name, units.Duration(c.Elapsed))
	case c.OK():
		return fmt.Sprintf("%s answered in %s", name, units.Duration(c.Elapsed))
	}
	if c.Err == "" {
		return fmt.Sprintf("%s failed after %s: %s", name, units.Duration(c.Elapsed), clean(string(c.Code)))
	}
	return fmt.Sprintf("%s failed after %s: %s: %s", name, units.Duration(c.Elapsed), clean(string(c.Code)), clean(c.Err))
}

// addCalls adds one line for each of the RPCs that was asked and has the outcome.
func (f *Facts) addCalls(lines *[]string, want func(outcome) bool, names ...string) {
	for _, name := range names {
		if r := f.rpc(name); want(r.Outcome) {
			*lines = append(*lines, callLine(r.last()))
		}
	}
}

func isAlive(o outcome) bool   { return o.alive() }
func isHanging(o outcome) bool { return o == hung }

// sweepLine says how the answered status calls went: "212 other status calls were answered, p99 3 ms"; empty without any.
func (f *Facts) sweepLine() string {
	n := f.statusesAnswered()
	if n == 0 {
		return ""
	}
	line := fmt.Sprintf("%s %s answered", units.Count(n, "other status call"), verb(n, "was", "were"))
	if s := f.sweepSummary(); s != nil && s.P99Seconds != nil {
		line += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	return line
}

// statusesAnswered returns how many status calls brought a status.
func (f *Facts) statusesAnswered() int {
	n := 0
	for _, i := range f.inspections() {
		if isAnswered(i) {
			n++
		}
	}
	return n
}

// sweepSummary returns the summary of the sweep, nil if there was none.
func (f *Facts) sweepSummary() *plegbench.SweepSummary {
	if f.Summary == nil {
		return nil
	}
	return f.Summary.Sweep
}

// relistArithmetic says what pods with a hung status call do to the kubelet's relist.
func (f *Facts) relistArithmetic(pods int) string {
	call, limit := f.requestTimeout(), f.threshold()
	once := time.Duration(pods) * call
	var b strings.Builder
	fmt.Fprintf(&b, "a relist of the kubelet that inspects %s waits %s for it (%s a pod): ",
		verb(pods, "this pod", "these "+units.Number(pods)+" pods"), units.Duration(once), units.Duration(call))
	switch {
	case once > limit:
		fmt.Fprintf(&b, "over the threshold of %s", units.Duration(limit))
	case 2*once > limit:
		fmt.Fprintf(&b, "under the threshold of %s in 1.36, though every other pod's update waits as long; "+
			"older kubelets inspect a failing pod twice: %s, over", units.Duration(limit), units.Duration(2*once))
	default:
		fmt.Fprintf(&b, "under the threshold of %s, though every other pod's update waits as long", units.Duration(limit))
	}
	return b.String()
}
