package causes

import (
	"cmp"
	"path"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// RuntimeNotReady is the code of this cause.
const RuntimeNotReady = "RuntimeNotReady"

func recogniseRuntimeNotReady(f *facts.Facts) *Finding {
	if !talks(f) {
		return nil
	}
	var e checks.Evidence
	var effect []string
	other := 0 // the pid of a second daemon
	severity, step, summary := checks.Critical, checks.Certain, ""
	if call := dockerGone(f); call != nil {
		summary, effect = "dockerd, which it passes every call on to, does not run", []string{noStatus}
		Addf(&e.For, "no dockerd runs on this host")
		Addf(&e.For, "%v", *call)
	} else if call := facts.CallError(f, crictl.Unavailable, "not initialized"); call != nil && !f.Calls.AnyList {
		summary, effect = "it has not loaded its state yet", []string{noStatus}
		Addf(&e.For, "%v: it is starting, not hung", *call)
	} else if f.Measurement.Status != nil {
		if summary, step = conditionFalse(f, facts.ConditionRuntimeReady, &e); summary != "" {
			effect = []string{`kubelet: NotReady at once ("container runtime not ready"); containers keep running, ` +
				"none starts or stops"}
		}
	}
	programs, folders := f.Seen.CNI.Value.Programs, f.Seen.CNI.Value.Folders
	if summary == "" && len(programs) > 0 {
		step, summary = checks.Certain, facts.Clean(units.List(programs))+
			units.Plural(len(programs), " is", " are")+" missing"
		effect = besides(f, "no container with the default runtime handler can be started or stopped")
		Addf(&e.For, "the default runtime handler needs %s, which is neither in the daemon's PATH nor where its "+
			"configuration says", facts.Clean(units.List(programs)))
	} else if list := facts.Clean(units.List(folders)); summary == "" && list != "" {
		step, summary = checks.Certain, list+units.Plural(len(folders), " is", " are")+" gone"
		effect = besides(f, "pods cannot be started or stopped")
		Addf(&e.For, "containerd made %s when it started: moved or removed since", list)
	} else if summary == "" && f.Calls.Gone == nil {
		if severity, summary, other = rival(f, &e); other != 0 {
			step = checks.Certain
		} else {
			step = checks.Strong
			severity, summary = erring(f, &e)
			switch {
			case severity != checks.Critical:
			case f.RPC[facts.RPCStatus].Outcome == facts.Failed:
				effect = []string{noStatus}
			default:
				effect = []string{noRelist(f)}
			}
		}
		if summary == "" {
			severity, summary = unsteady(f, &e)
		}
	}
	if summary == "" {
		return nil
	}
	if severity == checks.Critical {
		step = raised(step, logOf(f, &e, signsOfDown...))
	}
	subject := *facts.DaemonSubject(f)
	if dockerGone(f) != nil {
		subject = checks.Subject{Kind: "Unit", Name: facts.UnitDocker + ".service"}
	}
	return newFinding(severity, step, f.Target.Daemon.Label+": "+summary, e, subject).
		affects(effect...).advise(func(s *Steps, _ string) {
		switch {
		case dockerGone(f) != nil:
			AddService(f, s)
			AddDisk(f, s, "Check for a full disk under docker's data")
			addRestart(f, s)
		case len(programs) > 0:
			name := path.Base(programs[0])
			s.lookIf(facts.Safe(name), textf("find /usr /opt | grep /%s", name),
				"Find out what removed it: reinstall its package, or take it out of the configuration. No restart is needed")
		case len(folders) > 0:
			s.Look(textf("ls -l /proc/%d/fd | grep io.containerd | head -n 5", f.Target.Daemon.PID),
				"Find out where its files are now, and move the folder back; no restart is needed")
		case other != 0:
			s.Look(textf("ps -o pid,ppid,lstart,args -p %d,%d; cat /proc/%[2]d/cgroup", f.Target.Daemon.PID, other),
				"Find out who started the other daemon; stop the one that no unit owns (its containers run on)")
			AddService(f, s)
		default:
			s.Look(facts.CrictlCommand(f, "info"), "Read the conditions that the runtime reports")
			AddService(f, s)
			s.Look(facts.KdiagCommand(f, "runtime"), "Look again; while it loads its state, wait: a restart delays it")
			addRestart(f, s, "Last resort, if the loading of its state never ends.")
		}
	})
}

// dockerGone returns a call that cri-dockerd could not pass on while no dockerd runs; nil for none.
func dockerGone(f *facts.Facts) *crictl.Call {
	if !f.Target.Docker.Gone {
		return nil
	}
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers, facts.RPCStatus, facts.RPCVersion} {
		if c := f.RPC[name].Last(); facts.Says(c.Err, "cannot connect to the docker daemon") {
			return &c
		}
	}
	return nil
}

// rival recognises another daemon beside the one that answers: on the path of its socket, which the later of them has
// replaced, or in its folder.
func rival(f *facts.Facts, e *checks.Evidence) (checks.Severity, string, int) {
	for _, p := range facts.ProcessesOf(f, host.RoleRuntime) {
		age, root := facts.AgeOf(f, p), facts.SharedRoot(f, f.Target.Daemon.PID, p.PID)
		switch {
		case facts.SharesSocket(f, p):
			Addf(&e.For, "%v, up for %s, listens on %s too, and gets no new connection", p, age, f.Target.SocketPath)
			summary := textf("another daemon, %v, has the same socket path; its pods are in no list", p)
			return checks.Critical, summary, p.PID
		case root != "":
			Addf(&e.For, "%v, up for %s, has the database in %s open as well; it serves one daemon", p, age, root)
			summary := textf("another daemon, %v, waits for the database in the same folder, %s", p, root)
			return checks.Warning, summary, p.PID
		}
	}
	return "", "", 0
}

// conditionFalse returns why a condition of the runtime is not true, empty when it is, and how sure that is. The
// kubelet takes a missing one for false.
func conditionFalse(f *facts.Facts, name string, e *checks.Evidence) (string, float64) {
	status := f.Measurement.Status
	switch c, ok := status.Condition(name); {
	case !ok:
		Addf(&e.For, "Status reports %s and not %s", units.Count(len(status.Conditions), "condition"), name)
		return name + " is not reported", checks.Strong
	case !c.Status:
		Addf(&e.For, "%s: reason:%s message:%s", facts.Clean(c.Type), facts.Clean(c.Reason), facts.Clean(c.Message))
		return name + " is false: " + facts.Clean(cmp.Or(c.Message, c.Reason, "no reason given")), checks.Certain
	}
	return "", 0
}

// erring recognises a runtime whose Status or lists come back as errors, other than those that have a cause of their
// own. Version alone is a warning: a node status misses its runtime's name, a kubelet that restarts does not come up.
func erring(f *facts.Facts, e *checks.Evidence) (checks.Severity, string) {
	var names []string
	severity := checks.Warning
	for _, name := range []string{facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCVersion} {
		r := f.RPC[name]
		if r.Outcome != facts.Failed || hasOwnCause(r.Last()) {
			continue
		}
		severity = ifElse(name != facts.RPCVersion, checks.Critical, severity)
		names = append(names, name)
		Addf(&e.For, "%v", r.Last())
	}
	if len(names) == 0 {
		return "", ""
	}
	addIf(f.Calls.AnyList, &e.Against, "other calls are answered")
	return severity, units.List(names) + " answered with an error"
}

// unsteady recognises a runtime that fails on and off while it is measured, as one does that is restarted: lists that
// failed and were answered later, and status calls that met no runtime, or one without its state.
func unsteady(f *facts.Facts, e *checks.Evidence) (checks.Severity, string) {
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		r := f.RPC[name]
		i := slices.IndexFunc(r.Calls, func(c crictl.Call) bool { return facts.IsFailure(c) && !hasOwnCause(c) })
		if i >= 0 && r.Outcome.Alive() {
			Addf(&e.For, "%s failed, not later: %v", outOf(r.FailedCalls(), len(r.Calls), name+" call"), r.Calls[i])
		}
	}
	refused := facts.InspectionsThat(f, facts.IsRefused)
	isLater := func(i plegbench.Inspection) bool { return i.Call.OK() && i.Call.Start.After(refused[0].Call.Start) }
	if len(refused) > 0 {
		Addf(&e.For, "%s failed: %v", outOf(len(refused), len(f.Sweep.Made), "status call"), refused[0].Call)
	}
	switch {
	case len(e.For) == 0:
		return "", ""
	case len(refused) > 0 && f.Sweep.Answered == 0, len(refused) > 1 && !slices.ContainsFunc(f.Sweep.Made, isLater):
		return checks.Critical, "lists answer, status calls are refused: starting, or just restarted"
	}
	Addf(&e.Against, "other calls answered")
	return checks.Warning, "some calls failed during the check: restarted?"
}

// hasOwnCause reports whether an error belongs to RuntimeUnsupported, ListTooLarge, or to no cause of the runtime.
func hasOwnCause(c crictl.Call) bool {
	return c.Code == crictl.Unimplemented || c.Code == crictl.PermissionDenied || facts.IsTooLarge(c)
}

// loggedRuntimeNotReady is for a runtime that answers Status and reports that it is not ready. Such an answer
// does not count as a good status, so "container runtime is down" appears after 30 s too (pkg/kubelet/kubelet.go,
// updateRuntimeUp).
func loggedRuntimeNotReady(in *Incident) *Finding {
	f := in.recorded(checks.Strong, "The runtime answers, and reports that it is not ready.",
		signature.RuntimeNotReadyReported)
	if f != nil && in.statusMissed+in.listsMissed+in.refused > 0 {
		f.Step = checks.Fair
		Addf(&f.Evidence.Against, "calls were refused or missed their deadline too")
	}
	return f
}
