package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// ImageServiceHung is the code of this cause.
const ImageServiceHung = "ImageServiceHung"

func recogniseImageServiceHung(f *facts.Facts) *Finding {
	if !listsAnswer(f) {
		return nil
	}
	var e checks.Evidence
	severity, step := checks.Critical, checks.Certain
	names, summary := addCalls(f, &e.For, isHanging, facts.RPCImages, facts.RPCImageFs), ""
	switch {
	case len(names) == 0: // errors blind the kubelet as a hang does, but nothing waits for them
		names = addCalls(f, &e.For, isFailing, facts.RPCImages, facts.RPCImageFs)
		if len(names) == 0 {
			return nil
		}
		severity, step = checks.Warning, checks.Strong
		summary = units.List(names) + " failed: image garbage collection and disk eviction do not work"
		Addf(&e.Against, "the calls fail and do not hang: no lock is held")
	case f.Pattern.OnlyImageList && len(f.FileLocks) > 0: // every call that starts something needs them as well
		summary = textf("ListImages hangs: %s has locked %s, so no container is created and no image pulled",
			lockHolder(f.FileLocks[0]), facts.Clean(f.FileLocks[0].Path))
	case f.Pattern.OnlyImageList:
		severity, step = checks.Warning, checks.Strong
		summary = "ListImages hangs while ImageFsInfo answers: unused images stay, and pulls may hang as well"
	default:
		summary = units.List(names) + ifElse(len(names) == 1, " hangs", " hang") +
			", while the lists answer: no image is pulled, the disk is not watched"
	}
	if f.RPC[names[0]].Outcome == facts.Hung {
		addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		if len(f.FileLocks) == 0 {
			addCalls(f, &e.Against, facts.Outcome.Alive, facts.RPCImages, facts.RPCImageFs)
		}
		addCalls(f, &e.Against, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		addGaps(f, &e, gapPatience)
		holds := stackEvidence(f, &e, names[0], serving(names...))
		for _, l := range f.FileLocks {
			Addf(&e.For, "%s holds the lock of %s, which %s has open", lockHolder(l), facts.Clean(l.Path), f.Target.Daemon.Label)
		}
		addIf(len(holds)+len(f.FileLocks) == 0, &e.Missing,
			"what holds the image store: snapshotters and pulls were not checked")
		step = raised(step, fromLog(f, &e.For, signsOfImages...) || len(holds) > 0)
	}
	var subjects []checks.Subject
	for _, l := range f.FileLocks {
		s := facts.ProcessSubject(f, holderOf(l), host.Owner{})
		if !slices.ContainsFunc(subjects, func(o checks.Subject) bool { return o.ID == s.ID }) {
			subjects = append(subjects, s)
		}
	}
	for _, name := range names {
		subjects = append(subjects, checks.Subject{Kind: "RPC", Name: name})
	}
	effect := "kubelet: Ready" + ifElse(severity == checks.Critical, ", but creates no container"+
		ifElse(f.Pattern.OnlyImageList, "", " and watches no disk"), "")
	return newFinding(severity, step, summary, e, subjects...).affects(effect).advise(func(s *Steps, _ string) {
		addCapture(f, s)
		again := ifElse(names[0] == facts.RPCImages, "images -q", "imagefsinfo")
		s.Look(facts.CrictlCommand(f, again), "Query it once more, with a longer timeout")
		adviseLocks(s, f.FileLocks)
		s.Look("systemctl list-units --no-pager '*snapshotter*' '*stargz*' '*nydus*'",
			"List remote snapshotters; restart a broken one before the runtime")
		AddDisk(f, s, "Check for a full disk under the image store")
		s.cordon()
		addRestart(f, s)
	})
}

// holderOf is the process that holds a lock.
func holderOf(l host.FileLock) host.Process {
	return host.Process{PID: l.PID, Name: l.Name, State: l.State}
}

// lockHolder names the process that holds a lock.
func lockHolder(l host.FileLock) string { return facts.ProcessLabel(holderOf(l)) }

// adviseLocks adds the steps that free locks.
func adviseLocks(s *Steps, locks []host.FileLock) {
	for _, l := range locks {
		s.Look(textf("ps -o pid,ppid,user,lstart,stat,comm -p %d", l.PID), "Find out what holds the lock, and for how long")
		if p := holderOf(l); facts.IsStopped(&p) {
			s.resume(p)
		} else {
			s.Add(checks.TouchesProcess, textf("kill %d", l.PID), textf("End %s, if its work can be lost", lockHolder(l)))
		}
	}
}
