package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// logOfPLEG adds what the kubelet says of PLEG, in its metrics and in its log, and reports whether it calls it unhealthy now.
func logOfPLEG(f *facts.Facts, e *checks.Evidence) bool {
	late := false
	if age, known := f.Agent.PLEGAge, f.Agent.PLEGKnown; known && !f.Target.OtherEndpoint && age > f.Calls.Threshold {
		late = true
		Addf(&e.For, "the kubelet's own metric: its last good relist began %s ago; the threshold is %s", units.Duration(age), units.Duration(f.Calls.Threshold))
	}
	if !f.Log.SameRuntime {
		return late
	}
	if line := facts.PLEGLine(f); line != "" {
		e.For = append(e.For, line)
	}
	return late || f.Log.PLEGNow != nil
}

// logOfCalm adds evidence against trouble that stops a relist: the kubelet's loop was at work a moment ago, and its log
// tells of nothing. While PLEG or Status fail the loop skips, and while a list hangs it stands still at its housekeeping
// (every 2 s), so its lines cannot come then. That no line came proves nothing and is not asked.
func logOfCalm(f *facts.Facts, e *checks.Evidence) {
	if !f.Log.SameRuntime {
		return
	}
	active := facts.LastOf(f, signature.SyncLoopActive)
	trouble := facts.LastOf(f, signature.PLEGNotHealthy, signature.RuntimeIsDown, signature.RelistFailed, signature.ListFailed, signature.SanityCheckFailed)
	if !facts.Fresh(f, active, facts.SkipFresh) || facts.Fresh(f, trouble, facts.SkipFresh) || trouble != nil && trouble.After(*active) {
		return
	}
	Addf(&e.Against, "the kubelet's loop was at work at %s, and its log tells of no trouble now: this began only then, or is over for the kubelet", facts.ClockText(f, *active))
}
