package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

// Checks returns everything that kdiag looks at, in the order in which it is shown: the cause before its
// consequences, so from the kernel upwards, then the runtime from the socket inwards, the kubelet, and what the logs
// say.
func Checks() []Check {
	return slices.Concat(
		hostResourceChecks(),
		hostLimitChecks(),
		hostProcessChecks(),
		systemdChecks(),
		runtimeChecks(),
		relistChecks(),
		kubeletChecks(),
		journalChecks(),
	)
}

// results reads the checks out of what was collected, in the order of Checks, without those that the command does not
// look at. It is pure.
func results(j judgement) []checks.Result {
	var out []checks.Result
	for _, c := range Checks() {
		r := c.read(j.facts)
		if x := worst(j.found, c.ID); x != nil {
			r.Status, r.Summary = checks.Status(x.Severity), x.Summary
		}
		if r.Status == checks.StatusSkipped && r.Summary == facts.NotWanted {
			continue
		}
		r.ID = c.ID
		out = append(out, r)
	}
	return out
}

// worst returns the most severe finding whose definition claims a check; nil when there is none.
func worst(found []causes.Finding, id string) *causes.Finding {
	var out *causes.Finding
	for i, x := range found {
		d, _ := causes.Lookup(x.Code)
		if slices.Contains(d.Claims, id) && (out == nil || x.Severity == checks.Critical &&
			out.Severity != checks.Critical) {
			out = &found[i]
		}
	}
	return out
}

// result makes a result without a duration.
func result(s checks.Status, format string, args ...any) checks.Result {
	return checks.Result{Status: s, Summary: fmt.Sprintf(format, args...)}
}

// took adds a duration to a result.
func took(r checks.Result, d time.Duration) checks.Result {
	r.DurationSeconds = new(max(d, 0).Seconds())
	return r
}

// unreached is the result of a check that needs calls which were not made; nil when they could be.
func unreached(f *facts.Facts) *checks.Result {
	var r checks.Result
	switch {
	case f.Measurement == nil:
		r = result(checks.StatusUnknown, "no runtime was asked")
	case !f.Calls.Connected:
		r = result(checks.StatusSkipped, "the socket did not get that far")
	default:
		return nil
	}
	return &r
}

// readRPC is the result for one RPC that says all that there is to say by being answered.
func readRPC(f *facts.Facts, name string, good func() checks.Result) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	r := f.RPC[name]
	switch r.Outcome {
	case facts.NotAsked:
		return result(checks.StatusUnknown, "%s was not answered before the command ended", name)
	case facts.Hung, facts.Failed:
		return took(result(checks.StatusCritical, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
	}
	return took(good(), r.Last().Elapsed)
}

// A Check is one thing that kdiag looks at: a reading of the facts that gives one line.
type Check struct {
	ID    string // noun.noun, such as runtime.status
	Title string
	Text  string // what it looks at and why it matters
	read  func(*facts.Facts) checks.Result
}

// onlyRuntime is what the checks of the node say to who asked the runtime alone.
const onlyRuntime = "the node was not looked at: only the runtime was asked"

// reading returns how a check reads one reading of the node. judge reads the value, or the part of it that was had:
// trouble in a part is trouble, and a part without trouble is never ok.
func reading[T any](pick func(*facts.Node) facts.Reading[T],
	judge func(*facts.Facts, T) checks.Result,
) func(*facts.Facts) checks.Result {
	return func(f *facts.Facts) checks.Result {
		switch {
		case f.Target.Simulated:
			return result(checks.StatusSkipped, "the runtime is simulated, and this host is not its node")
		case f.Node == nil:
			return result(checks.StatusSkipped, onlyRuntime)
		}
		l := pick(f.Node)
		if l.Skipped {
			return result(checks.StatusSkipped, "%s", l.Why())
		}
		r := judge(f, l.Value)
		if !l.OK && r.Status != checks.StatusWarning && r.Status != checks.StatusCritical {
			r = result(checks.StatusUnknown, "%s", l.Why())
		}
		if l.Took > 0 {
			r = took(r, l.Took)
		}
		return r
	}
}
