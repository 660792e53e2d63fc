package judge

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// A scope is how much must have been seen before a node may be called healthy.
type scope uint8

const (
	scopeProbes scope = iota // the socket and every RPC once
	scopeSweep               // the status of all that runs as well
)

// verdict sums up. A critical cause makes unhealthy, whatever else could not be seen; warnings make degraded. Without
// causes the answer is healthy only if Version, Status and both lists were answered each time, the status of everything
// that runs came, the socket is the kubelet's, and nothing interrupted the measurement; else it is unknown.
func verdict(f *facts.Facts, causes []checks.Cause, want scope) checks.Verdict {
	if slices.ContainsFunc(causes, func(c checks.Cause) bool { return c.Severity == checks.Critical }) {
		return checks.Unhealthy
	}
	if facts.NotReadyLine(f) != "" { // the cause is not known, the state is
		return checks.Unhealthy
	}
	if f.Measurement == nil || !f.Calls.BothLists {
		return checks.Unknown
	}
	if len(causes) > 0 {
		return checks.Degraded
	}
	if len(unseen(f, want)) > 0 {
		return checks.Unknown
	}
	return checks.Healthy
}

// unseen lists what must be seen before a node may be called healthy, and was not.
func unseen(f *facts.Facts, want scope) []string {
	m := f.Measurement
	if m == nil {
		return []string{"no runtime was asked"}
	}
	var lines []string
	if m.Interrupted != "" {
		lines = append(lines, "the measurement ended early: "+facts.Clean(m.Interrupted))
	}
	if why := facts.ConnectProblem(m.Connect); why != "" {
		return append(lines, why)
	}
	for _, name := range []string{facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers} {
		switch r := f.RPC[name]; {
		case r.Outcome == facts.NotAsked:
			lines = append(lines, name+" was not asked, or not answered before the command ended")
		case !r.Outcome.Alive():
			lines = append(lines, facts.CallLine(r.Last()))
		}
	}
	if s := f.Summary; s != nil && s.List != nil && s.List.Errors > 0 {
		lines = append(lines, fmt.Sprintf("the lists of %s of %s failed or hung", units.Number(s.List.Errors),
			units.Count(s.List.Samples, "relist")))
	}
	if want == scopeSweep {
		lines = append(lines, f.Sweep.Running.Problems()...)
	}
	if f.Target.WrongSocket {
		lines = append(lines, facts.EndpointProblem(f))
	}
	return lines
}

// problems lists, for a person, why an answer is unknown or not whole.
func problems(f *facts.Facts, v checks.Verdict, want scope) []string {
	var lines []string
	switch m := f.Measurement; {
	case v == checks.Unknown:
		lines = unseen(f, want)
	case m != nil && m.Interrupted != "":
		lines = append(lines, "the measurement ended early: "+facts.Clean(m.Interrupted))
	}
	if line := facts.NotReadyLine(f); line != "" && v == checks.Unhealthy {
		lines = append(lines, line)
	}
	if f.Target.OtherEndpoint && !slices.Contains(lines, facts.EndpointProblem(f)) {
		lines = append(lines, facts.EndpointProblem(f))
	}
	for _, t := range f.NotTaken[:min(len(f.NotTaken), facts.MostNamed)] {
		lines = append(lines, "not taken for this node's kubelet: "+facts.Clean(t.What)+": "+facts.Clean(t.Why))
	}
	if f.Kubelet != nil && f.Kubelet.Unreadable != "" {
		lines = append(lines, "the kubelet's settings could not all be read: "+facts.Clean(f.Kubelet.Unreadable))
	}
	return lines
}
