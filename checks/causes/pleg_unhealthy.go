package causes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// PLEGUnhealthy is the code of this cause.
const PLEGUnhealthy = "PLEGUnhealthy"

var plegUnhealthy = Definition{
	Code:   PLEGUnhealthy,
	Claims: []string{"journal.pleg"},
	Roots: []Root{
		{Code: IOStall},
		{Code: FilesystemHung, When: usedMountHangs},
		{Code: MemoryPressure, When: memoryIsLow},
		{Code: CPUStarved, When: runtimeStarved},
		{Code: KernelHung},
		{Code: ClockJumped},
	},
	Hidden: []Root{
		{Code: RuntimeSlow, When: sameRuntime},
		{Code: RelistOverloaded, When: sameRuntime},
		{Code: KubeletDown, When: sameRuntime},
		{Code: KubeletStalled, When: sameRuntime},
		{Code: RuntimeDown, When: sameRuntime, Critical: true},
		{Code: RuntimeHung, When: sameRuntime, Critical: true},
		{Code: RuntimeUnsupported, When: sameRuntime, Critical: true},
		{Code: ListHang, When: sameRuntime, Critical: true},
		{Code: RuntimeNotReady, When: sameRuntime, Critical: true},
		{Code: InspectHang, When: sameRuntime, Critical: true},
		{Code: KernelHung, When: sameRuntime, Critical: true},
		{Code: OOMKilled, When: killedBeforePLEG},
		{Code: ListTooLarge, When: kubeletCannotList, Critical: true},
	},
	Recognise: recognisePLEGUnhealthy,
}

func recognisePLEGUnhealthy(f *facts.Facts) *Finding {
	all := f.Log.Incidents
	if len(all) == 0 || f.Target.Simulated || f.Target.OtherEndpoint && !f.Target.WrongSocket {
		return nil // who names another socket than the kubelet's asks about that socket
	}
	var e checks.Evidence
	severity, step, summary := checks.Warning, checks.Strong, ""
	if now := f.Log.PLEGNow; now != nil {
		severity, step = checks.Critical, checks.Certain
		summary = plegNowSummary(f, *now)
	} else {
		last := all[len(all)-1]
		summary = plegPastSummary(f, all)
		switch {
		case last.Recovered && last.RecoveredAt != nil:
			step = checks.Certain
			Addf(&e.Against, "its loop has been at work again since %s", facts.ClockText(f, *last.RecoveredAt))
		case last.Recovered:
			step = checks.Certain
			Addf(&e.Against, "its loop is at work again")
		default:
			Addf(&e.Missing, "whether it recovered: after %s the kubelet says nothing of it, for good or bad", facts.ClockText(f, *last.End))
		}
	}
	e.For = append(e.For, facts.PLEGLine(f))
	plegDetails(f, &e, all[len(all)-1])
	if f.Log.SameRuntime && f.Calls.Connected && f.Calls.BothLists {
		Addf(&e.For, "the runtime answers kdiag: what it waits for is in the kubelet, or was over when kdiag asked")
	}
	missingSweep(f, &e)
	c := newFinding(severity, step, summary, e)
	c.Subject = facts.KubeletSubject(f)
	for _, k := range all[len(all)-1].Culprits[:min(len(all[len(all)-1].Culprits), facts.MaxRelated)] {
		c.Related = append(c.Related, culpritSubject(k))
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenPLEGUnhealthy(f, severity == checks.Critical) }
	return c
}

// plegNowSummary says what the anchors of the incident that goes on mean.
func plegNowSummary(f *facts.Facts, now journal.Episode) string {
	age := ""
	if d := units.ToDuration(now.MaxLastSeenSeconds); d > 0 {
		age = ", up to " + units.Duration(d)
	}
	_, fails := facts.Ongoing(f, f.Log.RetryPause, signature.RelistFailed)
	switch {
	case fails:
		return fmt.Sprintf("the kubelet says %s that PLEG is not healthy: its lists fail, though the runtime answers now", facts.SinceText(f, *now.Start))
	case len(now.Stalls) > 1:
		return fmt.Sprintf("the kubelet says %s that PLEG is not healthy: relists finish, but too late%s", facts.SinceText(f, *now.Start), age)
	case now.Anchor != nil:
		return fmt.Sprintf("the kubelet says that PLEG is not healthy: the last good relist began at %s, and none has come since", facts.ClockText(f, *now.Anchor))
	}
	return fmt.Sprintf("the kubelet says %s that PLEG is not healthy%s", facts.SinceText(f, *now.Start), age)
}

// plegPastSummary says when PLEG was unhealthy in the window.
func plegPastSummary(f *facts.Facts, all []journal.Episode) string {
	last := all[len(all)-1]
	if len(all) == 1 {
		return fmt.Sprintf("PLEG was not healthy from %s to %s, and is well now", facts.ClockText(f, *last.Start), facts.ClockText(f, *last.End))
	}
	return fmt.Sprintf("PLEG flaps: it was not healthy %s in the last %s, last until %s", units.Times(len(all)), units.Duration(f.Log.Window), facts.ClockText(f, *last.End))
}

// plegDetails adds what the log holds beside the unhealthy lines of an incident.
func plegDetails(f *facts.Facts, e *checks.Evidence, last journal.Episode) {
	if n := len(last.Stalls); n > 1 {
		Addf(&e.For, "%s one after the other: relists finish, and each takes too long", units.Count(n, "stall"))
	}
	if k := HungCalls(units.ToDuration(last.MaxLastSeenSeconds), f.Calls.KubeletTimeout, f.Calls.Threshold); k > 0 && (last.Recovered || len(last.Stalls) > 1) {
		Addf(&e.For, "the worst age is a little over %d x %s, the deadline of one call: %s hung, one after the other", k, units.Duration(f.Calls.KubeletTimeout), units.Count(k, "call"))
	}
	if last.Flaps > 1 {
		Addf(&e.For, "it returns at a regular interval; this was the %s time", Ordinal(last.Flaps))
	}
	for _, k := range last.Culprits[:min(len(last.Culprits), facts.MostNamed)] {
		Addf(&e.For, "failing calls of that time name %s%s", culpritLabel(k), Often(int64(k.Records)))
	}
}

// HungCalls tells how many hung calls a worst age speaks of: it is a little more than a multiple of the deadline. The
// first multiple is below every threshold, and below the threshold no age is logged.
func HungCalls(worst, call, threshold time.Duration) int {
	if call <= 0 || worst <= threshold {
		return 0
	}
	k := int(worst / call)
	if rest := worst - time.Duration(k)*call; k < 2 || rest > 10*time.Second {
		return 0
	}
	return k
}

// Ordinal writes a number as a place in a series.
func Ordinal(n int) string {
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
func culpritSubject(k journal.Culprit) checks.Subject {
	return checks.Subject{
		Kind: facts.Clean(k.Kind), ID: facts.Clean(k.ID), Name: facts.Clean(k.Name), Namespace: facts.Clean(k.Namespace), Pod: facts.Clean(k.Pod), PodUID: facts.Clean(k.PodUID),
	}
}

// culpritLabel names an object that the log names.
func culpritLabel(k journal.Culprit) string {
	switch {
	case k.Kind == facts.KindContainer, k.Kind == facts.KindSandbox:
		return facts.LabelOf(k.Kind, k.ID, k.Namespace, k.Pod, k.Name)
	case k.Pod != "":
		return facts.LabelOf(facts.KindSandbox, k.ID, k.Namespace, k.Pod, "")
	}
	return cmp.Or(facts.Clean(k.Name), facts.ShortID(k.ID))
}

func stepsWhenPLEGUnhealthy(f *facts.Facts, now bool) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing, "kdiag journal --since -1h", "The episodes with their anchors, and what runtime and kernel said at the time.")
	s.Add(checks.TouchesNothing, facts.KubeletLog(f)+" | grep -E 'PLEG|Unable to retrieve|DeadlineExceeded|took longer'",
		"Which calls fail, and which ids do they name? One id that returns is the culprit.")
	s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "relist --count 60"), "Are single relists slow, or does one call hang now and then?")
	AddPressure(f, &s)
	if now {
		s.Add(checks.TouchesNothing, `kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
			"Keep the evidence: what does the kubelet's relist wait for? A restart destroys it.")
		s.Add(checks.TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'", "Does a mount hang? Then a restarted kubelet may not come up.")
		s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit, "Only if the runtime answers everything and PLEG stays unhealthy. Containers go on running.")
	}
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keeps new pods away while it lasts or flaps; each makes the next relist longer.")
	return s.Done()
}
