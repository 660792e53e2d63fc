package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// codeInRecord finds gRPC's code in a record: rpc error: code = DeadlineExceeded desc = ...
var codeInRecord = regexp.MustCompile(`code = ([A-Z][A-Za-z]{1,20})`)

// raised is a step after the kubelet's log was heard.
func raised(step float64, agrees bool) float64 {
	if agrees {
		return step + agreement
	}
	return step
}

// retryPause is how long the kubelet may be silent about a call that hangs again and again: the deadline of the call,
// and the pause until the next.
func (f *Facts) retryPause() time.Duration { return f.requestTimeout() + skipFresh }

// hearDown adds what the kubelet says of a runtime that does not answer, or answers nothing good: its 30 s without a
// Status, its relists, PLEG. It reports whether the kubelet says the same now.
func (f *Facts) hearDown(e *Evidence) bool {
	f.missingJournal(e)
	if !f.hearsKubelet() {
		return false
	}
	down := f.hearIsDown(&e.For)
	if s, now := f.ongoing(skipFresh, signature.RuntimeNotReadyReported); now {
		addf(&e.For, "the kubelet hears \"container runtime not ready\" from it %s", f.since(s.From))
		down = true
	}
	relists := f.hearRelists(e)
	pleg := f.hearPLEG(e)
	f.hearCalm(e)
	return down || relists || pleg
}

// hearIsDown adds that the kubelet calls the runtime down, and reports whether it does now.
func (f *Facts) hearIsDown(lines *[]string) bool {
	s, now := f.ongoing(skipFresh, signature.RuntimeIsDown)
	if now {
		addf(lines, "the kubelet says \"container runtime is down\" %s: 30 s and more without a good Status", f.since(s.From))
	}
	return now
}

// hearRelists adds that the kubelet's own relists fail, with gRPC's word for how.
func (f *Facts) hearRelists(e *Evidence) bool {
	s, now := f.ongoing(f.retryPause(), signature.RelistFailed)
	if !now {
		return false
	}
	line := "the kubelet's own relists fail " + f.since(s.From)
	if m := codeInRecord.FindStringSubmatch(f.logged(signature.RelistFailed).Example); m != nil {
		line += ", the first with " + m[1]
	}
	e.For = append(e.For, line)
	return true
}

// hearStops adds what systemd and the kernel say of the end of the runtime's daemon.
func (f *Facts) hearStops(e *Evidence) {
	if !f.hearsKubelet() {
		return
	}
	for _, how := range []struct{ code, what string }{
		{signature.UnitOOMKilled, "was hit by the OOM killer"},
		{signature.WatchdogTimeout, "missed its watchdog"},
		{signature.UnitFailed, "failed"},
		{signature.UnitRestarted, "was restarted by systemd"},
		{signature.UnitStopped, "was stopped"},
	} {
		for _, u := range f.unitsOf(how.code, roleRuntime) {
			if u.Last != nil {
				addf(&e.For, "the journal: %s %s at %s%s", clean(u.ID), how.what, f.clock(*u.Last), often(u.Count))
				return
			}
		}
	}
	if last := f.lastOf(signature.RuntimeStopped); last != nil {
		addf(&e.For, "the journal: the runtime stopped at %s: %s", f.clock(*last), f.firstExample(signature.RuntimeStopped))
	}
}

// often adds a number to something that happened more than once.
func often(n int64) string {
	if n < 2 {
		return ""
	}
	return ", " + units.Number(int(n)) + " times in all"
}

// hearLists is what the kubelet says when one list hangs and Status is well: PLEG alone.
func (f *Facts) hearLists(e *Evidence) bool {
	f.missingJournal(e)
	if !f.hearsKubelet() {
		return false
	}
	relists := f.hearRelists(e)
	pleg := f.hearPLEG(e)
	if f.rpc(rpcStatus).Outcome.alive() {
		if f.hearIsDown(&e.Against) {
			pleg = false // for the kubelet Status fails as well: another picture
		}
	}
	f.hearCalm(e)
	return relists || pleg
}

// A named object is one that the kubelet's failing status calls name.
type named struct {
	ID string
	journal.SubjectCount
}

// namedByKubelet returns the objects whose status the kubelet has asked for in vain, as far as it still may: each relist
// tries again, and waits for each call.
func (f *Facts) namedByKubelet() []named {
	var some []named
	for _, s := range f.subjectsOf(signature.InspectFailed) {
		if f.fresh(s.Last, 2*f.retryPause()) {
			some = append(some, named{strings.TrimSpace(s.ID), s})
		}
	}
	for _, e := range f.incidents() {
		if !f.fresh(e.End, 2*f.retryPause()) {
			continue
		}
		for _, k := range e.Culprits { // counts name the first few objects, episodes more of them
			if k.Example == signature.InspectFailed && k.ID != "" && !slices.ContainsFunc(some, func(n named) bool { return n.is(k.ID) }) {
				some = append(some, named{k.ID, journal.SubjectCount{Kind: k.Kind, ID: k.ID, Count: int64(k.Records)}})
			}
		}
	}
	return some
}

// is reports whether two ids are of the same object. A log may hold the head of one only.
func (n named) is(id string) bool {
	const head = 12
	if len(n.ID) < head || len(id) < head {
		return n.ID != "" && n.ID == id
	}
	return strings.HasPrefix(n.ID, id) || strings.HasPrefix(id, n.ID)
}

// hearObject adds that the kubelet's failing status calls name one of the objects, the first that they do, and reports
// whether they name any. With words of its own the log tells when it began.
func (f *Facts) hearObject(e *Evidence, objects ...plegObject) bool {
	if !f.hearsKubelet() {
		return false
	}
	all := f.namedByKubelet()
	for _, o := range objects {
		for _, n := range all {
			if !n.is(o.ID) && !n.is(o.Pod) && !n.is(o.PodUID) {
				continue
			}
			line := fmt.Sprintf("the kubelet's log names it too: its status calls for %s fail", o.Label)
			if n.First != nil {
				line += " " + f.since(*n.First)
			}
			e.For = append(e.For, line+often(n.Count))
			return true
		}
	}
	if len(all) > 0 {
		addf(&e.Against, "the kubelet's failing status calls name others, such as %s", shortID(all[0].ID))
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
		out = append(out, plegObject{ID: i.ID, Pod: pod, PodUID: i.Pod.UID, Label: label(i)})
	}
	return out
}

// hearSize adds that the kubelet's own lists, or the runtime's answers to it, are over the message limit.
func (f *Facts) hearSize(e *Evidence, over bool) bool {
	if !f.hearsKubelet() {
		return false
	}
	c := f.logged(signature.MessageTooLarge)
	if c == nil {
		if over {
			f.hearCalm(e)
		}
		return false
	}
	side := "the receiver's limit"
	if strings.Contains(c.Example, "trying to send") {
		side = "the sender's limit"
	}
	line := "the log holds the refusal as well"
	if m := sizesInError.FindStringSubmatch(c.Example); m != nil {
		line += fmt.Sprintf(", %s against %s bytes, by %s", m[1], m[2], side)
	} else {
		line += ", by " + side
	}
	if c.First != nil {
		line += ", " + f.since(*c.First)
	}
	e.For = append(e.For, line+often(c.Count))
	return true
}

// hearSlow adds what the kubelet says of a runtime, or a relist, that is slow: PLEG with anchors that move on, and
// housekeeping that waits. It reports whether PLEG is unhealthy now.
func (f *Facts) hearSlow(e *Evidence) bool {
	f.missingJournal(e)
	if !f.hearsKubelet() {
		return false
	}
	pleg := f.hearPLEG(e)
	if now := f.plegNow(); now != nil && len(now.Stalls) > 1 {
		addf(&e.For, "its relists finish, but late: the last good one began anew %s in that time", units.Times(len(now.Stalls)-1))
	}
	for _, sign := range []struct{ code, what string }{
		{signature.HousekeepingSlow, "the kubelet's housekeeping, which lists twice, took too long"},
		{signature.NameReserved, "the runtime was still at work on a creation that the kubelet had given up and tried again"},
		{signature.RuntimeStalled, "the runtime says itself that creations are stuck at one stage"},
	} {
		if c := f.logged(sign.code); c != nil && c.Last != nil {
			addf(&e.For, "%s, last at %s%s", sign.what, f.clock(*c.Last), often(c.Count))
		}
	}
	return pleg
}

// hearCNI adds what the kubelet and the runtime say when only Status waits: the runtime is down for the kubelet, and PLEG
// is well.
func (f *Facts) hearCNI(e *Evidence, statusHangs bool) bool {
	if !f.hearsKubelet() {
		return false
	}
	agrees := false
	if statusHangs {
		agrees = f.hearIsDown(&e.For)
		if now := f.plegNow(); now != nil {
			addf(&e.Against, "the kubelet says that PLEG is not healthy either, %s: more than Status fails for it", f.since(*now.Start))
			agrees = false
		}
	}
	if c := f.logged(signature.CNIFailed); c != nil && c.Last != nil {
		addf(&e.For, "CNI operations fail in the log, last at %s%s: %s", f.clock(*c.Last), often(c.Count), f.quote(c.Example))
		agrees = true
	}
	return agrees
}

// hearNetwork adds that the kubelet reports the network as not ready too.
func (f *Facts) hearNetwork(e *Evidence) bool {
	if !f.hearsKubelet() {
		return false
	}
	s, now := f.ongoing(skipFresh, signature.NetworkNotReady)
	if now {
		addf(&e.For, "the kubelet says so too, %s", f.since(s.From))
	}
	return now
}

// hearImages adds that the kubelet's image calls fail too.
func (f *Facts) hearImages(e *Evidence) bool {
	if !f.hearsKubelet() {
		return false
	}
	agrees := false
	for _, sign := range []struct{ code, what string }{
		{signature.ImageServiceFailed, "the kubelet's image calls fail as well"},
		{signature.ImageGCFailed, "the kubelet's image garbage collection fails"},
		{signature.EvictionBlind, "the kubelet's eviction manager gets no figures"},
	} {
		if c := f.logged(sign.code); c != nil && c.Last != nil {
			addf(&e.For, "%s, last at %s%s", sign.what, f.clock(*c.Last), often(c.Count))
			agrees = true
		}
	}
	return agrees
}

// hearRemovals adds why the kubelet does not get rid of what is dead, and reports whether the log says.
func (f *Facts) hearRemovals(e *Evidence) bool {
	if !f.hearsKubelet() {
		return false
	}
	said := false
	for _, sign := range []struct{ code, what string }{
		{signature.ContainerGCFailed, "the kubelet's garbage collection of containers fails"},
		{signature.RemoveFailed, "removals fail"},
		{signature.StopFailed, "stops fail"},
	} {
		if c := f.logged(sign.code); c != nil && c.Last != nil {
			addf(&e.For, "%s, last at %s%s: %s", sign.what, f.clock(*c.Last), often(c.Count), f.quote(c.Example))
			said = true
		}
	}
	return said
}
