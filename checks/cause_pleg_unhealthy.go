package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

func plegUnhealthy() Definition {
	return Definition{
		Code:  codePLEGUnhealthy,
		Title: "the kubelet says that PLEG is not healthy, and nothing else was found",
		Means: "PLEG, the pod lifecycle event generator, lists all pods and containers each second and then inspects those that changed, one after the other. Its clock " +
			"is set to the beginning of a relist, as soon as both lists are in. When that clock is older than 3m (10m with evented PLEG), the kubelet's loop skips all its work, says so " +
			"every five seconds, and the node is NotReady.\n\n" +
			"kdiag asked the runtime the same questions and found no deeper cause. Then either the trouble is the kubelet's own: a relist that waits for a lock or for CPU, " +
			"and before Kubernetes 1.16 for a full event channel too; later kubelets throw the event away then and log \"Event channel is full, discard\". Or it comes and goes: slow inspections in a rollout, calls that hang for a while. The log tells them apart by the anchor, the time of " +
			"a line less the age in it: it is when the last good relist began. One anchor on all lines is one relist that is stuck; an anchor that moves is relists that " +
			"finish late. Peaks near multiples of two minutes count hung calls.",
		Confirm: []string{
			"kdiag journal --since -1h: the episodes with their anchors, and what else the logs hold of that time.",
			"journalctl -u kubelet --since -15min | grep -E 'PLEG|Unable to retrieve pods|DeadlineExceeded': which calls fail, of which ids?",
			"The kubelet's goroutines (/debug/pprof/goroutine?debug=2 behind its port 10250): what does the relist wait for, and for how many minutes?",
			"kdiag relist --count 60: are single relists slow?",
		},
		Fix: []string{
			"Keep the kubelet's goroutines and the journal of that time: a restart destroys the first.",
			"It comes and goes: look at what runs at those times (rollouts, jobs, backups, image pulls), and at the disk.",
			"Stuck in the kubelet, and the runtime answers everything: restart the kubelet, unless a mount hangs: then it may not come up again.",
			"Keep new pods away while it flaps.",
		},
		Mistaken: "InspectHang, ListHang, RuntimeHung: kdiag's own calls hang then; the lines of the kubelet are evidence there. A kubelet that has just started says " +
			"\"pleg has yet to be successful\" for a moment: that is no trouble unless it lasts.",
		Sources: []string{
			"kubelet: pkg/kubelet/pleg/generic.go (relist, Healthy), pkg/kubelet/kubelet.go (syncLoop: 100 ms to 5 s between lines)",
			"kubernetes/kubernetes#72482 (relist blocked on a full event channel; events are discarded since), #101056, #77728 (only a restart of the kubelet heals)",
		},
		RootOf:    []string{codeKubeletCrashLooping},
		recognise: recognisePLEGUnhealthy,
	}
}

func recognisePLEGUnhealthy(f *Facts) *Cause {
	all := f.incidents()
	if len(all) == 0 || f.simulated() || f.otherEndpoint() && !f.wrongSocket() {
		return nil // who names another socket than the kubelet's asks about that socket
	}
	var e Evidence
	severity, step, summary := Warning, Strong, ""
	if now := f.plegNow(); now != nil {
		severity, step = Critical, Certain
		summary = f.plegNowSummary(*now)
	} else {
		last := all[len(all)-1]
		summary = f.plegPastSummary(all)
		switch {
		case last.Recovered && last.RecoveredAt != nil:
			step = Certain
			addf(&e.Against, "its loop has been at work again since %s", f.clock(*last.RecoveredAt))
		case last.Recovered:
			step = Certain
			addf(&e.Against, "its loop is at work again")
		default:
			addf(&e.Missing, "whether it recovered: after %s the kubelet says nothing of it, for good or bad", f.clock(*last.End))
		}
	}
	e.For = append(e.For, f.plegLine())
	f.plegDetails(&e, all[len(all)-1])
	if f.hearsKubelet() && f.connected() && f.bothLists() {
		addf(&e.For, "the runtime answers kdiag: what it waits for is in the kubelet, or was over when kdiag asked")
	}
	f.missingSweep(&e)
	c := newCause(codePLEGUnhealthy, severity, step, summary, e)
	c.Subject = f.kubeletSubject()
	for _, k := range all[len(all)-1].Culprits[:min(len(all[len(all)-1].Culprits), maxRelated)] {
		c.Related = append(c.Related, culpritSubject(k))
	}
	c.NextSteps = f.stepsWhenPLEGUnhealthy(severity == Critical)
	return c
}

// plegNowSummary says what the anchors of the incident that goes on mean.
func (f *Facts) plegNowSummary(now journal.Episode) string {
	age := ""
	if d := units.ToDuration(now.MaxLastSeenSeconds); d > 0 {
		age = ", up to " + units.Duration(d)
	}
	_, fails := f.ongoing(f.retryPause(), signature.RelistFailed)
	switch {
	case fails:
		return fmt.Sprintf("the kubelet says %s that PLEG is not healthy: its lists fail, though the runtime answers now", f.since(*now.Start))
	case len(now.Stalls) > 1:
		return fmt.Sprintf("the kubelet says %s that PLEG is not healthy: relists finish, but too late%s", f.since(*now.Start), age)
	case now.Anchor != nil:
		return fmt.Sprintf("the kubelet says that PLEG is not healthy: the last good relist began at %s, and none has come since", f.clock(*now.Anchor))
	}
	return fmt.Sprintf("the kubelet says %s that PLEG is not healthy%s", f.since(*now.Start), age)
}

// plegPastSummary says when PLEG was unhealthy in the window.
func (f *Facts) plegPastSummary(all []journal.Episode) string {
	last := all[len(all)-1]
	if len(all) == 1 {
		return fmt.Sprintf("PLEG was not healthy from %s to %s, and is well now", f.clock(*last.Start), f.clock(*last.End))
	}
	return fmt.Sprintf("PLEG flaps: it was not healthy %s in the last %s, last until %s", units.Times(len(all)), units.Duration(f.journalWindow()), f.clock(*last.End))
}

// plegDetails adds what the log holds beside the unhealthy lines of an incident.
func (f *Facts) plegDetails(e *Evidence, last journal.Episode) {
	if n := len(last.Stalls); n > 1 {
		addf(&e.For, "%s one after the other: relists finish, and each takes too long", units.Count(n, "stall"))
	}
	if k := hungCalls(units.ToDuration(last.MaxLastSeenSeconds), f.requestTimeout(), f.threshold()); k > 0 && (last.Recovered || len(last.Stalls) > 1) {
		addf(&e.For, "the worst age is a little over %d x %s, the deadline of one call: %s hung, one after the other", k, units.Duration(f.requestTimeout()), units.Count(k, "call"))
	}
	if last.Flaps > 1 {
		addf(&e.For, "it returns at a regular interval; this was the %s time", ordinal(last.Flaps))
	}
	for _, k := range last.Culprits[:min(len(last.Culprits), topHeaps)] {
		addf(&e.For, "failing calls of that time name %s%s", culpritLabel(k), often(int64(k.Records)))
	}
	for _, c := range last.Causes {
		if _, known := Lookup(c.Code); known && c.Code != codePLEGUnhealthy {
			addf(&e.For, "by the log alone it looks like %s (%.2f): %s", clean(c.Code), c.Confidence, clean(c.Summary))
			break
		}
	}
}

// hungCalls tells how many hung calls a worst age speaks of: it is a little more than a multiple of the deadline. The
// first multiple is below every threshold, and below the threshold no age is logged.
func hungCalls(worst, call, threshold time.Duration) int {
	if call <= 0 || worst <= threshold {
		return 0
	}
	k := int(worst / call)
	if rest := worst - time.Duration(k)*call; k < 2 || rest > 10*time.Second {
		return 0
	}
	return k
}

// ordinal writes a number as a place in a series.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return units.Number(n) + suffix
}

// culpritSubject is an object that the log names.
func culpritSubject(k journal.Culprit) Subject {
	return Subject{
		Kind: clean(k.Kind), ID: clean(k.ID), Name: clean(k.Name), Namespace: clean(k.Namespace), Pod: clean(k.Pod), PodUID: clean(k.PodUID),
	}
}

// culpritLabel names an object that the log names.
func culpritLabel(k journal.Culprit) string {
	switch {
	case k.Kind == kindContainer, k.Kind == kindSandbox:
		return labelOf(k.Kind, k.ID, k.Namespace, k.Pod, k.Name)
	case k.Pod != "":
		return labelOf(kindSandbox, k.ID, k.Namespace, k.Pod, "")
	}
	return or(clean(k.Name), shortID(k.ID))
}

func (f *Facts) stepsWhenPLEGUnhealthy(now bool) []NextStep {
	var s steps
	s.add(TouchesNothing, "kdiag journal --since -1h", "The episodes with their anchors, and what runtime and kernel said at the time.")
	s.add(TouchesNothing, f.kubeletLog()+" | grep -E 'PLEG|Unable to retrieve|DeadlineExceeded|took longer'",
		"Which calls fail, and which ids do they name? One id that returns is the culprit.")
	s.add(TouchesNothing, f.kdiagCommand("relist --count 60"), "Are single relists slow, or does one call hang now and then?")
	f.addPressure(&s)
	if now {
		s.add(TouchesNothing, `kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
			"Keep the evidence: what does the kubelet's relist wait for? A restart destroys it.")
		s.add(TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'", "Does a mount hang? Then a restarted kubelet may not come up.")
		s.add(TouchesKubelet, "systemctl restart "+f.kubeletUnit(), "Only if the runtime answers everything and PLEG stays unhealthy. Containers go on running.")
	}
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keeps new pods away while it lasts or flaps; each makes the next relist longer.")
	return s.done()
}
