package causes

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeHung is the code of this cause.
const RuntimeHung = "RuntimeHung"

var runtimeHung = Definition{
	Code: RuntimeHung,
	Roots: []Root{
		{Code: DiskFull, When: runtimeDiskFull},
		{Code: InodesExhausted, When: runtimeInodesGone},
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: usedMountHangs},
		{Code: MemoryPressure, When: thrashes},
		{Code: CPUStarved, When: runtimeHardlyRuns},
		{Code: PIDsExhausted, When: runtimeCannotFork},
		{Code: FilesExhausted, When: runtimeOutOfFiles},
		{Code: TaskStuck, When: runtimeTaskStuck},
		{Code: CgroupFrozen, When: runtimeFrozen},
		{Code: SystemdWedged, When: systemdStartsContainers},
		{Code: KernelHung},
	},
	OnPurpose: daemonIsStopped,
	Recognise: recogniseRuntimeHung,
	FromLog:   loggedRuntimeHung,
}

func recogniseRuntimeHung(f *facts.Facts) *Finding {
	how := f.Pattern.Hang
	if how == facts.HangNone {
		return nil
	}
	e := hungEvidence(f, how)
	d := f.Target.Daemon
	summary, step := hungSummary(f, how, d)
	if is := facts.NotRuntime(f); is != "" && how != facts.HangSilent {
		summary += "; " + is
	}
	daemonState(f, &e, d)
	if step == checks.Certain && (d.Process == nil || d.Guessed) && how != facts.HangBacklog {
		step = checks.Strong // what the process is doing was not seen
	}
	if how != facts.HangBacklog && !facts.BeyondSignals(f, d.Process) &&
		(d.Process == nil || !facts.IsStopped(d.Process)) {
		step = patientStep(f, step)
	}
	missingHost(f, &e)
	missingPatience(f, &e)
	if d.Process == nil || !facts.IsStopped(d.Process) {
		pressureEvidence(f, &e)
	}
	step = raised(step, logOfDown(f, &e))
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.DaemonSubject(f)
	c.Related = longRunning(f, &c.Evidence)
	c.Advise = func(string) []checks.NextStep { return stepsWhenHung(f, d) }
	return c
}

// hungEvidence says what did not answer.
func hungEvidence(f *facts.Facts, how facts.Hang) checks.Evidence {
	var e checks.Evidence
	connect := f.Measurement.Connect
	switch how {
	case facts.HangSilent:
		line := fmt.Sprintf("the socket accepts connections, but no HTTP/2 frame came in %s",
			units.Duration(connect.Elapsed))
		if f.Target.OtherProcess == nil {
			line += ": no code runs behind it"
		}
		e.For = append(e.For, line)
	case facts.HangBacklog:
		Addf(&e.For, "the listen queue of the socket is full: nobody has accepted a connection for a long time")
	case facts.HangAll:
		switch p := f.Target.Daemon.Process; {
		case f.Calls.Impatient:
			Addf(&e.For, "the transport answers in %s, no RPC that needs the runtime's state does within %s",
				units.Duration(connect.Elapsed), units.Duration(f.Limits.RPCTimeout))
		case p == nil || !facts.IsStopped(p) && !facts.IsUninterruptible(p):
			Addf(&e.For, "the transport answers in %s, RPCs do not: deadlocked, not stopped",
				units.Duration(connect.Elapsed))
		case facts.IsUninterruptible(p):
			Addf(&e.For, "the transport answers in %s, RPCs do not: some of its threads still run",
				units.Duration(connect.Elapsed))
		}
		addCalls(f, &e.For, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCImages,
			facts.RPCImageFs, facts.RPCVersion)
		if r := f.RPC[facts.RPCVersion]; r.Outcome.Alive() {
			Addf(&e.For, "%s, which needs no lock", facts.CallLine(r.Last()))
		}
	case facts.HangMidway:
		if s, ok := f.Pattern.Stall, f.Pattern.Stalled; ok {
			Addf(&e.For, "it answered at first; then %s in a row hung and nothing was answered for %s",
				units.Count(s.Hung, "call"), units.Duration(s.For))
		}
		if f.Pattern.StoppedForGood {
			pulse := f.Measurement.Liveness[len(f.Measurement.Liveness)-1]
			Addf(&e.For, "Version, which needs no lock and was answered at first, did not answer in %s when it "+
				"was asked again", units.Duration(pulse.Elapsed))
		}
	case facts.HangMost:
		all, hungs := f.Sweep.Made, f.Sweep.Hung
		Addf(&e.For, "%s of %s status calls did not answer in %s, in %s", units.Number(len(hungs)),
			units.Number(len(all)),
			units.Duration(hungs[0].Call.Elapsed), units.Count(facts.PodsOf(hungs), "pod"))
		addCalls(f, &e.For, isAlive, facts.RPCSandboxes, facts.RPCContainers)
		if len(hungs) == len(all) {
			Addf(&e.For, "lists are answered from memory; what is below it answers for no object that was asked")
		} else {
			Addf(&e.For, "lists are answered from memory; what is below it does not answer for most objects, "+
				"which no single container explains")
		}
	}
	return e
}

// hungSummary says in one sentence what hangs, and how sure the pattern alone makes it.
func hungSummary(f *facts.Facts, how facts.Hang, d facts.Daemon) (string, float64) {
	switch {
	case d.Process != nil && facts.IsStopped(d.Process):
		return fmt.Sprintf("%s is %s (SIGSTOP): nothing it serves is answered", d.Label,
			d.Process.StateWord()), checks.Certain
	case facts.BeyondSignals(f, d.Process):
		return fmt.Sprintf("%s is in %s and answers nothing", d.Label, facts.StateOf(*d.Process)), checks.Certain
	case how == facts.HangMost && f.Sweep.Answered == 0:
		return fmt.Sprintf("the lists of %s answer from memory, no status call does", d.Label), checks.Strong
	case how == facts.HangMost:
		return fmt.Sprintf("status calls of %s hang for most objects, while the lists answer from memory",
			d.Label), checks.Strong
	case how == facts.HangAll:
		which := "every RPC misses"
		if f.RPC[facts.RPCVersion].Outcome.Alive() {
			which = "every RPC but Version misses"
		}
		why := "deadlocked or starved"
		if f.Calls.Impatient {
			why = "hung, or only slower than that"
		}
		return fmt.Sprintf("%s accepts connections, but %s its deadline of %s: %s", d.Label, which,
			units.Duration(f.Limits.RPCTimeout), why), checks.Certain
	case how == facts.HangMidway:
		return fmt.Sprintf("%s stopped answering while it was measured", d.Label), checks.Strong
	case how == facts.HangBacklog:
		return fmt.Sprintf("%s no longer accepts connections: its listen queue is full", d.Label), checks.Certain
	}
	if is := facts.NotRuntime(f); is != "" {
		return fmt.Sprintf("%s holds the socket and never says a word; %s", d.Label, is), checks.Strong
	}
	return fmt.Sprintf("%s accepts connections and never says a word: stopped, or waiting in the kernel",
		d.Label), checks.Certain
}

// daemonState adds what the daemon's process is doing.
func daemonState(f *facts.Facts, e *checks.Evidence, d facts.Daemon) {
	if d.Process == nil {
		return
	}
	named := "listens on the socket"
	if d.Guessed {
		named = "is the runtime daemon on this host (the socket names no process)"
	}
	switch {
	case facts.IsStopped(d.Process):
		Addf(&e.For, "%s %s and its state is %q: a signal stopped it, it does not run at all", d.Label, named,
			d.Process.StateWord())
	case facts.IsUninterruptible(d.Process) && d.Process.Lasting:
		Addf(&e.For, "%s %s and is in %s: it waits in the kernel", d.Label, named, facts.StateOf(*d.Process))
	case facts.IsUninterruptible(d.Process):
		Addf(&e.For, "%s %s and was in %s in one look: stuck in the kernel, or at a busy disk at that moment",
			d.Label, named, facts.StateOf(*d.Process))
	default:
		Addf(&e.For, "%s %s and is %s", d.Label, named, facts.StateOf(*d.Process))
	}
	for _, t := range f.Seen.Tasks.Value.Blocked { // of its threads; the state above is the main one's
		if t.PID == d.PID {
			addTaskLine(f, e, t)
		}
	}
}

// longRunning lists OCI runtimes and CNI plugins that have been at work for too long: the daemon may hold a lock for
// one of them.
func longRunning(f *facts.Facts, e *checks.Evidence) []checks.Subject {
	old := append(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI),
		facts.OldProcesses(f, host.RoleCNI, f.Limits.CNIPluginTooLong)...)
	var subjects []checks.Subject
	for _, p := range old[:min(len(old), facts.MaxRelated)] {
		Addf(&e.For, "%s has been at work for %s (%s): a lock may be held for it", facts.ProcessLabel(p),
			units.Duration(facts.AgeOf(f, p)), facts.StateOf(p))
		subjects = append(subjects, facts.ProcessSubject(f, p))
	}
	return subjects
}

func stepsWhenHung(f *facts.Facts, d facts.Daemon) []checks.NextStep {
	var s Steps
	if d.Process != nil && facts.IsStopped(d.Process) {
		s.Add(checks.TouchesProcess, fmt.Sprintf("kill -CONT %d", d.PID),
			"The process is only stopped: continue it, and look who stopped it (a debugger, a script, a person).")
		addRestart(f, &s)
		return s.Done()
	}
	if f.Target.OtherProcess != nil {
		AddService(f, &s)
		return s.Done()
	}
	addCapture(f, &s)
	if d.PID > 1 {
		s.Add(checks.TouchesNothing,
			fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep -E 'State|Threads' /proc/%d/status", d.PID, d.PID,
				d.PID),
			"Where in the kernel does it wait? Shows a dead mount or disk.")
	} else {
		s.Add(checks.TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | grep -E 'containerd|crio|dockerd|runc'",
			"Is the daemon stopped (T) or waiting in the kernel (D)?")
	}
	AddPressure(f, &s)
	if old := facts.OldProcesses(f, host.RoleOCI, facts.LongOCI); len(old) > 0 {
		addKill(f, &s, old[0], "its container") // the oldest: the others may well wait behind it
	}
	if facts.BeyondSignals(f, d.Process) {
		addNode(&s, "No signal ends an uninterruptible sleep, so a restart of the unit would hang too.")
		return s.Done()
	}
	if d.Process != nil && facts.IsUninterruptible(d.Process) {
		addLookAgain(&s, *d.Process)
	}
	addRestart(f, &s)
	return s.Done()
}

// loggedRuntimeHung is for a runtime without a good status whose calls are not refused.
func loggedRuntimeHung(in *Incident) *LogFinding {
	if !in.down && in.statusMissed == 0 || in.refused > in.missed {
		return nil
	}
	f := in.finding(runtimeTier, 0.5, "The runtime accepts calls and answers none: it hangs as a whole.",
		signature.RuntimeIsDown, signature.SanityCheckFailed)
	if slices.Contains(in.Reasons, reasonRuntimeDown) {
		f.raise(0.1, listedDown+" beside PLEG: neither status nor lists have succeeded")
	}
	if in.statusMissed+in.listsMissed == 0 {
		ended, again := in.runtimeEnd()
		if in.Standstill != nil || ended != nil && !again || in.count(signature.RuntimeNotReadyReported,
			signature.RuntimeStopped, signature.CRIUnsupported) > 0 {
			return nil // what is known says why there is no good status
		}
		f.Confidence = min(f.Confidence, 0.45)
		f.Summary = "The runtime's status has not succeeded for 30 s; the log does not say whether it hangs or is " +
			"not running."
		return f.lacks("records of failing calls: those that miss their deadline show a runtime that hangs, " +
			"refused ones one that is not running")
	}
	if in.listsMissed > 0 {
		f.raise(0.25, in.found(signature.RelistFailed, signature.ListFailed)...)
	}
	if in.statusMissed > 0 {
		f.Confidence += 0.05
	}
	return f
}
