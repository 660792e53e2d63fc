package causes

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// PLEGUnhealthy is the code of this cause.
const PLEGUnhealthy = "PLEGUnhealthy"

func recognisePLEGUnhealthy(f *facts.Facts) *Finding {
	all := f.Log.Incidents
	if len(all) == 0 || f.Target.Simulated || f.Target.OtherEndpoint && !f.Target.WrongSocket ||
		PLEGRecovered(f) != "" {
		return nil // who names another socket than the kubelet's asks about that socket
	}
	var e checks.Evidence
	severity, step, summary := checks.Warning, checks.Certain, ""
	last := all[len(all)-1]
	switch now := f.Log.PLEGNow; {
	case now != nil:
		severity, summary = checks.Critical, plegNowSummary(f, *now)
	case len(all) > 1:
		summary = textf("PLEG flaps: unhealthy %s, last until %s", units.Times(len(all)), facts.ClockText(f, *last.End))
	default:
		summary = "PLEG was unhealthy from " + facts.ClockText(f, *last.Start) + " to " + facts.ClockText(f, *last.End)
	}
	over := severity == checks.Warning
	addIf(over && last.Recovered, &e.Against, "the sync loop runs again")
	if over && !last.Recovered {
		step = checks.Strong
		Addf(&e.Missing, "whether it recovered: the log has nothing of it after %s", facts.ClockText(f, *last.End))
	}
	e.For = append(e.For, PLEGLine(f))
	for _, k := range top(last.Culprits) {
		Addf(&e.For, "failed calls of that time name %s%s", culpritLabel(k), Often(int64(k.Records)))
	}
	addIf(f.Log.SameRuntime && f.Calls.Connected && f.Calls.BothLists, &e.For,
		"the runtime answers kdiag: the fault is in the kubelet, or over")
	addGaps(f, &e, gapSweep)
	subjects := []checks.Subject{*facts.KubeletSubject(f)}
	for _, k := range last.Culprits {
		subjects = append(subjects, checks.Subject{
			Kind: facts.Clean(k.Kind), ID: k.ID, Name: k.Name, Namespace: k.Namespace, Pod: k.Pod, PodUID: k.PodUID,
		})
	}
	return newFinding(severity, step, summary, e, subjects...).
		advise(func(s *Steps, _ string) { advisePLEGUnhealthy(f, s, severity == checks.Critical) })
}

// plegNowSummary explains the anchors of the incident that goes on.
func plegNowSummary(f *facts.Facts, now journal.Episode) string {
	line := "PLEG is not healthy " + facts.SinceText(f, *now.Start)
	switch {
	case facts.Ongoing(f, f.Log.RetryPause, signature.RelistFailed) != nil:
		return line + ": the kubelet's relists fail, and the runtime answers kdiag"
	case len(now.Stalls) > 1:
		return line + ": relists end, each too late"
	case now.Anchor != nil:
		return line + ": no good relist since " + facts.ClockText(f, *now.Anchor)
	}
	return line
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

func advisePLEGUnhealthy(f *facts.Facts, s *Steps, now bool) {
	s.Look("kdiag journal --since -1h", "Show the incidents, with what runtime and kernel logged.")
	s.Look(KubeletLog(f)+" | grep -E 'PLEG|Unable to retrieve|DeadlineExceeded'",
		"Find the calls that fail; an ID that they repeat is the culprit.")
	s.Look(facts.KdiagCommand(f, "relist --count 60"), "Find out whether relists are slow, or single calls hang.")
	AddPressure(f, s)
	if now {
		s.lookRelist()
		s.lookBlocked()
		s.restartKubelet(f, "Only if the runtime answers, PLEG stays unhealthy and no mount hangs.")
	}
	s.cordon()
}

// PLEGRecovered is a sentence on the only incident of PLEG, where it is over; empty where there was none, where one
// goes on, and where PLEG flaps.
func PLEGRecovered(f *facts.Facts) string {
	all := f.Log.Incidents
	if len(all) != 1 || f.Log.PLEGNow != nil || !f.Log.SameRuntime {
		return ""
	}
	last := all[0]
	if !last.Recovered && !facts.ReadySince(f, *last.End) && !f.KubeletState.PLEGKnown {
		return ""
	}
	return textf("PLEG was not healthy from %s to %s, and has recovered", facts.ClockText(f, *last.Start),
		facts.ClockText(f, *last.End))
}

// PLEGLine sums up the kubelet's records of PLEG; empty when there are none. Of several incidents it has how many, of
// one that goes on since when.
func PLEGLine(f *facts.Facts) string {
	all := f.Log.Incidents
	if len(all) == 0 {
		return ""
	}
	last, worst := all[len(all)-1], 0.0
	for _, e := range all {
		worst = max(worst, e.MaxLastSeenSeconds)
	}
	line := textf("the kubelet logged PLEG as not healthy from %s to %s", facts.ClockText(f, *last.Start),
		facts.ClockText(f, *last.End))
	now := f.Log.PLEGNow
	if now != nil {
		line = "the kubelet logs PLEG as not healthy " + facts.SinceText(f, *now.Start)
	}
	if now != nil && now.Anchor != nil && len(now.Stalls) < 2 {
		line += textf("; its last good relist began at %s", facts.ClockText(f, *now.Anchor))
	} else if worst > 0 {
		line += textf(", at most %s since its last good relist", units.Seconds(worst))
	}
	if len(all) > 1 {
		line += textf("; before, it was so %s in the last %s", units.Times(len(all)-1),
			units.Duration(f.Log.Window))
	}
	return line
}
