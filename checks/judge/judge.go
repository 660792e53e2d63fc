// Package judge turns collected facts into a report: it recognises each cause once, relates the causes to each other
// by the data of their definitions, and advises (judge.go); it reads the checks, whose line is that of the worst
// cause that claims it (checks.go, check_*.go); and it makes the documents that the commands print (documents.go). It
// is pure.
package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// A judgement has all that follows from the facts: nothing in it is worked out twice.
type judgement struct {
	facts  *facts.Facts
	found  []causes.Finding // all that was recognised, those too that another finding hides
	causes []checks.Cause   // the root before its consequences
}

// Judge names the causes that were collected facts show, most likely first and root before consequence; nil when
// there are none. It is pure: equal input gives equal causes. Every cause is recognised once, related to the others
// by the data of its definition, and advised with its root known.
//
// The root is the earliest signal that does not depend on the runtime: the disk before the shim, the mount before the
// task that waits in it, the certificate before the API server that refuses it. Of a chain each cause names the link
// before it.
func Judge(in *facts.Input) []checks.Cause { return judged(in).causes }

func judged(in *facts.Input) judgement {
	if in != nil && in.Journal != nil && in.Journal.Status == "" { // facts of a bundle have it, and those of a Watch may
		Journal(in.Journal)
	}
	f := facts.New(in)
	defs := definitions()
	var found []causes.Finding
	for _, d := range causes.All() {
		if x := d.Recognise(f); x != nil {
			x.Code = d.Code
			found = append(found, doubted(f, d, *x))
		}
	}
	shown := unhidden(f, defs, found)
	roots := relate(f, defs, shown)
	raiseRoots(shown, roots)
	all := order(advise(f, defs, shown, roots), roots)
	return judgement{f, found, withAdvisories(f, causes.Finish(f, all))}
}

// doubted returns a finding with less confidence where kdiag itself hardly ran, and the finding rests on calls that
// were late.
func doubted(f *facts.Facts, d causes.Definition, x causes.Finding) causes.Finding {
	late := d.LateCalls || len(d.Calls) > 0 || d.Code == causes.SystemdWedged || d.Code == causes.CPUStarved
	if line := ownQuotaLine(f); line != "" && late {
		x.Severity, x.Step = checks.Warning, min(x.Step, checks.Weak)
		x.Evidence.Against = append(slices.Clone(x.Evidence.Against), line)
	}
	return x
}

// ownQuotaLine tells how a limit of CPU held up kdiag itself; empty where none did.
func ownQuotaLine(f *facts.Facts) string {
	if own := f.Pressure.Own; own != nil {
		return fmt.Sprintf("kdiag itself hardly ran: its group %s may use %.2g CPUs and was throttled in %s of the periods",
			facts.Clean(own.Path), own.Quota, units.Percent(facts.ThrottledShare(*own)))
	}
	return ""
}

// definitions returns the causes by their codes.
func definitions() map[string]causes.Definition {
	defs := map[string]causes.Definition{}
	for _, d := range causes.All() {
		defs[d.Code] = d
	}
	return defs
}

// unhidden returns the findings that no other finding hides.
func unhidden(f *facts.Facts, defs map[string]causes.Definition, found []causes.Finding) []causes.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(x causes.Finding) bool {
		return slices.ContainsFunc(defs[x.Code].Hidden, func(r causes.Root) bool {
			i := slices.IndexFunc(found, func(other causes.Finding) bool { return other.Code == r.Code })
			return i >= 0 && (found[i].Severity == checks.Critical || !r.Critical) && r.Holds(f)
		})
	})
}

// A relation names the roots of one finding.
type relation struct {
	causedBy string // the nearest root
	repair   string // the nearest root that is to be repaired first; what the kernel did is over
}

// relate maps the code of each consequence among the findings to its roots.
func relate(f *facts.Facts, defs map[string]causes.Definition, found []causes.Finding) map[string]relation {
	relations := map[string]relation{}
	for _, x := range found {
		d := defs[x.Code]
		if d.OnPurpose != nil && d.OnPurpose(f) {
			continue
		}
		possible := d.Roots()
		var roots, repairable []string
		for _, other := range found { // in the order of the definitions
			i := slices.IndexFunc(possible, func(r causes.Root) bool { return r.Code == other.Code })
			if i < 0 || !possible[i].Holds(f) {
				continue
			}
			roots = append(roots, other.Code)
			if !defs[other.Code].Past {
				repairable = append(repairable, other.Code)
			}
		}
		if len(roots) > 0 {
			relations[x.Code] = relation{causedBy: nearest(defs, roots), repair: nearest(defs, repairable)}
		}
	}
	return relations
}

// nearest returns the first of the roots of a cause that could be no root of another of them: of a mount that holds a
// task that holds a status call, the task.
func nearest(defs map[string]causes.Definition, roots []string) string {
	for _, r := range roots {
		if !slices.ContainsFunc(roots, func(other string) bool {
			return slices.ContainsFunc(defs[other].Roots(), func(o causes.Root) bool { return o.Code == r })
		}) {
			return r
		}
	}
	return slices.Concat(roots, []string{""})[0]
}

// raiseRoots makes each root as severe as what follows from it, and adds to its effect who waits for it.
func raiseRoots(found []causes.Finding, roots map[string]relation) {
	for _, x := range found {
		for i := range found {
			if x.Waiting != "" && found[i].Code == roots[x.Code].causedBy {
				found[i].Effect = append(slices.Clone(found[i].Effect), x.Waiting)
			}
		}
	}
	for range found { // a chain is no longer than the causes
		for _, x := range found {
			i := slices.IndexFunc(found, func(o causes.Finding) bool { return o.Code == roots[x.Code].causedBy })
			if i >= 0 && x.Severity == checks.Critical {
				found[i].Severity = checks.Critical
			}
		}
	}
}

// advise makes the causes of the findings, with their actions and next steps. Where the root is to be repaired first, a
// restart is for faults that persist.
func advise(
	f *facts.Facts, defs map[string]causes.Definition, found []causes.Finding, roots map[string]relation,
) []checks.Cause {
	var all []checks.Cause
	for _, x := range found {
		root := roots[x.Code]
		e := x.Evidence
		e.For, e.Against, e.Missing = noNil(e.For), noNil(e.Against), noNil(e.Missing)
		c := checks.Cause{
			Code: x.Code, Severity: x.Severity, Confidence: checks.Confidence(x.Step, e),
			Summary: x.Summary, Effect: x.Effect, Evidence: e,
			Subject: x.Subject, Related: x.Related, CausedBy: root.causedBy, NextSteps: []checks.NextStep{},
		}
		remedy := x.Remedy(f, root.repair)
		c.Action, c.ActionWhy = remedy.Action, remedy.Why
		if x.Advise != nil {
			var steps causes.Steps
			x.Advise(&steps, root.repair)
			c.NextSteps = steps.Done()
		}
		if root.causedBy != "" && !defs[root.causedBy].Past {
			for i, s := range c.NextSteps {
				if slices.Contains([]string{checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode},
					s.Touches) {
					c.NextSteps[i].Why = "Only if it persists after " + root.causedBy + " is fixed. " + s.Why
				}
			}
		}
		all = append(all, c)
	}
	return all
}

// order sorts by severity, confidence and the order of the definitions, then puts each root before its consequences.
func order(causes []checks.Cause, roots map[string]relation) []checks.Cause {
	slices.SortStableFunc(causes, func(a, b checks.Cause) int {
		if a.Severity != b.Severity {
			return cmp.Compare(a.Severity, b.Severity) // critical comes before warning
		}
		return cmp.Compare(b.Confidence, a.Confidence)
	})
	var out []checks.Cause
	var place func(checks.Cause)
	place = func(c checks.Cause) {
		if index(out, c.Code) >= 0 {
			return
		}
		if i := index(causes, roots[c.Code].causedBy); i >= 0 {
			place(causes[i])
		}
		out = append(out, c)
	}
	for _, c := range causes {
		place(c)
	}
	return out
}

func index(causes []checks.Cause, code string) int {
	return slices.IndexFunc(causes, func(c checks.Cause) bool { return c.Code == code })
}

// A scope is the part of a node that must have been seen before it may be called healthy.
type scope uint8

const (
	scopeProbes scope = iota // the socket and every RPC once
	scopeSweep               // the status of all that runs as well
)

// verdict sums up. A critical cause makes unhealthy, whatever else could not be seen; warnings make degraded, and so
// does an error that a daemon repeats and that no cause explains. Without either the answer is healthy only if Version,
// Status and both lists were answered each time, the status of everything that runs came, the socket is the kubelet's,
// and nothing interrupted the measurement; else it is unknown.
func verdict(j judgement, want scope) checks.Verdict {
	f := j.facts
	if slices.ContainsFunc(j.causes, func(c checks.Cause) bool { return c.Severity == checks.Critical }) {
		return checks.Unhealthy
	}
	if causes.NotReadyLine(f) != "" { // the cause is not known, the state is
		return checks.Unhealthy
	}
	if f.Measurement == nil || !f.Calls.BothLists {
		return checks.Unknown
	}
	if len(j.causes) > 0 || len(unexplained(j)) > 0 {
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
	if why := causes.ConnectProblem(m.Connect); why != "" {
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

// problems lists, for a person, errors without a cause, and why an answer is unknown or not whole.
func problems(j judgement, v checks.Verdict, want scope) []string {
	f := j.facts
	var lines []string
	switch m := f.Measurement; {
	case v == checks.Unknown:
		lines = unseen(f, want)
	case m != nil && m.Interrupted != "":
		lines = append(lines, "the measurement ended early: "+facts.Clean(m.Interrupted))
	}
	if line := causes.NotReadyLine(f); line != "" && v == checks.Unhealthy {
		lines = append(lines, line)
	}
	if f.Target.OtherEndpoint && !slices.Contains(lines, facts.EndpointProblem(f)) {
		lines = append(lines, facts.EndpointProblem(f))
	}
	if line := ownQuotaLine(f); line != "" {
		lines = append(lines, line)
	}
	for _, t := range f.NotTaken[:min(len(f.NotTaken), facts.MostNamed)] {
		lines = append(lines, "not taken for this node's kubelet: "+facts.Clean(t.What)+": "+facts.Clean(t.Why))
	}
	if f.Kubelet != nil && f.Kubelet.Unreadable != "" {
		lines = append(lines, "the kubelet's settings could not all be read: "+facts.Clean(f.Kubelet.Unreadable))
	}
	return append(lines, errorLines(f, unexplained(j))...)
}
