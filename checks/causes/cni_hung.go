package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// CNIHung is the code of this cause.
const CNIHung = "CNIHung"

var cniHung = Definition{
	Code: CNIHung,
	Roots: []Root{
		{Code: IOStall, When: diskStands},
		{Code: TaskStuck, When: pluginTaskStuck},
		{Code: KernelHung},
	},
	Recognise: recogniseCNIHung,
	FromLog:   loggedCNIHung,
}

func recogniseCNIHung(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Pattern.Hang != facts.HangNone || !f.Calls.AnyList ||
		f.RPC[facts.RPCVersion].Outcome == facts.Hung {
		return nil
	}
	statusHangs := f.RPC[facts.RPCStatus].Outcome == facts.Hung
	old := facts.OldProcesses(f, host.RoleCNI, f.Limits.CNIPluginTooLong)
	if !statusHangs && len(old) == 0 {
		return nil
	}
	var e checks.Evidence
	severity, step := checks.Critical, checks.Strong
	summary := "Status hangs while the lists answer: a CNI operation holds the runtime's network lock"
	if statusHangs {
		Addf(&e.For, "%s", facts.CallLine(f.RPC[facts.RPCStatus].Last()))
		addCalls(f, &e.For, isAlive, facts.RPCVersion, facts.RPCSandboxes, facts.RPCContainers)
		addCalls(f, &e.Against, isHanging, facts.RPCSandboxes, facts.RPCContainers)
		missingPatience(f, &e)
	} else {
		severity = checks.Warning
		if r := f.RPC[facts.RPCStatus]; r.Outcome.Alive() {
			Addf(&e.Against, "%s: the runtime's network lock is not held", facts.CallLine(r.Last()))
		}
	}
	for _, p := range old {
		Addf(&e.For, "CNI plugin %s has been at work for %s (%s)", facts.ProcessLabel(p),
			units.Duration(facts.AgeOf(f, p)), facts.StateOf(p))
	}
	missingHost(f, &e)
	if len(old) > 0 {
		step = checks.Certain
		summary = fmt.Sprintf("CNI plugin %s has been at work for %s", facts.ProcessLabel(old[0]),
			units.Duration(facts.AgeOf(f, old[0])))
		if statusHangs {
			summary += ", and Status hangs behind it"
		}
	} else if f.HostMissing == "" && !f.Target.Simulated {
		Addf(&e.Against, "no CNI plugin has been at work on this host for more than %s",
			units.Duration(f.Limits.CNIPluginTooLong))
	}
	step = raised(step, logOfCNI(f, &e, statusHangs))
	c := newFinding(severity, step, summary, e)
	c.Subject = cniSubject(f, old)
	for _, p := range old[min(1, len(old)):min(len(old), facts.MaxRelated+1)] {
		c.Related = append(c.Related, facts.ProcessSubject(f, p))
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenCNIHung(f, old) }
	return c
}

// cniSubject names the oldest plugin, else the RPC that shows the trouble.
func cniSubject(f *facts.Facts, old []host.Process) *checks.Subject {
	if len(old) > 0 {
		s := facts.ProcessSubject(f, old[0])
		return &s
	}
	return &checks.Subject{Kind: "RPC", Name: facts.RPCStatus}
}

func stepsWhenCNIHung(f *facts.Facts, old []host.Process) []checks.NextStep {
	var s Steps
	addCapture(f, &s)
	if len(old) == 0 {
		s.Add(checks.TouchesNothing,
			"ps -eo pid,ppid,stat,etime,comm --sort=-etime | grep -iE "+
				"'cni|calico|cilium|flannel|bridge|loopback|multus|weave|ipam'",
			"Which plugin has been at work for longer than a minute?")
	}
	for _, p := range old[:min(len(old), 3)] {
		s.Add(checks.TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan", p.PID, p.PID),
			"What does the plugin wait for?")
		switch {
		case facts.IsUninterruptible(&p):
		case facts.IsStopped(&p):
			addKill(f, &s, p, "the sandbox")
		default:
			s.Add(checks.TouchesProcess, fmt.Sprintf("kill -TERM %d", p.PID),
				"Ends the one operation; the kubelet tries it again. Use -KILL if it stays.")
		}
	}
	s.Add(checks.TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`,
		"Is the network add-on's pod on this node well? Plugins wait for its daemon; deleting that pod restarts it.")
	addRestart(f, &s)
	return s.Done()
}

// loggedCNIHung: the runtime's status takes CNI's lock, so a hung plugin makes the kubelet call the runtime down
// while lists answer.
func loggedCNIHung(in *Incident) *LogFinding {
	if in.count(signature.CNIFailed) == 0 {
		return nil
	}
	f := in.finding(objectTier, 0.25, "CNI plugins fail or hang: pods cannot be set up or torn down.",
		signature.CNIFailed)
	if in.calls(isLate, signature.CNIFailed) > 0 {
		f.raise(0.25, "they miss their deadline")
	}
	if in.down && in.lists == 0 {
		f.raise(0.2, "the runtime's status hangs and no list is on record as failing, as when CNI's lock is held")
	}
	if in.listsMissed > 0 {
		f.lower(0.15, "the lists hang too, and these do not wait for CNI")
	}
	return f
}
