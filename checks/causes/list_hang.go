package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// ListHang is the code of this cause.
const ListHang = "ListHang"

func recogniseListHang(f *facts.Facts) *Finding {
	lists, hungs := f.Calls.HungLists, mainFirst(f.Sweep.Hung)
	someAnswer := f.Calls.AnyList || f.RPC[facts.RPCStatus].Outcome.Alive() || f.Sweep.Answered > 0
	if !talks(f) || f.Pattern.Crawls || len(lists) == 0 || !someAnswer {
		return nil
	}
	var e checks.Evidence
	for _, r := range lists {
		Addf(&e.For, "%v", r.Last())
	}
	addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCSandboxes, facts.RPCContainers, facts.RPCVersion, facts.RPCStatus)
	step, why := ifElse(len(lists) == 2, checks.Fair, checks.Strong), "a lock that it needs is held"
	what := ifElse(len(lists) == 2, "both lists hang", lists[0].Name+" hangs")
	subjects := []checks.Subject{{Kind: "RPC", Name: lists[0].Name}}
	old := facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)
	filters := []holdFilter{serving(lists[0].Name)}
	if len(hungs) > 0 {
		filters = []holdFilter{filters[0].inPod(hungs[0]), filters[0]}
	}
	holds := stackEvidence(f, &e, lists[0].Name, filters...)
	if len(hungs) > 0 {
		objectEvidence(f, &e, hungs)
		step = ifElse(len(lists) == 1 && lists[0].Name == facts.RPCContainers, checks.Certain, step)
		subjects = objectSubjects(f, hungs)
		why = textf("the status lock of %v is held", hungs[0])
		if len(holds) > 0 && holds[0].Call != "" {
			why += " by " + facts.Clean(holds[0].Call)
		}
	} else {
		if len(old) > 0 { // the oldest: the others may well wait behind it
			e.For = append(e.For, atWork(f, old[0]))
			subjects = []checks.Subject{facts.ProcessSubject(f, old[0], host.Owner{})}
			why = "probably behind " + textf("%v, running for %s", old[0], facts.AgeOf(f, old[0]))
		}
		if culprits := endsOf(holds); len(culprits) > 0 {
			subjects, why = culprits, textf("%s (pid %s) holds it up", culprits[0].Name, culprits[0].ID)
		}
		asked := slices.ContainsFunc(f.Sweep.Made,
			func(i plegbench.Inspection) bool { return i.Kind == facts.KindContainer })
		addIf(asked, &e.Against, "no ContainerStatus hangs: none of these containers holds the lock")
		addIf(!asked, &e.Missing, "which container holds the lock: without the list, none was queried")
	}
	if f.Calls.Impatient {
		why = textf("no reply in %s; a lock is held, or the list is slow", lists[0].Last().Elapsed)
	}
	addGaps(f, &e, gapHost, gapPatience, gapDeadline, gapSweep)
	agrees := logOf(f, &e, relistsFail)
	agrees = len(hungs) > 0 && logOfObject(f, &e, hungs) || agrees
	step, what = raised(patientStep(f, step), agrees || len(holds) > 0), what+" while other calls answer: "+why
	found := newFinding(checks.Critical, step, what, e, subjects...).affects(noRelist(f))
	return found.advise(func(s *Steps, _ string) {
		addCapture(f, s)
		if len(hungs) > 0 {
			addProcesses(f, s, hungs[0])
			addDeletePod(f, s, hungs[0].Pod, "")
		} else {
			if len(old) > 0 {
				addKill(f, s, old[0], "its container")
			}
			s.Look("ps -eo pid,ppid,stat,wchan:32,etime,comm --sort=-etime | grep -E 'runc|crun'",
				"Look for a create, start, kill, update or delete older than 10s: it probably holds the lock")
		}
		addRestart(f, s)
	})
}

func loggedListHang(in *Incident) *Finding {
	if in.listsMissed == 0 || in.count(signature.MessageTooLarge) > 0 {
		return nil
	}
	f := in.finding(checks.Strong, "The lists of pods or containers hang, as when one container's lock is held.",
		signature.RelistFailed, signature.ListFailed)
	switch {
	case in.down || in.statusMissed > 0:
		return f.unlikely("the runtime's Status hangs too, so all of it hangs")
	case (in.Recovered || in.moving || len(in.Relists) > 0) && in.lateLists() <= 1:
		f.Step = checks.Fair
		Addf(&f.Evidence.Against, "a list missed its deadline once; later ones came back")
		return f
	}
	return f.supports("the kubelet does not call the runtime down").lacks("which of the two lists hangs")
}
