package causes

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// ShimStuck is the code of this cause.
const ShimStuck = "ShimStuck"

func recogniseShimStuck(f *facts.Facts) *Finding {
	if !f.Seen.Tasks.OK {
		return nil // kdiag was not asked to look at the host
	}
	shims := f.Shims
	stopped, blocked, gap, work := shims.Stopped, shims.Blocked, shims.Culprits, shims.Working
	if !talks(f) {
		work = nil // what a daemon that hangs waits for is its evidence
	}
	var e checks.Evidence
	var subjects []checks.Subject
	add := func(s checks.Subject, format string, args ...any) {
		Addf(&e.For, format, args...)
		subjects = append(subjects, s)
	}
	step, severity := checks.Strong, checks.Warning
	for _, p := range work {
		add(workSubject(f, p), "%s", working(f, p))
		addWaits(f, &e, p)
		step = checks.Certain
		severity = ifElse(facts.AgeOf(f, p) >= facts.LastingWork, checks.Critical, severity)
	}
	for _, p := range shims.Mute {
		add(workSubject(f, p), "%v was started for %s %s ago and has started nothing: the runtime waits for it", p,
			workFor(f, p), facts.AgeOf(f, p))
		addWaits(f, &e, p)
		severity = ifElse(facts.AgeOf(f, p) >= facts.LastingWork, checks.Critical, severity)
	}
	for _, p := range stopped {
		add(facts.ProcessSubject(f, p, facts.OwnerOf(p)), "%s is stopped",
			processOwned(f, p.PID, p.Name, facts.OwnerOf(p)))
		known := facts.IsListed(f, p.ObjectID) || facts.IsNamedBad(f, p.ObjectID)
		tied := known || p.Address != "" && facts.IsAsked(f, p.Address)
		step = ifElse(known, checks.Certain, ifElse(tied || len(subjects) > 1, step, checks.Weak))
		addIf(!tied, &e.Missing, "whether this runtime's lists hold what %v serves", p)
	}
	for _, p := range shims.Silent {
		add(facts.ProcessSubject(f, p, facts.OwnerOf(p)), "%s %s",
			processOwned(f, p.PID, p.Name, facts.OwnerOf(p)), silentShim)
	}
	for _, p := range blocked {
		add(facts.ProcessSubject(f, p, facts.OwnerOf(p)), "%s does not run: all its %d threads are in uninterruptible sleep",
			processOwned(f, p.PID, p.Name, facts.OwnerOf(p)), p.Threads)
		tasks := f.Seen.Tasks.Value.Blocked
		i := slices.IndexFunc(tasks, func(t host.BlockedTask) bool { return t.PID == p.PID })
		e.For = append(e.For, TaskLine(f, tasks[i]))
		step = checks.Certain
	}
	for _, s := range shims.Gone {
		add(s, "%s is %s by the runtime's list, and no process of it lives", facts.LabelOf(s.Kind, s.ID, s.Namespace,
			s.Pod, s.Name), ifElse(s.Kind == facts.KindSandbox, "ready", "running"))
	}
	for _, s := range shims.Unwatched {
		add(s, "%s runs without its conmon, which has ended", facts.LabelOf(s.Kind, s.ID, s.Namespace, s.Pod, s.Name))
		step = checks.Certain
	}
	for _, p := range gap.Orphans {
		add(facts.ProcessSubject(f, p, facts.OwnerOf(p)), "%v serves %s, which the runtime does not list: a leftover", p,
			facts.ShortID(p.ObjectID))
		step = ifElse(len(subjects) == 1 && !facts.IsNamedBad(f, p.ObjectID), checks.Fair, step)
	}
	for _, b := range gap.Shimless {
		o := host.Owner{ObjectID: b.ID}
		s := facts.OwnedBy(f, o)
		s.Kind, s.ID = facts.KindSandbox, b.ID
		add(s, "the shim of %s is gone, and the runtime calls its sandbox ready", facts.OwnerLabel(f, o))
	}
	if len(subjects) == 0 {
		return nil
	}
	summary := e.For[0]
	if len(work) > 0 {
		chain := chainOf(f, work[0])
		for _, w := range fifosOf(f, chain[len(chain)-1]) {
			summary += " and waits for the other end of the FIFO " + facts.Clean(w.Path)
		}
	}
	summary += andMore(len(subjects)-1, ifElse(len(work) > 0, "process", "shim"))
	e.For = facts.Head(e.For, facts.MaxRelated)
	holdsStart := shimHoldsStart(f)
	if holdsStart {
		severity = checks.Critical
		summary += "; the start of the runtime waits for " + ifElse(len(subjects) == 1, "it", "them")
		Addf(&e.For, "nothing listens on %s, and a daemon starts: it asks every shim first", f.Target.SocketPath)
	}
	holds := stackEvidence(f, &e, "", endsAt(slices.Concat(stopped, blocked, work)...))
	disagree := len(gap.Orphans)+len(gap.Shimless) == len(subjects)
	addIf(disagree, &e.Missing, "the shims' own lists (ctr -n k8s.io tasks ls)")
	x := newFinding(severity, raised(step, len(holds) > 0), summary, e, subjects...).advise(func(s *Steps, _ string) {
		adviseShims(f, s)
		if disagree {
			AddService(f, s)
			addRestart(f, s)
		}
	})
	if holdsStart {
		return x.affects(noStatus)
	}
	x.Effect = shimsEffect(f, work)
	return x
}

// shimsEffect returns what becomes of the pods of the shims.
func shimsEffect(f *facts.Facts, work []host.Process) []string {
	effect := workEffect(f, work)
	for _, p := range top(f.Shims.Mute) {
		effect = append(effect, besides(f, workFor(f, p)+" cannot start")...)
	}
	for _, p := range top(slices.Concat(f.Shims.Stopped, f.Shims.Blocked)) {
		effect = append(effect, besides(f, cmp.Or(workFor(f, p), "its pod")+" cannot be changed or stopped")...)
	}
	for _, s := range top(f.Shims.Unwatched) {
		effect = append(effect, besides(f, textf("the end of %s will not be noticed, and its exit code is lost",
			facts.LabelOf(s.Kind, s.ID, s.Namespace, s.Pod, s.Name)))...)
	}
	return effect
}

// adviseShims adds the steps that free the pods.
func adviseShims(f *facts.Facts, s *Steps) {
	for _, p := range top(f.Shims.Working) {
		adviseWork(f, s, p)
	}
	for _, p := range top(f.Shims.Mute) {
		addStack(s, p, workFor(f, p))
		s.Add(checks.TouchesProcess, textf("kill -KILL %d", p.PID), textf("End %v, which has no containers yet", p))
	}
	for _, p := range top(f.Shims.Stopped) {
		s.Look(textf("grep -E 'State|TracerPid' /proc/%d/status", p.PID), "Check whether a debugger holds it")
		addKill(f, s, p, "its pod")
	}
	for _, p := range top(f.Shims.Silent) {
		what := cmp.Or(facts.OwnerLabel(f, facts.OwnerOf(p)), "its pod")
		addStack(s, p, what)
		addKill(f, s, p, what)
	}
	for _, p := range top(f.Shims.Blocked) {
		addStack(s, p, cmp.Or(facts.OwnerLabel(f, facts.OwnerOf(p)), "its pod"))
		deletePodOf(f, s, facts.OwnedBy(f, facts.OwnerOf(p)))
	}
	for _, o := range top(f.Shims.Gone) {
		inspect := ifElse(o.Kind == facts.KindSandbox, "inspectp ", "inspect ") + o.ID + " | grep -m1 '\"pid\"'"
		s.lookIf(facts.Safe(o.ID), facts.CrictlCommand(f, inspect),
			"Read the pid that the runtime has for it: there is no such process")
		deletePodOf(f, s, o)
	}
	for _, o := range top(f.Shims.Unwatched) {
		s.lookIf(facts.Safe(o.ID), "pgrep -af 'conmon.*"+o.ID+"'", "Check that no conmon has this container")
		deletePodOf(f, s, o)
	}
	for _, p := range top(f.Shims.Culprits.Orphans) {
		if p.PID > 1 {
			s.Look(textf("ps -o pid,stat,etime,comm --ppid %d", p.PID),
				"Check what it still runs. Containers of nerdctl or ctr are not in the list either, and are fine")
			s.Add(checks.TouchesPod, textf("kill -KILL %d", p.PID), "End it only if nothing of it is needed")
		}
	}
	for _, b := range top(f.Shims.Culprits.Shimless) {
		s.lookIf(facts.Safe(b.ID), facts.CrictlCommand(f, "inspectp "+b.ID),
			"Query its shim; it is gone if the error is ttrpc: closed")
		addDeletePod(f, s, facts.PodOf(b.Pod), "Delete the pod: it is dead already, and a new one takes its place")
	}
}

// deletePodOf adds the deletion of the pod of a subject.
func deletePodOf(f *facts.Facts, s *Steps, o checks.Subject) {
	addDeletePod(f, s, crictl.Pod{Namespace: o.Namespace, Name: o.Pod, UID: o.PodUID}, "")
}

func loggedShimStuck(in *Incident) *Finding {
	codes := []string{signature.ShimUnresponsive, signature.KillFailed, signature.ExitEventFailed, signature.StopFailed}
	late := in.calls(isLate, signature.StopFailed, signature.RemoveFailed, signature.ExecFailed)
	shim, process := in.count(codes[0]) > 0, in.count(codes[1:3]...) > 0
	if !shim && !process && late == 0 {
		return nil
	}
	f := in.finding(checks.Fair, "A container's shim or its process does not react.", codes...)
	switch {
	case shim && process:
		f.Step = checks.Strong
	case !shim && !process:
		f.Step = checks.Weak
		f.lacks("records of the shim itself")
	}
	addIf(in.listsMissed > 0 && in.down, &f.Evidence.Against,
		"the whole runtime hangs; stopping containers fails in its wake")
	return f
}
