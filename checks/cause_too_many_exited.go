package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/units"
)

// topHeaps is how many of the largest heaps a report names.
const topHeaps = 3

func tooManyExited() Definition {
	return Definition{
		Code:  codeTooManyExited,
		Title: "dead containers or sandboxes pile up",
		Means: "The runtime holds far more exited containers or dead sandboxes than a kubelet keeps. Each costs an entry in every list, which the kubelet asks " +
			"for more than once a second, and each is inspected once after a kubelet restart. At about eleven to eighteen thousand the list passes gRPC's " +
			"limit of 16 MiB; from then on each relist fails at once, and so does the kubelet's own garbage collection, which needs the same list. It " +
			"cannot get out of that by itself.\n\n" +
			"The kubelet keeps the newest dead container of each name in each pod, and the newest sandbox of each pod that still exists. What is beyond " +
			"that is rubbish: garbage collection was blind, was too slow, failed to remove (network teardown, busy mounts), or the containers are " +
			"not the kubelet's. If little is beyond it, these are records of completed pods that are still in the API, kept by design, or of deleted pods whose removal fails: a CNI DEL that fails keeps the sandbox (StopPodSandbox), and with it the containers.",
		Confirm: []string{
			"crictl ps -a --state exited -q | wc -l, against crictl ps -q | wc -l.",
			"The kubelet's log: \"Container garbage collection failed\", \"Failed to remove sandbox\", \"Failed to stop sandbox before removing\", \"StopPodSandbox from runtime service failed\" (a CNI DEL that fails).",
			"kubectl get pods -A --field-selector status.phase=Succeeded,spec.nodeName=NODE: are there thousands of completed pods?",
		},
		Fix: []string{
			"Repair why removal fails first, or they come back: CNI teardown, busy mounts, a slow disk.",
			"Beyond the newest: kdiag gc-exited shows what the kubelet's own collector would be allowed to remove, and removes it with --yes; the newest of each pod and name stays, for its restart count and logs.",
			"Completed pods: delete them in the API; set ttlSecondsAfterFinished on Jobs and lower the history limits of CronJobs.",
			"A pod that restarts every few seconds: repair it, or delete it.",
			"Never crictl rm -a: it also removes the newest dead containers, which hold restart counts and show that init containers have run. Older kubelets " +
				"then run init containers again. Hundreds of removals at a time can also drown the disk that the node still needs.",
		},
		Mistaken: "RuntimeSlow: lists of fewer than 5,000 objects are never slow because of their number. ListTooLarge with large entries: a few thousand " +
			"containers with big annotations need smaller annotations, not fewer containers. A CrashLoopBackOff alone does not pile up: one dead container is kept.",
		Sources: []string{
			"kubernetes/kubernetes#131407, #134750, #64507, #106714",
			"kubelet: pkg/kubelet/kuberuntime/kuberuntime_gc.go (what is kept)",
			"KEP-5825 (bytes per entry, where 16 MiB is reached); kubernetes/kubernetes#86531, #96572 (removed init containers)",
		},
		RootOf:    []string{codeListTooLarge, codeRelistOverloaded},
		recognise: recogniseTooManyExited,
	}
}

func recogniseTooManyExited(f *Facts) *Cause {
	if f.Measurement == nil {
		return nil
	}
	c := f.takeCensus()
	l := f.Limits
	manyExited := l.ExitedWarning > 0 && c.Exited >= l.ExitedWarning
	manySandboxes := l.DeadSandboxes > 0 && c.DeadSandboxes >= l.DeadSandboxes
	if !manyExited && !manySandboxes {
		return nil
	}
	share := float64(c.ExitedBytes) / float64(f.messageLimit())
	severity := Warning
	if l.ExitedCritical > 0 && max(c.Exited, c.DeadSandboxes) >= l.ExitedCritical || l.SizeCritical > 0 && share >= l.SizeCritical {
		severity = Critical
	}
	e := f.exitedEvidence(c, share)
	f.addCompleteness(&e)
	step := raised(Certain, f.hearRemovals(&e))
	switch {
	case !f.hearsKubelet():
		addf(&e.Missing, "why they were not removed: the kubelet's and the runtime's logs were not read")
	case step == Certain:
		addf(&e.Missing, "why they were not removed: the log of the last %s says nothing of it", units.Duration(f.journalWindow()))
	}
	cause := newCause(codeTooManyExited, severity, step, exitedSummary(c, manyExited), e)
	cause.Subject, cause.Related = heapSubjects(c)
	cause.NextSteps = f.stepsWhenExited(c)
	return cause
}

// mostlyNewest reports whether most dead containers are the newest of their pod and name, which the kubelet keeps as
// long as the pod exists. Whether it does, no list of the runtime says.
func (c census) mostlyNewest() bool {
	return c.BeyondNewest*2 < c.Exited && c.OldSandboxes*2 < max(c.DeadSandboxes, 1)
}

// newestOf begins the sentence that says so.
func (c census) newestOf() string {
	if c.BeyondNewest == 0 && c.OldSandboxes == 0 {
		return "each is the newest"
	}
	return fmt.Sprintf("each but %s is the newest", units.Number(c.BeyondNewest+c.OldSandboxes))
}

// mostlyDead reports whether what no longer runs is most of what the runtime holds.
func (f *Facts) mostlyDead() bool {
	c := f.takeCensus()
	return 2*(c.Exited+c.DeadSandboxes) > f.objects()
}

func exitedSummary(c census, manyExited bool) string {
	what := units.Count(c.Exited, "exited container")
	heaps := c.Containers
	if !manyExited {
		what, heaps = verb(c.DeadSandboxes, "1 dead sandbox", units.Number(c.DeadSandboxes)+" dead sandboxes"), c.Sandboxes
	}
	s := what + " pile up"
	if len(heaps) > 0 && heaps[0].Count > 1 && heaps[0].Pod.Name != "" {
		s += fmt.Sprintf(", %s of them of %s", units.Number(heaps[0].Count), heaps[0].label())
	}
	if c.mostlyNewest() {
		s += "; " + c.newestOf() + " of its pod and name"
	}
	return s
}

func (f *Facts) exitedEvidence(c census, share float64) Evidence {
	var e Evidence
	running := ""
	if f.Summary != nil && f.Summary.Containers != nil {
		running = ", " + units.Number(f.Summary.Containers.Running) + " running"
	}
	addf(&e.For, "%s%s, %s dead sandboxes", units.Count(c.Exited, "exited container"), running, units.Number(c.DeadSandboxes))
	var rubbish []string
	if c.BeyondNewest > 0 {
		rubbish = append(rubbish, units.Count(c.BeyondNewest, "container")+" beyond the newest of their pod and name")
	}
	if c.OldSandboxes > 0 {
		rubbish = append(rubbish, verb(c.OldSandboxes, "1 dead sandbox", units.Number(c.OldSandboxes)+" dead sandboxes")+" beyond the newest of their pod")
	}
	if len(rubbish) > 0 {
		addf(&e.For, "%s: the kubelet's own garbage collection would be allowed to remove them", units.List(rubbish))
	}
	if c.mostlyNewest() {
		addf(&e.For, "%s of its pod and name: records of completed pods still in the API, or of deleted pods whose removal fails", c.newestOf())
		addf(&e.Missing, "whether their pods still exist: the API was not asked")
	}
	for _, h := range c.Containers[:min(len(c.Containers), topHeaps)] {
		if h.Count > 1 {
			addf(&e.For, "%s of %s", units.Count(h.Count, "exited container"), h.label())
		}
	}
	if c.ExitedBytes > 0 {
		addf(&e.For, "their entries fill %s of the kubelet's message limit of %s (%s)", units.Percent(share), units.Size(f.messageLimit()), units.Size(c.ExitedBytes))
	}
	if c.LastHour > 0 {
		addf(&e.For, "%s of them %s created in the last hour", units.Number(c.LastHour), verb(c.LastHour, "was", "were"))
	} else if c.Exited > 0 && len(c.Containers) > 0 {
		addf(&e.Against, "none of them was created in the last hour: they do not grow now")
	}
	return e
}

// addCompleteness notes lists that are not whole.
func (f *Facts) addCompleteness(e *Evidence) {
	m := f.Measurement
	if m.Containers != nil && !m.Containers.Complete {
		addf(&e.Missing, "part of the container list: the true numbers are higher")
	}
	if m.Sandboxes != nil && !m.Sandboxes.Complete {
		addf(&e.Missing, "part of the sandbox list: the true numbers are higher")
	}
}

// heapSubjects names the pods under which most has piled up.
func heapSubjects(c census) (*Subject, []Subject) {
	heaps, kind := c.Containers, kindContainer
	if len(heaps) == 0 || len(c.Sandboxes) > 0 && c.Sandboxes[0].Count > heaps[0].Count {
		heaps, kind = c.Sandboxes, kindSandbox
	}
	var subjects []Subject
	for _, h := range heaps[:min(len(heaps), topHeaps)] {
		if h.Count > 1 && h.Pod.Name != "" {
			subjects = append(subjects, Subject{
				Kind: kind, Name: clean(h.Name), Namespace: clean(h.Pod.Namespace), Pod: clean(h.Pod.Name), PodUID: clean(h.Pod.UID),
			})
		}
	}
	if len(subjects) == 0 {
		return nil, nil
	}
	return &subjects[0], subjects[1:]
}

func (f *Facts) stepsWhenExited(c census) []NextStep {
	var s steps
	unit := "kubelet"
	if f.restartsKubelet() {
		unit = f.unit()
	}
	s.add(TouchesNothing, "journalctl --no-pager -u "+unit+" --since -1h | grep -E 'garbage collection failed|Failed to (stop|remove)|StopPodSandbox|RemovePodSandbox'",
		"Why are they not removed? Repair that first. StopPodSandbox that fails is nearly always a CNI DEL that fails.")
	s.add(TouchesNothing, f.kdiagCommand("exited --watch 60s"), "Do they grow, how did they end, and when is the limit reached? Works beyond the limit too.")
	f.addCleanUp(&s, c)
	if c.mostlyNewest() {
		s.add(TouchesNothing, `kubectl get pods -A --field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`, "Which completed pods are still in the API and keep their records here? If there are few, the records are of deleted pods whose removal fails: the kubelet's log says why.")
		f.addCompletedPods(&s, c)
	}
	return s.done()
}

// addCleanUp adds the clean-up of what is beyond the newest, first as a plan. It also works where the list is over its
// limit, for which crictl is as blind as the kubelet.
func (f *Facts) addCleanUp(s *steps, c census) {
	var parts []string
	if c.BeyondNewest > 0 {
		parts = append(parts, units.Count(c.BeyondNewest, "container"))
	}
	if c.OldSandboxes > 0 {
		parts = append(parts, verb(c.OldSandboxes, "1 dead sandbox", units.Number(c.OldSandboxes)+" dead sandboxes"))
	}
	if len(parts) == 0 {
		return
	}
	what, most := units.List(parts), ""
	if m := f.Measurement; m.Containers != nil && !m.Containers.Complete || m.Sandboxes != nil && !m.Sandboxes.Complete {
		most = " and more"
	}
	s.add(TouchesNothing, f.kdiagCommand("gc-exited"), fmt.Sprintf("The plan for what is beyond the newest, %s%s: what may go, what stays, and why.", what, most))
	s.add(TouchesExited, f.kdiagCommand("gc-exited --yes --audit gc-exited.jsonl"), fmt.Sprintf(
		"Removes %s, as far as the kubelet would be allowed to: oldest first, each looked at right before, no faster than the runtime stays quick. "+
			"The newest of each pod and name stays, and so do all logs. Never crictl rm -a.", what+most))
}

// addCompletedPods adds the deletion of completed pods in the namespace that has most of them.
func (f *Facts) addCompletedPods(s *steps, c census) {
	namespaces, top := map[string]int{}, ""
	for _, h := range c.Containers {
		ns := h.Pod.Namespace
		namespaces[ns] += h.Count
		if namespaces[ns] > namespaces[top] || namespaces[ns] == namespaces[top] && ns < top {
			top = ns
		}
	}
	if !safe(top) {
		return
	}
	s.add(TouchesExited, fmt.Sprintf(`kubectl delete pods -n %s --field-selector status.phase=Succeeded,spec.nodeName="$(hostname)"`, top),
		"Only if that list shows these pods and nobody needs them any more: deletes the completed pods of the namespace that has most records; their logs go with them, the kubelet then removes the records.")
	s.add(TouchesNothing, fmt.Sprintf("kubectl get jobs,cronjobs -n %s", top), "Set ttlSecondsAfterFinished on Jobs, and lower the history limits of CronJobs, so that it does not come back.")
}
