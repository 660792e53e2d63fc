package causes

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeHung is the code of this cause.
const RuntimeHung = "RuntimeHung"

func recogniseRuntimeHung(f *facts.Facts) *Finding {
	how, d, out := f.Pattern.Hang, f.Target.Daemon, outputOf(f, host.RoleRuntime)
	if how == facts.HangNone {
		return runtimeLogBlocked(f, out)
	}
	p := cmp.Or(f.Target.Docker.Stopped, d.Process)
	stopped, beyond := p != nil && facts.IsStopped(p), facts.BeyondSignals(f, p)
	var e checks.Evidence
	summary, step := hungPattern(f, how, &e)
	if is := facts.NotRuntime(f); is != "" {
		summary += "; " + is
		if how == facts.HangSilent {
			step = checks.Strong
		}
	}
	switch {
	case stopped:
		by := ifElse(p.Tracer > 0, textf("pid %d", p.Tracer), "SIGSTOP")
		where := ifElse(how == facts.HangBehind, ", behind cri-dockerd,", "")
		summary, step = textf("%v%s is %s (%s)", *p, where, p.StateWord(), by), checks.Certain
	case beyond:
		summary, step = textf("%v is stuck in %s", *p, facts.StateOf(*p)), checks.Certain
	case out != nil:
		summary = outputLine(out)
	case how != facts.HangBacklog:
		step = patientStep(f, step)
	}
	if how != facts.HangBacklog && (p == nil || d.Guessed) {
		step = min(step, checks.Strong) // what the process is doing was not seen
	}
	daemonState(f, &e, d)
	holds := stackEvidence(f, &e, facts.RPCContainers,
		serving(facts.RPCContainers, facts.RPCSandboxes, facts.RPCStatus),
		func(h facts.Hold) bool { return len(h.Waits) > 0 })
	addIf(runtimeStarves(f), &e.Against, "its threads wait for a CPU: it is starved and need not hang")
	addGaps(f, &e, gapHost, gapPatience)
	if !stopped {
		pressureEvidence(f, &e)
	}
	step = raised(step, logOf(f, &e, signsOfDown...) || len(holds)+len(f.Stacks.Kernel) > 0)
	subjects := append([]checks.Subject{*facts.DaemonSubject(f)}, endsOf(holds)...)
	if how == facts.HangBehind {
		subjects = []checks.Subject{facts.ProcessSubject(f, *p, host.Owner{})}
	}
	// The daemon may hold a lock for an OCI runtime or CNI plugin that has been at work for too long.
	runc := facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)
	cni := facts.OldProcesses(f, host.RoleCNI, facts.StuckWork)
	for _, old := range slices.Concat(runc, cni) {
		e.For = append(e.For, atWork(f, old))
		subjects = append(subjects, facts.ProcessSubject(f, old, host.Owner{}))
	}
	effect := []string{noStatus}
	switch {
	case how == facts.HangMost:
		effect, _ = hangEffect(f, facts.PodsOf(f.Sweep.Hung))
	case how == facts.HangBehind && f.Calls.BothLists:
		effect = besides(f, "no container can be started or stopped")
	}
	found := newFinding(checks.Critical, step, summary, e, subjects...).affects(effect...)
	return found.advise(func(s *Steps, _ string) {
		switch {
		case stopped:
			addKill(f, s, *p, "")
			addRestart(f, s)
			return
		case f.Target.OtherProcess != nil:
			AddService(f, s)
			return
		}
		if out != nil {
			adviseOutput(s, out)
		}
		addCapture(f, s)
		if d.PID > 1 {
			s.lookStack(d.PID, "Look where it waits in the kernel: a dead mount or disk shows here")
		} else {
			s.Look("ps -eo pid,stat,wchan:32,etime,comm | grep -E 'containerd|crio|dockerd|runc'",
				"Check its state: T is stopped")
		}
		AddPressure(f, s)
		if len(runc) > 0 {
			addKill(f, s, runc[0], "its container") // the oldest: the others may well wait behind it
		}
		if beyond {
			s.addNodeIf(true, "Reboot: no signal ends an uninterruptible sleep; a restart would hang too")
			return
		}
		if p != nil && facts.IsUninterruptible(p) {
			addLookAgain(s, *p)
		}
		addRestart(f, s)
	})
}

// runtimeLogBlocked is for a runtime that answers, and waits to write its log: what it does not log goes on.
func runtimeLogBlocked(f *facts.Facts, out *host.OutputWait) *Finding {
	if out == nil {
		return nil
	}
	var e checks.Evidence
	addCalls(f, &e.Against, facts.Outcome.Alive, facts.RPCVersion, facts.RPCStatus)
	subjects := []checks.Subject{*facts.DaemonSubject(f)}
	if out.Reader != nil {
		subjects = append(subjects, facts.ProcessSubject(f, *out.Reader, host.Owner{}))
	}
	return newFinding(checks.Critical, checks.Strong, outputLine(out), e, subjects...).
		affects(besides(f, "no container can be started or stopped: the runtime logs each")...).
		advise(func(s *Steps, _ string) {
			adviseOutput(s, out)
			addRestart(f, s)
		})
}

// hungPattern adds the calls without an answer, and returns a summary and the step of confidence that the pattern has.
func hungPattern(f *facts.Facts, how facts.Hang, e *checks.Evidence) (string, float64) {
	label, connect := f.Target.Daemon.Label, f.Measurement.Connect
	switch how {
	case facts.HangBacklog:
		Addf(&e.For, "the listen queue of the socket is full: connections are not accepted")
		return label + " no longer accepts connections: its listen queue is full", checks.Certain
	case facts.HangAll:
		Addf(&e.For, "the transport answers in %s", connect.Elapsed)
		addCalls(f, &e.For, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCImages,
			facts.RPCImageFs, facts.RPCVersion)
		addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCVersion) // needs no lock
		return label + " accepts connections, but every RPC that needs a lock hangs", checks.Certain
	case facts.HangBehind:
		Addf(&e.For, "%s passes every call on to dockerd, and dockerd most of them to its containerd", label)
		addCalls(f, &e.For, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCImages)
		addIf(len(f.Sweep.Hung) > 0, &e.For, "%s", outOf(len(f.Sweep.Hung), len(f.Sweep.Made), "status call")+" hung")
		return "", checks.Certain
	case facts.HangMidway:
		if s := f.Pattern.Silence; s != nil {
			Addf(&e.For, "it answered at first; then %s hung for %s", units.Count(s.Hung, "call"), s.For)
			Addf(&e.For, "Version (no locks) answered at first, then hung")
		}
		return label + " stopped answering during the check", checks.Strong
	case facts.HangMost:
		calls, pods := outOf(len(f.Sweep.Hung), len(f.Sweep.Made), "status call"), facts.PodsOf(f.Sweep.Hung)
		Addf(&e.For, "%s hung, in %s: no single container explains that", calls, units.Count(pods, "pod"))
		addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCSandboxes, facts.RPCContainers)
		return textf("status calls of %s hang for most objects, while its lists answer", label), checks.Strong
	}
	Addf(&e.For, "the socket accepts connections, but sent no HTTP/2 frame in %s", connect.Elapsed)
	return label + " accepts connections but never replies: stopped, or stuck in the kernel", checks.Certain
}

// daemonState adds the state of the daemon's process.
func daemonState(f *facts.Facts, e *checks.Evidence, d facts.Daemon) {
	if d.Process == nil {
		return
	}
	named := ifElse(d.Guessed, "is the daemon on this host (the socket names no process)", "listens on the socket")
	Addf(&e.For, "%s %s; its state: %s", d.Label, named, facts.StateOf(*d.Process))
	// The tasks are its threads; the state above is the main one's.
	addTasks(f, e, func(t host.BlockedTask) bool { return t.PID == d.PID })
}

// loggedRuntimeHung is for a runtime without a good status whose calls are not refused.
func loggedRuntimeHung(in *Incident) *Finding {
	stopped := in.signalled(facts.RoleRuntime, "SIGSTOP")
	if stopped == "" && (!in.down && in.statusMissed == 0 || in.refused > in.missed) {
		return nil
	}
	listed := slices.Contains(in.Reasons, reasonRuntimeDown)
	f := in.finding(checks.Fair, "The runtime accepts calls and answers none: it hangs as a whole.").
		supports(stopped).supports(in.found(signature.RuntimeIsDown, signature.SanityCheckFailed)...).
		supports(ifElse(listed, listedDown+" beside PLEG", ""))
	if stopped == "" && in.statusMissed+in.listsMissed == 0 {
		ended, again := in.runtimeEnd()
		if in.LoopStall != nil || ended != nil && !again || in.count(signature.RuntimeNotReadyReported,
			signature.RuntimeStopped, signature.CRIUnsupported) > 0 {
			return nil // this explains why there is no good status
		}
		addIf(ended != nil, &f.Evidence.Against, "the runtime's unit failed and was started again")
		f.Summary = "The runtime's status has failed for 30 s; the log does not show whether it hangs or is down."
		return f.lacks("records of failing calls: do they miss their deadline, or are they refused?")
	}
	f.supports(in.found(signature.RelistFailed, signature.ListFailed)...)
	switch {
	case stopped != "":
		f.Step, f.Summary = checks.Certain, "The runtime was stopped by SIGSTOP: it accepts calls and answers none."
	case in.statusAlone():
		return f.unlikely("no list fails, and PLEG is healthy")
	case in.listsMissed > 0:
		f.Step = raised(checks.Strong, listed)
	}
	return f
}
