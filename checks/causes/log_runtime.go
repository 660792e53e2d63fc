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

// raised is a step after the kubelet's log was heard.
func raised(step float64, agrees bool) float64 {
	if agrees {
		return step + checks.Agreement
	}
	return step
}

// logOfDown adds what the kubelet says of a runtime that does not answer, or answers nothing good: its 30 s without a
// Status, its relists, PLEG. It reports whether the kubelet says the same now.
func logOfDown(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	if !f.Log.SameRuntime {
		return false
	}
	down := logOfIsDown(f, &e.For)
	if s, now := facts.Ongoing(f, facts.SkipFresh, signature.RuntimeNotReadyReported); now {
		Addf(&e.For, "the kubelet hears \"container runtime not ready\" from it %s", facts.SinceText(f, s.From))
		down = true
	}
	relists := logOfRelists(f, e)
	pleg := logOfPLEG(f, e)
	logOfCalm(f, e)
	return down || relists || pleg
}

// logOfIsDown adds that the kubelet calls the runtime down, and reports whether it does now.
func logOfIsDown(f *facts.Facts, lines *[]string) bool {
	s, now := facts.Ongoing(f, facts.SkipFresh, signature.RuntimeIsDown)
	if now {
		Addf(lines, "the kubelet says \"container runtime is down\" %s: 30 s and more without a good Status", facts.SinceText(f, s.From))
	}
	return now
}

// logOfRelists adds that the kubelet's own relists fail, with gRPC's word for how.
func logOfRelists(f *facts.Facts, e *checks.Evidence) bool {
	s, now := facts.Ongoing(f, f.Log.RetryPause, signature.RelistFailed)
	if !now {
		return false
	}
	line := "the kubelet's own relists fail " + facts.SinceText(f, s.From)
	if m := codeInRecord.FindStringSubmatch(facts.Logged(f, signature.RelistFailed).Example); m != nil {
		line += ", the first with " + m[1]
	}
	e.For = append(e.For, line)
	return true
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

// logOfLists is what the kubelet says when one list hangs and Status is well: PLEG alone.
func logOfLists(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	if !f.Log.SameRuntime {
		return false
	}
	relists := logOfRelists(f, e)
	pleg := logOfPLEG(f, e)
	if f.RPC[facts.RPCStatus].Outcome.Alive() {
		if logOfIsDown(f, &e.Against) {
			pleg = false // for the kubelet Status fails as well: another picture
		}
	}
	logOfCalm(f, e)
	return relists || pleg
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

// logOfSlow adds what the kubelet says of a runtime, or a relist, that is slow: PLEG with anchors that move on, and
// housekeeping that waits. It reports whether PLEG is unhealthy now.
func logOfSlow(f *facts.Facts, e *checks.Evidence) bool {
	missingJournal(f, e)
	if !f.Log.SameRuntime {
		return false
	}
	pleg := logOfPLEG(f, e)
	if now := f.Log.PLEGNow; now != nil && len(now.Stalls) > 1 {
		Addf(&e.For, "its relists finish, but late: the last good one began anew %s in that time", units.Times(len(now.Stalls)-1))
	}
	for _, sign := range []struct{ code, what string }{
		{signature.HousekeepingSlow, "the kubelet's housekeeping, which lists twice, took too long"},
		{signature.NameReserved, "the runtime was still at work on a creation that the kubelet had given up and tried again"},
		{signature.RuntimeStalled, "the runtime says itself that creations are stuck at one stage"},
	} {
		if c := facts.Logged(f, sign.code); c != nil && c.Last != nil {
			Addf(&e.For, "%s, last at %s%s", sign.what, facts.ClockText(f, *c.Last), Often(c.Count))
		}
	}
	return pleg
}

// logOfCNI adds what the kubelet and the runtime say when only Status waits: the runtime is down for the kubelet, and PLEG
// is well.
func logOfCNI(f *facts.Facts, e *checks.Evidence, statusHangs bool) bool {
	if !f.Log.SameRuntime {
		return false
	}
	agrees := false
	if statusHangs {
		agrees = logOfIsDown(f, &e.For)
		if now := f.Log.PLEGNow; now != nil {
			Addf(&e.Against, "the kubelet says that PLEG is not healthy either, %s: more than Status fails for it", facts.SinceText(f, *now.Start))
			agrees = false
		}
	}
	if c := facts.Logged(f, signature.CNIFailed); c != nil && c.Last != nil {
		Addf(&e.For, "CNI operations fail in the log, last at %s%s: %s", facts.ClockText(f, *c.Last), Often(c.Count), facts.Quote(f, c.Example))
		agrees = true
	}
	return agrees
}

// logOfNetwork adds that the kubelet reports the network as not ready too.
func logOfNetwork(f *facts.Facts, e *checks.Evidence) bool {
	if !f.Log.SameRuntime {
		return false
	}
	s, now := facts.Ongoing(f, facts.SkipFresh, signature.NetworkNotReady)
	if now {
		Addf(&e.For, "the kubelet says so too, %s", facts.SinceText(f, s.From))
	}
	return now
}

// logOfImages adds that the kubelet's image calls fail too.
func logOfImages(f *facts.Facts, e *checks.Evidence) bool {
	if !f.Log.SameRuntime {
		return false
	}
	agrees := false
	for _, sign := range []struct{ code, what string }{
		{signature.ImageServiceFailed, "the kubelet's image calls fail as well"},
		{signature.ImageGCFailed, "the kubelet's image garbage collection fails"},
		{signature.EvictionBlind, "the kubelet's eviction manager gets no figures"},
	} {
		if c := facts.Logged(f, sign.code); c != nil && c.Last != nil {
			Addf(&e.For, "%s, last at %s%s", sign.what, facts.ClockText(f, *c.Last), Often(c.Count))
			agrees = true
		}
	}
	return agrees
}

// logOfRemovals adds why the kubelet does not get rid of what is dead, and reports whether the log says.
func logOfRemovals(f *facts.Facts, e *checks.Evidence) bool {
	if !f.Log.SameRuntime {
		return false
	}
	said := false
	for _, sign := range []struct{ code, what string }{
		{signature.ContainerGCFailed, "the kubelet's garbage collection of containers fails"},
		{signature.RemoveFailed, "removals fail"},
		{signature.StopFailed, "stops fail"},
	} {
		if c := facts.Logged(f, sign.code); c != nil && c.Last != nil {
			Addf(&e.For, "%s, last at %s%s: %s", sign.what, facts.ClockText(f, *c.Last), Often(c.Count), facts.Quote(f, c.Example))
			said = true
		}
	}
	return said
}
