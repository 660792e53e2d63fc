package causes

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// processEvidence adds what is wrong with the processes of a culprit. That none was found says nothing: an exited
// container has none.
func processEvidence(f *facts.Facts, e *checks.Evidence, ids ...string) {
	addBlocked(f, e, ids...)
	if f.HostMissing != "" {
		return
	}
	for _, p := range facts.ProcessesServing(f, ids...) {
		switch {
		case p.Role == host.RoleOCI && facts.AgeOf(f, p) >= facts.LongOCI:
			e.For = append(e.For, fmt.Sprintf("%s has been at work on it for %s (%s)", facts.ProcessLabel(p), units.Duration(facts.AgeOf(f, p)), facts.StateOf(p)))
		case facts.IsStopped(&p), facts.IsUninterruptible(&p):
			e.For = append(e.For, fmt.Sprintf("%s, its %s, is in state %q", facts.ProcessLabel(p), p.Role, facts.StateOf(p)))
		}
	}
}

// Addf appends a formatted line.
func Addf(lines *[]string, format string, args ...any) {
	*lines = append(*lines, fmt.Sprintf(format, args...))
}

// missingHost notes that no processes could be looked at.
func missingHost(f *facts.Facts, e *checks.Evidence) {
	if f.HostMissing != "" {
		Addf(&e.Missing, "processes of this host were not read: %s", facts.Clean(f.HostMissing))
	}
}

// missingKubelet notes that the kubelet's own settings are assumed.
func missingKubelet(f *facts.Facts, e *checks.Evidence) {
	if f.Kubelet == nil {
		Addf(&e.Missing, "no kubelet was seen on this host, so its defaults are assumed: %s for one call, %s for PLEG",
			units.Duration(f.Calls.KubeletTimeout), units.Duration(f.Calls.Threshold))
	}
}

// missingSweep notes how far the status calls went when that was not everywhere.
func missingSweep(f *facts.Facts, e *checks.Evidence) {
	if f.Measurement == nil {
		return
	}
	s, made := f.Measurement.Sweep, len(f.Sweep.Made)
	if s.Total > made {
		reach := facts.Clean(s.Reach)
		if reach == "" {
			reach = fmt.Sprintf("%s of %s objects", units.Number(made), units.Number(s.Total))
		}
		e.Missing = append(e.Missing, "status calls did not reach everything: "+reach)
	}
}

// patientStep is the step from which a hang starts: a short deadline leaves slowness as another cause.
func patientStep(f *facts.Facts, step float64) float64 {
	if f.Calls.Impatient {
		return min(step, checks.Fair)
	}
	return step
}

// missingDeadline notes that kdiag gave up long before a kubelet would.
func missingDeadline(f *facts.Facts, e *checks.Evidence) {
	if t, whole := f.Limits.RPCTimeout, f.Calls.KubeletTimeout; t < whole {
		Addf(&e.Missing, "whether it comes within the kubelet's own deadline of %s: kdiag waited %s", units.Duration(whole), units.Duration(t))
	}
}

// missingPatience notes that the deadline was too short to tell slow from hung.
func missingPatience(f *facts.Facts, e *checks.Evidence) {
	if t := f.Limits.RPCTimeout; f.Calls.Impatient {
		Addf(&e.Missing, "whether more time would have brought an answer: a deadline of %s cannot tell slow from hung; "+
			"--rpc-timeout %s can", units.Duration(t), checks.DefaultLimits().RPCTimeout)
	}
}

// pressureEvidence adds what tells a starved daemon from a broken one, or that it was not read. It points neither way: a daemon
// may be broken on a node that starves.
func pressureEvidence(f *facts.Facts, e *checks.Evidence) {
	if line := pressureLine(f); line != "" {
		e.For = append(e.For, line)
		return
	}
	e.Missing = append(e.Missing, "pressure of disk, CPU and memory (/proc/pressure) was not read")
}

// pressureLine says how much the host starves; empty when that was not read.
func pressureLine(f *facts.Facts) string {
	p := f.Seen.Pressure
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

// addCalls adds one line for each of the RPCs that was asked and has the outcome.
func addCalls(f *facts.Facts, lines *[]string, want func(facts.Outcome) bool, names ...string) {
	for _, name := range names {
		if r := f.RPC[name]; want(r.Outcome) {
			*lines = append(*lines, facts.CallLine(r.Last()))
		}
	}
}

func isAlive(o facts.Outcome) bool { return o.Alive() }

func isHanging(o facts.Outcome) bool { return o == facts.Hung }

// sweepLine says how the answered status calls went: "212 other status calls were answered, p99 3 ms"; empty without any.
func sweepLine(f *facts.Facts) string {
	n := f.Sweep.Answered
	if n == 0 {
		return ""
	}
	line := fmt.Sprintf("%s %s answered", units.Count(n, "other status call"), units.Plural(n, "was", "were"))
	if s := f.Sweep.Summary; s != nil && s.P99Seconds != nil {
		line += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	return line
}

// RelistArithmetic says what pods with a hung status call do to the kubelet's relist.
func RelistArithmetic(f *facts.Facts, pods int) string {
	call, limit := f.Calls.KubeletTimeout, f.Calls.Threshold
	once := time.Duration(pods) * call
	var b strings.Builder
	fmt.Fprintf(&b, "a relist of the kubelet that inspects %s waits %s for it (%s a pod): ",
		units.Plural(pods, "this pod", "these "+units.Number(pods)+" pods"), units.Duration(once), units.Duration(call))
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

// missingJournal notes that the kubelet's side was not heard.
func missingJournal(f *facts.Facts, e *checks.Evidence) {
	if f.Journal == nil && f.JournalProblem != "" && !f.Target.Simulated {
		Addf(&e.Missing, "the kubelet's own log was not read: %s", facts.Clean(f.JournalProblem))
	}
}

// missing notes that a look which was wanted brought nothing, or not all. One that does not apply is no gap.
func missing[T any](l facts.Reading[T], e *checks.Evidence, what string) {
	if !l.OK && !l.Skipped {
		Addf(&e.Missing, "%s: %s", what, l.Why())
	}
}

// logEvidence adds the first record of a signature to the evidence.
func logEvidence(f *facts.Facts, e *checks.Evidence, code string) bool {
	c := facts.Logged(f, code)
	if c == nil || f.Target.Simulated {
		return false
	}
	Addf(&e.For, "the log says so %s in the last %s: %s", units.Times(int(min(c.Count, 1<<31))), units.Duration(f.Log.Window), facts.Quote(f, c.Example))
	return true
}
