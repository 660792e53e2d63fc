package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// TooManyExited is the code of this cause.
const TooManyExited = "TooManyExited"

var tooManyExited = Definition{
	Code:   TooManyExited,
	Claims: []string{"relist.exited"},
	Roots: []Root{
		{Code: DiskFull, When: runtimeDiskFull},
		{Code: InodesExhausted, When: runtimeInodesGone},
	},
	Recognise: recogniseTooManyExited,
	FromLog:   loggedTooManyExited,
}

func recogniseTooManyExited(f *facts.Facts) *Finding {
	if f.Measurement == nil {
		return nil
	}
	c := f.Lists.Census
	l := f.Limits
	manyExited := l.ExitedWarning > 0 && c.Exited >= l.ExitedWarning
	manySandboxes := l.DeadSandboxes > 0 && c.DeadSandboxes >= l.DeadSandboxes
	if !manyExited && !manySandboxes {
		return nil
	}
	share := float64(c.ExitedBytes) / float64(f.Lists.MessageLimit)
	severity := checks.Warning
	if l.ExitedCritical > 0 && max(c.Exited, c.DeadSandboxes) >= l.ExitedCritical || l.SizeCritical > 0 &&
		share >= l.SizeCritical {
		severity = checks.Critical
	}
	e := exitedEvidence(f, c, share)
	addCompleteness(f, &e)
	step := raised(checks.Certain, fromLog(f, &e.For, signsOfRemovals()...))
	switch {
	case !f.Log.SameRuntime:
		Addf(&e.Missing, "why they were not removed: the kubelet's and the runtime's logs were not read")
	case step == checks.Certain:
		Addf(&e.Missing, "why they were not removed: the log of the last %s says nothing of it",
			units.Duration(f.Log.Window))
	}
	cause := newFinding(severity, step, exitedSummary(c, manyExited), e)
	cause.Subject, cause.Related = heapSubjects(c)
	cause.Advise = func(string) []checks.NextStep { return stepsWhenExited(f, c) }
	return cause
}

// mostlyDead reports whether what no longer runs is most of what the runtime holds.
func mostlyDead(f *facts.Facts) bool {
	c := f.Lists.Census
	return 2*(c.Exited+c.DeadSandboxes) > f.Lists.Objects
}

func exitedSummary(c facts.Census, manyExited bool) string {
	what := units.Count(c.Exited, "exited container")
	heaps := c.Containers
	if !manyExited {
		what, heaps = units.Plural(c.DeadSandboxes, "1 dead sandbox",
			units.Number(c.DeadSandboxes)+" dead sandboxes"), c.Sandboxes
	}
	s := what + " pile up"
	if len(heaps) > 0 && heaps[0].Count > 1 && heaps[0].Pod.Name != "" {
		s += fmt.Sprintf(", %s of them of %s", units.Number(heaps[0].Count), heaps[0].Label())
	}
	if c.MostlyNewest() {
		s += "; " + c.NewestOf() + " of its pod and name"
	}
	return s
}

func exitedEvidence(f *facts.Facts, c facts.Census, share float64) checks.Evidence {
	var e checks.Evidence
	running := ""
	if f.Summary != nil && f.Summary.Containers != nil {
		running = ", " + units.Number(f.Summary.Containers.Running) + " running"
	}
	Addf(&e.For, "%s%s, %s dead sandboxes", units.Count(c.Exited, "exited container"), running,
		units.Number(c.DeadSandboxes))
	var rubbish []string
	if c.BeyondNewest > 0 {
		rubbish = append(rubbish, units.Count(c.BeyondNewest, "container")+" beyond the newest of their pod and name")
	}
	if c.OldSandboxes > 0 {
		rubbish = append(rubbish, units.Plural(c.OldSandboxes, "1 dead sandbox",
			units.Number(c.OldSandboxes)+" dead sandboxes")+" beyond the newest of their pod")
	}
	if len(rubbish) > 0 {
		Addf(&e.For, "%s: the kubelet's own garbage collection would be allowed to remove them", units.List(rubbish))
	}
	if c.MostlyNewest() {
		Addf(&e.For, "%s of its pod and name: records of completed pods still in the API, or of deleted pods "+
			"whose removal fails", c.NewestOf())
		Addf(&e.Missing, "whether their pods still exist: the API was not asked")
	}
	for _, h := range c.Containers[:min(len(c.Containers), facts.MostNamed)] {
		if h.Count > 1 {
			Addf(&e.For, "%s of %s", units.Count(h.Count, "exited container"), h.Label())
		}
	}
	if c.ExitedBytes > 0 {
		Addf(&e.For, "their entries fill %s of the kubelet's message limit of %s (%s)", units.Percent(share),
			units.Size(f.Lists.MessageLimit), units.Size(c.ExitedBytes))
	}
	if c.LastHour > 0 {
		Addf(&e.For, "%s of them %s created in the last hour", units.Number(c.LastHour),
			units.Plural(c.LastHour, "was", "were"))
	} else if c.Exited > 0 && len(c.Containers) > 0 {
		Addf(&e.Against, "none of them was created in the last hour: they do not grow now")
	}
	return e
}

// addCompleteness notes lists that are not whole.
func addCompleteness(f *facts.Facts, e *checks.Evidence) {
	m := f.Measurement
	if m.Containers != nil && !m.Containers.Complete {
		Addf(&e.Missing, "part of the container list: the true numbers are higher")
	}
	if m.Sandboxes != nil && !m.Sandboxes.Complete {
		Addf(&e.Missing, "part of the sandbox list: the true numbers are higher")
	}
}

// heapSubjects names the pods under which most has piled up.
func heapSubjects(c facts.Census) (*checks.Subject, []checks.Subject) {
	heaps, kind := c.Containers, facts.KindContainer
	if len(heaps) == 0 || len(c.Sandboxes) > 0 && c.Sandboxes[0].Count > heaps[0].Count {
		heaps, kind = c.Sandboxes, facts.KindSandbox
	}
	var subjects []checks.Subject
	for _, h := range heaps[:min(len(heaps), facts.MostNamed)] {
		if h.Count > 1 && h.Pod.Name != "" {
			subjects = append(subjects, checks.Subject{
				Kind: kind, Name: facts.Clean(h.Name), Namespace: facts.Clean(h.Pod.Namespace), Pod: facts.Clean(h.Pod.Name), PodUID: facts.Clean(h.Pod.UID),
			})
		}
	}
	if len(subjects) == 0 {
		return nil, nil
	}
	return &subjects[0], subjects[1:]
}

func stepsWhenExited(f *facts.Facts, c facts.Census) []checks.NextStep {
	var s Steps
	unit := "kubelet"
	if f.Target.RestartsKubelet {
		unit = f.Target.Unit
	}
	s.Add(checks.TouchesNothing,
		"journalctl --no-pager -u "+unit+" --since -1h | grep -E 'garbage collection failed|Failed to "+
			"(stop|remove)|StopPodSandbox|RemovePodSandbox'",
		"Why are they not removed? Repair that first. StopPodSandbox that fails is nearly always a CNI DEL that fails.")
	s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "exited --watch 60s"),
		"Do they grow, how did they end, and when is the limit reached? Works beyond the limit too.")
	addCleanUp(f, &s, c)
	if c.MostlyNewest() {
		s.Add(checks.TouchesNothing,
			`kubectl get pods -A --field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`, "Which completed pods are still in the API and keep their records here? If there are few, the records are of deleted pods whose removal fails: the kubelet's log says why.")
		addCompletedPods(f, &s, c)
	}
	return s.Done()
}

// addCleanUp adds the clean-up of what is beyond the newest, first as a plan. It also works where the list is over its
// limit, for which crictl is as blind as the kubelet.
func addCleanUp(f *facts.Facts, s *Steps, c facts.Census) {
	var parts []string
	if c.BeyondNewest > 0 {
		parts = append(parts, units.Count(c.BeyondNewest, "container"))
	}
	if c.OldSandboxes > 0 {
		parts = append(parts, units.Plural(c.OldSandboxes, "1 dead sandbox",
			units.Number(c.OldSandboxes)+" dead sandboxes"))
	}
	if len(parts) == 0 {
		return
	}
	what, most := units.List(parts), ""
	if m := f.Measurement; m.Containers != nil && !m.Containers.Complete || m.Sandboxes != nil &&
		!m.Sandboxes.Complete {
		most = " and more"
	}
	s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "gc-exited"),
		fmt.Sprintf("The plan for what is beyond the newest, %s%s: what may go, what stays, and why.", what, most))
	s.Add(checks.TouchesExited, facts.KdiagCommand(f, "gc-exited --yes --audit gc-exited.jsonl"), fmt.Sprintf(
		"Removes %s, as far as the kubelet would be allowed to: oldest first, each looked at right before, no "+
			"faster than the runtime stays quick. "+
			"The newest of each pod and name stays, and so do all logs. Never crictl rm -a.", what+most))
}

// addCompletedPods adds the deletion of completed pods in the namespace that has most of them.
func addCompletedPods(f *facts.Facts, s *Steps, c facts.Census) {
	namespaces, top := map[string]int{}, ""
	for _, h := range c.Containers {
		ns := h.Pod.Namespace
		namespaces[ns] += h.Count
		if namespaces[ns] > namespaces[top] || namespaces[ns] == namespaces[top] && ns < top {
			top = ns
		}
	}
	if !facts.Safe(top) {
		return
	}
	s.Add(checks.TouchesExited,
		fmt.Sprintf(`kubectl delete pods -n %s --field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`,
			top),
		"Only if that list shows these pods and nobody needs them any more: deletes the completed pods of the "+
			"namespace that has most records; their logs go with them, the kubelet then removes the records.")
	s.Add(checks.TouchesNothing, fmt.Sprintf("kubectl get jobs,cronjobs -n %s", top),
		"Set ttlSecondsAfterFinished on Jobs, and lower the history limits of CronJobs, so that it does not come back.")
}

func loggedTooManyExited(in *Incident) *LogFinding {
	tooLarge := in.count(signature.MessageTooLarge) > 0
	codes := []string{signature.ContainerGCFailed, signature.RemoveFailed}
	if in.count(codes...) == 0 || !tooLarge && in.count(signature.RemoveFailed) < 5 {
		return nil
	}
	f := in.finding(objectTier, 0.35, "Dead containers or sandboxes are not removed and pile up.", codes...).
		lacks("how many there are")
	if tooLarge {
		f.raise(0.25, "the lists have grown too large to be sent")
	}
	return f
}
