package causes

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// raised is a step after the log was read: a log that agrees with the measurement makes a cause a little surer.
func raised(step float64, agrees bool) float64 {
	if agrees {
		return step + checks.Agreement
	}
	return step
}

// A logSign is a signature that supports a measurement.
type logSign struct {
	code   string
	now    bool   // only while it goes on: its records come until the log ends
	agrees bool   // it is what the measurement shows, and does not merely fit
	text   string // the sentence, before since when or how often
}

// The signs of a cause, in the order in which they are named.
var (
	relistsFail = logSign{signature.RelistFailed, true, true, "the kubelet's own relists fail"}
	calledDown  = logSign{signature.RuntimeIsDown, true, true, `for the kubelet Status has failed for 30 s or more`}
	signsOfDown = []logSign{
		calledDown,
		{signature.RuntimeNotReadyReported, true, true, `the kubelet logs "container runtime not ready"`},
		relistsFail,
	}
	signsOfSlow = []logSign{
		{signature.HousekeepingSlow, false, false, "the kubelet's housekeeping, which lists twice, took too long"},
		{signature.RuntimeStalled, false, false, "the runtime logs that creations are stuck at one stage"},
	}
	signsOfImages = []logSign{
		{signature.ImageServiceFailed, false, true, "the kubelet's image calls fail"},
		{signature.EvictionBlind, false, true, "the kubelet's eviction manager gets no figures"},
	}
	signsOfRemovals = []logSign{
		{signature.ContainerGCFailed, false, true, "the kubelet's garbage collection of containers fails"},
		{signature.RemoveFailed, false, true, "removals fail"},
		{signature.StopFailed, false, true, "stops fail"},
	}
	signOfCNI     = logSign{signature.CNIFailed, false, true, "CNI operations fail in the log"}
	signOfNetwork = logSign{signature.NetworkNotReady, true, true, "the kubelet logs it too"}
	signOfSize    = logSign{signature.MessageTooLarge, false, true, "the log holds the refusal as well"}
)

// fromLog adds the signs that the log holds, and reports whether one of them agrees with the measurement.
func fromLog(f *facts.Facts, lines *[]string, signs ...logSign) bool {
	agrees := false
	for _, s := range signs {
		c := facts.Logged(f, s.code)
		if c == nil || !f.Log.SameRuntime {
			continue
		}
		window := facts.SkipFresh
		if s.code == signature.RelistFailed {
			window = f.Log.RetryPause
		}
		switch i := facts.Ongoing(f, window, s.code); {
		case s.now && i != nil:
			Addf(lines, "%s %s: %s", s.text, facts.SinceText(f, i.From), Quote(c.Newest()))
		case !s.now && c.Last != nil:
			text := s.text + ", last at " + facts.ClockText(f, *c.Last) + Often(c.Count)
			Addf(lines, "%s: %s", text, Quote(c.Newest()))
		default:
			continue
		}
		agrees = agrees || s.agrees
	}
	return agrees
}

// logOf adds the records of a runtime or a list that does not answer, and reports whether they agree.
func logOf(f *facts.Facts, e *checks.Evidence, signs ...logSign) bool {
	addGaps(f, e, gapJournal)
	if !f.Log.SameRuntime {
		return false
	}
	agrees := fromLog(f, &e.For, signs...)
	agrees = logOfPLEG(f, e) || agrees
	logOfCalm(f, e)
	return agrees
}

// logOfSlow adds the records of a slow runtime or relist, and reports whether PLEG is unhealthy now.
func logOfSlow(f *facts.Facts, e *checks.Evidence) bool {
	addGaps(f, e, gapJournal)
	fromLog(f, &e.For, signsOfSlow...)
	return f.Log.SameRuntime && logOfPLEG(f, e)
}

// logOfPLEG adds the state of PLEG by the kubelet's metrics and log, and reports whether it is unhealthy now.
func logOfPLEG(f *facts.Facts, e *checks.Evidence) bool {
	age := f.KubeletState.PLEGAge
	late := f.KubeletState.PLEGKnown && !f.Target.OtherEndpoint && age > f.Calls.Threshold
	addIf(late, &e.For, "the last good relist by the metric: %s ago; the threshold is %s", age, f.Calls.Threshold)
	line := PLEGLine(f)
	addIf(line != "" && f.Log.SameRuntime, &e.For, "%s", line)
	return late || f.Log.SameRuntime && f.Log.PLEGNow != nil
}

// logOfCalm adds evidence against trouble that stops a relist: the kubelet's loop was at work a moment ago, and its
// log has no record of trouble since. While PLEG or Status fail the loop skips, and while a list hangs it stands still
// at its housekeeping (every 2 s), so its lines cannot come then. That no line came proves nothing.
func logOfCalm(f *facts.Facts, e *checks.Evidence) {
	active := facts.LastOf(f, signature.SyncLoopActive)
	trouble := facts.LastOf(f, signature.PLEGNotHealthy, signature.RuntimeIsDown, signature.RelistFailed,
		signature.ListFailed, signature.SanityCheckFailed)
	if !f.Log.SameRuntime || !facts.Fresh(f, active, facts.SkipFresh) || facts.Fresh(f, trouble, facts.SkipFresh) ||
		trouble != nil && trouble.After(*active) {
		return
	}
	Addf(&e.Against, "the kubelet's loop ran at %s, and its log has no record of trouble", facts.ClockText(f, *active))
}

// Often adds a number to something that happened more than once.
func Often(n int64) string {
	if n < 2 {
		return ""
	}
	return ", " + units.Number(int(n)) + " times in all"
}

// logOfObject adds that the kubelet's failing status calls name one of the objects, the first that they do, and
// reports whether they name any.
func logOfObject(f *facts.Facts, e *checks.Evidence, objects []plegbench.Inspection) bool {
	all := facts.NamedByKubelet(f)
	if !f.Log.SameRuntime || len(all) == 0 {
		return false
	}
	for _, o := range objects {
		for _, n := range all {
			if !slices.ContainsFunc([]string{o.ID, o.Pod.Namespace + "/" + o.Pod.Name, o.Pod.UID}, n.Is) {
				continue
			}
			line := textf("the kubelet's log names it too: its status calls for %s fail", facts.Label(o))
			if n.First != nil {
				line += " " + facts.SinceText(f, *n.First)
			}
			e.For = append(e.For, line+Often(n.Count))
			return true
		}
	}
	Addf(&e.Against, "the kubelet's failing status calls name others, such as %s", facts.ShortID(all[0].ID))
	return false
}

// Quote makes a record safe to print and short enough for a line of evidence. Its beginning has the failure and its
// end the reason, so the middle is left out.
func Quote(record string) string {
	const first, last = 100, 80
	s := []rune(strings.TrimSpace(record))
	if len(s) > first+last {
		return facts.Clean(strings.TrimSpace(string(s[:first])) + " ... " + strings.TrimSpace(string(s[len(s)-last:])))
	}
	return facts.Clean(string(s))
}
