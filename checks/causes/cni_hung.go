package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// CNIHung is the code of this cause.
const CNIHung = "CNIHung"

func recogniseCNIHung(f *facts.Facts) *Finding {
	status := f.RPC[facts.RPCStatus]
	hangs, old := status.Outcome == facts.Hung, facts.OldProcesses(f, host.RoleCNI, facts.StuckWork)
	if !listsAnswer(f) || !hangs && len(old) == 0 {
		return nil
	}
	var e checks.Evidence
	step, severity := checks.Strong, criticalIf(hangs)
	summary := "Status hangs, the lists answer: a CNI operation holds the runtime's network lock"
	subjects := []checks.Subject{{Kind: "RPC", Name: facts.RPCStatus}}
	if hangs {
		Addf(&e.For, "%v", status.Last())
		addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCVersion, facts.RPCSandboxes, facts.RPCContainers)
		addCalls(f, &e.Against, isHanging, facts.RPCSandboxes, facts.RPCContainers)
		addGaps(f, &e, gapPatience)
	}
	fifos := facts.FIFOs(f)
	cni := f.Seen.CNI.Value // to open a FIFO waits for who writes to it
	odd := hangs && facts.Says(cni.Problem, "not a regular file")
	addIf(odd, &e.For, "%s in %s, which the runtime opens", facts.Clean(cni.Problem), facts.Clean(cni.ConfDir))
	if len(old) > 0 {
		step, subjects = checks.Certain, nil
		summary = "CNI plugin " + working(f, old[0]) + andMore(len(old)-1, "plugin")
		for _, l := range f.PluginLocks {
			subjects = append(subjects, facts.ProcessSubject(f, holderOf(l), host.Owner{}))
			Addf(&e.For, "%s holds the lock of %s, which a plugin has open", lockHolder(l), facts.Clean(l.Path))
		}
		if len(f.PluginLocks) > 0 {
			summary += "; " + lockHolder(f.PluginLocks[0]) + " holds the lock " + facts.Clean(f.PluginLocks[0].Path)
		}
		summary += ifElse(hangs, ", and Status hangs behind it", "")
	} else if f.HostMissing == "" && !f.Target.Simulated && len(fifos) == 0 {
		Addf(&e.Against, "no CNI plugin on this host has been running for more than %s", facts.StuckWork)
	}
	for _, p := range old {
		Addf(&e.For, "CNI plugin %s", working(f, p))
		addWaits(f, &e, p)
		subjects = append(subjects, workSubject(f, p))
		severity = ifElse(facts.AgeOf(f, p) >= facts.LastingWork, checks.Critical, severity)
	}
	holds := stackEvidence(f, &e, "", waitingFor("cni"))
	if hangs && len(holds) == 0 && f.Stacks.Taken {
		var other checks.Evidence
		stackEvidence(f, &other, facts.RPCStatus, serving(facts.RPCStatus))
		e.Against = append(e.Against, other.For[:min(len(other.For), 1)]...)
		e.Missing = append(e.Missing, other.Missing...)
	}
	if ends := endsOf(holds); len(old) == 0 && len(ends) > 0 {
		subjects = ends
	}
	for i, w := range top(fifos) {
		step, subjects = checks.Certain, slices.Insert(subjects, i, fifoSubject(w))
		e.For = slices.Insert(e.For, i, fifoLine(w))
	}
	if len(fifos) > 0 && hangs && len(old) == 0 {
		summary = "Status hangs, the lists answer: " + fifoLine(fifos[0])
	}
	addGaps(f, &e, gapHost)
	agrees := hangs && fromLog(f, &e.For, calledDown)
	if now := f.Log.PLEGNow; hangs && now != nil && f.Log.SameRuntime {
		agrees = false
		Addf(&e.Against, "PLEG is not healthy either, %s: more than Status fails", facts.SinceText(f, *now.Start))
	}
	agrees = fromLog(f, &e.For, signOfCNI) || agrees || len(holds) > 0
	step = raised(step, agrees)
	effect := workEffect(f, old)
	if hangs {
		effect = slices.Insert(effect, 0, noStatus)
	}
	x := newFinding(severity, step, summary, e, subjects...).affects(effect...)
	return x.advise(func(s *Steps, _ string) {
		adviseFIFO(s, fifos)
		s.lookIf(odd && len(fifos) == 0 && facts.SafePath.MatchString(cni.ConfDir), "ls -lA "+cni.ConfDir,
			"Find the file that is none: to open a FIFO waits for a writer. Move it away, then restart the runtime")
		if len(old)+len(fifos) == 0 {
			addCapture(f, s)
			s.Look("ps -eo pid,ppid,stat,etime,comm --sort=-etime | grep -iE "+
				"'cni|calico|cilium|flannel|bridge|loopback|multus|weave|ipam'",
				"Look for a process of a CNI plugin that is older than 30s")
		}
		adviseLocks(s, f.PluginLocks)
		for _, p := range top(old) {
			if len(f.PluginLocks) == 0 { // else the next one waits as well
				adviseWork(f, s, p)
			}
		}
		s.lookPods("Check the network add-on's pod: plugins wait for its daemon; deleting that pod restarts it")
		if hangs {
			addRestart(f, s)
		}
	})
}

// loggedCNIHung: the runtime's status takes CNI's lock, so a hung plugin makes the kubelet call the runtime down
// while lists answer.
func loggedCNIHung(in *Incident) *Finding {
	if in.statusAlone() {
		return in.finding(checks.Fair, "Status hangs while the lists answer, as when a CNI plugin holds its lock.",
			signature.SanityCheckFailed, signature.CNIFailed)
	}
	if in.count(signature.CNIFailed) == 0 {
		return nil
	}
	f := in.finding(checks.Weak, "CNI plugins fail or hang: pods cannot be set up or torn down.", signature.CNIFailed)
	if in.calls(isLate, signature.CNIFailed) == 0 {
		return f.unlikely("they fail at once, so none holds a lock for long")
	}
	f.Step = checks.Fair
	f.supports("they miss their deadline")
	if in.down && in.lists == 0 {
		f.Step = checks.Strong
		f.supports("the status hangs and no list fails, as when CNI's lock is held")
	}
	addIf(in.listsMissed > 0, &f.Evidence.Against, "the lists hang too, and these do not wait for CNI")
	return f
}
