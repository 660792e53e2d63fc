package causes

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// codeInRecord finds gRPC's code in a record: rpc error: code = DeadlineExceeded desc = ...
var codeInRecord = regexp.MustCompile(`code = ([A-Z][A-Za-z]{1,20})`)

// raised is a step after the log was read: a log that agrees with the measurement makes a cause a little surer.
func raised(step float64, agrees bool) float64 {
	if agrees {
		return step + checks.Agreement
	}
	return step
}

// A logSign is a signature that supports what was measured.
type logSign struct {
	code   string
	now    bool   // only while it goes on: its records come until the log ends
	text   string // the sentence, before since when or how often
	quote  bool   // with the first record
	agrees bool   // it says the same as the measurement, and does not merely fit
}

// The signs of a cause, in the order in which they are named.
func signsOfDown() []logSign {
	return []logSign{
		{code: signature.RuntimeIsDown, now: true, agrees: true, text: `the kubelet logs "container runtime is down" (30 s and more without a good Status)`},
		{code: signature.RuntimeNotReadyReported, now: true, agrees: true, text: `the kubelet logs "container runtime not ready"`},
		{code: signature.RelistFailed, now: true, agrees: true, text: "the kubelet's own relists fail"},
	}
}

func signsOfSlow() []logSign {
	return []logSign{
		{code: signature.HousekeepingSlow, text: "the kubelet's housekeeping, which lists twice, took too long"},
		{code: signature.NameReserved, text: "the runtime was still at work on a creation that the kubelet had given up and tried again"},
		{code: signature.RuntimeStalled, text: "the runtime logs that creations are stuck at one stage"},
	}
}

func signsOfImages() []logSign {
	return []logSign{
		{code: signature.ImageServiceFailed, agrees: true, text: "the kubelet's image calls fail as well"},
		{code: signature.ImageGCFailed, agrees: true, text: "the kubelet's image garbage collection fails"},
		{code: signature.EvictionBlind, agrees: true, text: "the kubelet's eviction manager gets no figures"},
	}
}

func signsOfRemovals() []logSign {
	return []logSign{
		{code: signature.ContainerGCFailed, agrees: true, quote: true, text: "the kubelet's garbage collection of containers fails"},
		{code: signature.RemoveFailed, agrees: true, quote: true, text: "removals fail"},
		{code: signature.StopFailed, agrees: true, quote: true, text: "stops fail"},
	}
}

func signsOfCNI() []logSign {
	return []logSign{{code: signature.CNIFailed, agrees: true, quote: true, text: "CNI operations fail in the log"}}
}

func signsOfNetwork() []logSign {
	return []logSign{{code: signature.NetworkNotReady, now: true, agrees: true, text: "the kubelet logs it too"}}
}

// fromLog adds the signs that the log holds, and reports whether one of them agrees with the measurement.
func fromLog(f *facts.Facts, lines *[]string, signs ...logSign) bool {
	if !f.Log.SameRuntime {
		return false
	}
	agrees := false
	for _, s := range signs {
		c := facts.Logged(f, s.code)
		if c == nil {
			continue
		}
		line := s.text
		if s.now {
			window := facts.SkipFresh
			if s.code == signature.RelistFailed {
				window = f.Log.RetryPause
			}
			i, goesOn := facts.Ongoing(f, window, s.code)
			if !goesOn {
				continue
			}
			line += " " + facts.SinceText(f, i.From)
			if m := codeInRecord.FindStringSubmatch(c.Example); m != nil {
				line += ", the first with " + m[1]
			}
		} else {
			if c.Last == nil {
				continue
			}
			line += ", last at " + facts.ClockText(f, *c.Last) + Often(c.Count)
		}
		if s.quote {
			line += ": " + facts.Quote(f, c.Example)
		}
		*lines = append(*lines, line)
		agrees = agrees || s.agrees
	}
	return agrees
}

// logOfDown adds what the log holds of a runtime that does not answer, or answers nothing good, and reports whether it agrees.
func logOfDown(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	agrees := fromLog(f, &e.For, signsOfDown()...)
	if !f.Log.SameRuntime {
		return false
	}
	agrees = logOfPLEG(f, e) || agrees
	logOfCalm(f, e)
	return agrees
}

// logOfLists adds what the log holds when one list hangs. While Status is answered, PLEG alone should be unhealthy.
func logOfLists(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	if !f.Log.SameRuntime {
		return false
	}
	down := signsOfDown()
	relists := fromLog(f, &e.For, down[2])
	pleg := logOfPLEG(f, e)
	if f.RPC[facts.RPCStatus].Outcome.Alive() && fromLog(f, &e.Against, down[0]) {
		pleg = false // for the kubelet Status fails as well
	}
	logOfCalm(f, e)
	return relists || pleg
}

// logOfSlow adds what the log holds of a runtime, or a relist, that is slow, and reports whether PLEG is unhealthy now.
func logOfSlow(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	if !f.Log.SameRuntime {
		return false
	}
	pleg := logOfPLEG(f, e)
	if now := f.Log.PLEGNow; now != nil && len(now.Stalls) > 1 {
		Addf(&e.For, "its relists finish, but late: the last good one began anew %s in that time", units.Times(len(now.Stalls)-1))
	}
	fromLog(f, &e.For, signsOfSlow()...)
	return pleg
}

// logOfCNI adds what the log holds when only Status waits: the runtime is down for the kubelet, and PLEG is healthy.
func logOfCNI(f *facts.Facts, e *checks.Evidence, statusHangs bool) bool {
	agrees := false
	if statusHangs {
		agrees = fromLog(f, &e.For, signsOfDown()[0])
		if now := f.Log.PLEGNow; now != nil && f.Log.SameRuntime {
			Addf(&e.Against, "the kubelet says that PLEG is not healthy either, %s: more than Status fails for it", facts.SinceText(f, *now.Start))
			agrees = false
		}
	}
	return fromLog(f, &e.For, signsOfCNI()...) || agrees
}

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

// logOfStops adds what systemd and the kernel say of the end of the runtime's daemon.
func logOfStops(f *facts.Facts, e *checks.Evidence) {
	if !f.Log.SameRuntime {
		return
	}
	for _, how := range []struct{ code, what string }{
		{signature.UnitOOMKilled, "was hit by the OOM killer"},
		{signature.WatchdogTimeout, "missed its watchdog"},
		{signature.UnitFailed, "failed"},
		{signature.UnitRestarted, "was restarted by systemd"},
		{signature.UnitStopped, "was stopped"},
	} {
		for _, u := range facts.UnitsOf(f, how.code, facts.RoleRuntime) {
			if u.Last != nil {
				Addf(&e.For, "the journal: %s %s at %s%s", facts.Clean(u.ID), how.what, facts.ClockText(f, *u.Last), Often(u.Count))
				return
			}
		}
	}
	if last := facts.LastOf(f, signature.RuntimeStopped); last != nil {
		Addf(&e.For, "the journal: the runtime stopped at %s: %s", facts.ClockText(f, *last), facts.FirstExample(f, signature.RuntimeStopped))
	}
}

// Often adds a number to something that happened more than once.
func Often(n int64) string {
	if n < 2 {
		return ""
	}
	return ", " + units.Number(int(n)) + " times in all"
}

// logOfObject adds that the kubelet's failing status calls name one of the objects, the first that they do, and reports
// whether they name any. With words of its own the log tells when it began.
func logOfObject(f *facts.Facts, e *checks.Evidence, objects ...plegObject) bool {
	if !f.Log.SameRuntime {
		return false
	}
	all := f.Log.Named
	for _, o := range objects {
		for _, n := range all {
			if !n.Is(o.ID) && !n.Is(o.Pod) && !n.Is(o.PodUID) {
				continue
			}
			line := fmt.Sprintf("the kubelet's log names it too: its status calls for %s fail", o.Label)
			if n.First != nil {
				line += " " + facts.SinceText(f, *n.First)
			}
			e.For = append(e.For, line+Often(n.Count))
			return true
		}
	}
	if len(all) > 0 {
		Addf(&e.Against, "the kubelet's failing status calls name others, such as %s", facts.ShortID(all[0].ID))
	}
	return false
}

// A plegObject is an object as the kubelet's log may name it.
type plegObject struct{ ID, Pod, PodUID, Label string }

// plegObjects returns what status calls were about.
func plegObjects(some []plegbench.Inspection) []plegObject {
	out := make([]plegObject, 0, len(some))
	for _, i := range some {
		pod := ""
		if i.Pod.Name != "" {
			pod = i.Pod.Namespace + "/" + i.Pod.Name
		}
		out = append(out, plegObject{ID: i.ID, Pod: pod, PodUID: i.Pod.UID, Label: facts.Label(i)})
	}
	return out
}

// logOfSize adds that the kubelet's own lists, or the runtime's answers to it, are over the message limit.
func logOfSize(f *facts.Facts, e *checks.Evidence, over bool) bool {
	if !f.Log.SameRuntime {
		return false
	}
	c := facts.Logged(f, signature.MessageTooLarge)
	if c == nil {
		if over {
			logOfCalm(f, e)
		}
		return false
	}
	side := "the receiver's limit"
	if strings.Contains(c.Example, "trying to send") {
		side = "the sender's limit"
	}
	line := "the log holds the refusal as well"
	if m := facts.SizesInError.FindStringSubmatch(c.Example); m != nil {
		line += fmt.Sprintf(", %s against %s bytes, by %s", m[1], m[2], side)
	} else {
		line += ", by " + side
	}
	if c.First != nil {
		line += ", " + facts.SinceText(f, *c.First)
	}
	e.For = append(e.For, line+Often(c.Count))
	return true
}
