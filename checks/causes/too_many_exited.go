package causes

import (
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// TooManyExited is the code of this cause.
const TooManyExited = "TooManyExited"

func recogniseTooManyExited(f *facts.Facts) *Finding {
	if f.Measurement == nil {
		return nil
	}
	c, l := f.Lists.Census, f.Limits
	manyExited := l.ExitedWarning > 0 && c.Exited >= l.ExitedWarning
	if !manyExited && (l.DeadSandboxes <= 0 || c.DeadSandboxes < l.DeadSandboxes) {
		return nil
	}
	share := float64(c.ExitedBytes) / float64(f.Lists.MessageLimit)
	severity := criticalIf(l.ExitedCritical > 0 && max(c.Exited, c.DeadSandboxes) >= l.ExitedCritical ||
		l.SizeCritical > 0 && share >= l.SizeCritical)
	e := exitedEvidence(c, share)
	addGaps(f, &e, gapLists)
	agrees := fromLog(f, &e.For, signsOfRemovals...)
	addIf(!agrees, &e.Missing, "why they were not removed: no record in the logs read")
	what := ifElse(manyExited, units.Count(c.Exited, "exited container"), units.Count(c.DeadSandboxes, "dead sandbox"))
	counts := ifElse(manyExited, c.Containers, c.Sandboxes)
	summary := what + " pile up"
	if len(counts) > 0 && counts[0].Count > 1 && counts[0].Pod.Name != "" {
		summary += textf(", %s of them of %s", units.Number(counts[0].Count), counts[0].Label())
	}
	summary += ifElse(c.MostlyNewest(), "; "+c.NewestOf()+" of its pod and name", "")
	step := raised(checks.Certain, agrees)
	found := newFinding(severity, step, summary, e, countSubjects(c)...)
	if s := f.Summary; s != nil && s.ContainersAtLimit != nil && !f.Lists.Streamed && !f.Lists.Size.Over() {
		found.affects(textf("kubelet: Ready until about %s containers, when the list passes %s",
			units.Number(*s.ContainersAtLimit), units.Size(f.Lists.MessageLimit)))
	}
	return found.advise(func(s *Steps, _ string) {
		unit := ifElse(f.Target.RestartsKubelet, f.Target.Unit, "kubelet")
		s.Look("journalctl --no-pager -u "+unit+" --since -1h | grep -E 'collection failed|Failed to (stop|remove)'",
			"Find why they are not removed, and fix that first (StopPodSandbox mostly fails because CNI DEL fails)")
		s.Look(facts.KdiagCommand(f, "exited --watch 60s"), "Show growth rate, exit reasons, time to the limit")
		addCleanUp(f, s)
		if c.MostlyNewest() {
			s.Look(`kubectl get pods -A --field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`,
				"List completed pods that are still in the API; if few, their removal fails: see the kubelet's log")
			addCompletedPods(s, c)
		}
	})
}

func exitedEvidence(c facts.Census, share float64) checks.Evidence {
	var e checks.Evidence
	Addf(&e.For, "%s, %s", units.Count(c.Exited, "exited container"), units.Count(c.DeadSandboxes, "dead sandbox"))
	what := beyondNewest(c)
	addIf(what != "", &e.For, "%s not the newest of their pod and name: the kubelet may remove them", what)
	if c.MostlyNewest() {
		Addf(&e.For, "%s of its pod and name: completed pods, or deleted ones that are not removed", c.NewestOf())
		Addf(&e.Missing, "whether their pods still exist: the API was not queried")
	}
	addIf(c.ExitedBytes > 0, &e.For, "their entries fill %s of the message limit", units.Percent(share))
	addIf(c.LastHour == 0 && c.Exited > 0 && len(c.Containers) > 0, &e.Against, "none was created in the last hour")
	return e
}

// beyondNewest counts what garbage collection may remove; empty for nothing.
func beyondNewest(c facts.Census) string {
	var parts []string
	addIf(c.BeyondNewest > 0, &parts, "%s", units.Count(c.BeyondNewest, "container"))
	addIf(c.OldSandboxes > 0, &parts, "%s", units.Count(c.OldSandboxes, "dead sandbox"))
	return units.List(parts)
}

// countSubjects names the pods under which most has piled up.
func countSubjects(c facts.Census) []checks.Subject {
	counts, kind := c.Containers, facts.KindContainer
	if len(counts) == 0 || len(c.Sandboxes) > 0 && c.Sandboxes[0].Count > counts[0].Count {
		counts, kind = c.Sandboxes, facts.KindSandbox
	}
	var subjects []checks.Subject
	for _, h := range top(counts) {
		if h.Count > 1 && h.Pod.Name != "" {
			subjects = append(subjects, checks.Subject{
				Kind: kind, Name: h.Name, Namespace: h.Pod.Namespace, Pod: h.Pod.Name, PodUID: h.Pod.UID,
			})
		}
	}
	if len(subjects) == 0 { // each pod has one
		subjects = append(subjects, ofNode("exited containers"))
	}
	return subjects
}

// addCleanUp adds the removal of all but the newest, first as a plan. It also works where the list is over its
// limit, for which crictl is as blind as the kubelet.
func addCleanUp(f *facts.Facts, s *Steps) {
	what := beyondNewest(f.Lists.Census)
	if what == "" {
		return
	}
	what += ifElse(partOfLists(f), " and more", "")
	s.Look(facts.KdiagCommand(f, "gc-exited"), textf("Show the removal plan (dry run) for %s", what))
	s.Add(checks.TouchesExited, facts.KdiagCommand(f, "gc-exited --yes --audit gc-audit.jsonl"),
		textf("Remove %s, oldest first; keeps the newest of each and all logs. Do not use crictl rm -a", what))
}

// addCompletedPods adds the deletion of completed pods in the namespace that has most of them.
func addCompletedPods(s *Steps, c facts.Census) {
	namespaces := map[string]int{"": 0}
	for _, h := range c.Containers {
		namespaces[h.Pod.Namespace] += h.Count
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(namespaces)),
		func(a, b string) int { return namespaces[a] - namespaces[b] })
	if !facts.Safe(most) {
		return
	}
	const selector = `--field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`
	s.Add(checks.TouchesExited, textf("kubectl delete pods -n %s %s", most, selector),
		"Delete completed pods and their logs, if nobody needs them; the kubelet then removes the containers")
	s.Look(textf("kubectl get jobs,cronjobs -n %s", most), "Find Jobs without a TTL or history limits")
}

func loggedTooManyExited(in *Incident) *Finding {
	tooLarge := in.count(signature.MessageTooLarge) > 0
	codes := []string{signature.ContainerGCFailed, signature.RemoveFailed}
	if in.count(codes...) == 0 || !tooLarge && in.count(signature.RemoveFailed) < 5 {
		return nil
	}
	f := in.finding(checks.Weak, "Dead containers or sandboxes are not removed and pile up.", codes...)
	addIf(tooLarge, &f.Evidence.For, "the lists have grown too large to be sent")
	return f.lacks("how many there are")
}
