package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func runtimeHung() Definition {
	return Definition{
		Code:  codeRuntimeHung,
		Title: "the runtime accepts connections and answers nothing",
		Means: "The daemon is there, but no call that needs its state comes back. Three pictures lead here. Nobody behind the socket " +
			"(connects into the listen queue, or the queue is full): the process is stopped by a signal, waits in the kernel without " +
			"end, or gets no CPU. The transport answers and the calls do not: the process runs and is deadlocked, or all its threads wait for " +
			"a disk. The lists answer and most status calls do not: the lists come from memory, everything below it is stuck.\n\n" +
			"The kubelet shows nothing for two minutes, because its first call must time out. The node's Ready condition then says \"container " +
			"runtime is down\", and after 3m also \"PLEG is not healthy\". Both together, with DeadlineExceeded everywhere, is this cause.",
		Confirm: []string{
			"ps -o pid,stat,wchan:32,etime,args -C containerd: T is stopped, D in several looks waits in the kernel (once is only a busy disk), S with no CPU time is deadlocked.",
			"kill -USR1 PID writes containerd's or CRI-O's goroutines: many waiting minutes for one lock name its holder.",
			"grep . /proc/pressure/*: io full above 20 says that the disk, not the daemon, is to blame.",
		},
		Fix: []string{
			"Stopped: kill -CONT PID, then find out who sent SIGSTOP.",
			"Dump goroutines and kernel stacks before anything is restarted: nothing else tells a bug from a bad disk.",
			"Stop what drowns the disk, or bring back the mount that the daemon waits for.",
			"Restart the runtime: containerd and CRI-O keep running containers, and so does cri-dockerd. Restarting docker stops all containers unless docker info shows Live Restore Enabled: true.",
			"Uninterruptible sleep that lasts: no signal helps. Drain what can be drained (emptyDir data is lost), and reboot.",
		},
		Mistaken: "RuntimeDown: refused at once, not silent. CNIHung: only Status hangs. ListHang and InspectHang: other calls answer. " +
			"RuntimeSlow: with more patience (--rpc-timeout 20s --timeout 60s) answers do come.",
		Sources: []string{
			"containerd/containerd#5274, cri-o/cri-o#1228, moby/moby#31639 (daemon-wide hangs, goroutine dumps)",
			"kubernetes/kubernetes#45419 (disk and memory starvation behind unanswered calls)",
			"gRPC servers send HTTP/2 SETTINGS from the transport, so a silent socket means that no code runs behind it",
		},
		RootOf:    []string{codeKubeletCrashLooping, codeKubeletStalled},
		recognise: recogniseRuntimeHung,
	}
}

func recogniseRuntimeHung(f *Facts) *Cause {
	how := f.wholeHang()
	if how == hangNone {
		return nil
	}
	e := f.hungEvidence(how)
	d := f.daemon()
	summary, step := f.hungSummary(how, d)
	if is := f.notRuntime(); is != "" && how != hangSilent {
		summary += "; " + is
	}
	f.daemonState(&e, d)
	if step == Certain && (d.Process == nil || d.Guessed) && how != hangBacklog {
		step = Strong // what the process is doing was not seen
	}
	if how != hangBacklog && !f.beyondSignals(d.Process) && (d.Process == nil || !isStopped(d.Process)) {
		step = f.patientStep(step)
	}
	f.missingHost(&e)
	f.missingPatience(&e)
	if d.Process == nil || !isStopped(d.Process) {
		f.pressureEvidence(&e)
	}
	step = raised(step, f.hearDown(&e))
	c := newCause(codeRuntimeHung, Critical, step, summary, e)
	c.Subject = f.daemonSubject()
	c.Related = f.longRunning(&c.Evidence)
	c.NextSteps = f.stepsWhenHung(d)
	return c
}

// hungEvidence says what did not answer.
func (f *Facts) hungEvidence(how hang) Evidence {
	var e Evidence
	connect := f.Measurement.Connect
	switch how {
	case hangSilent:
		line := fmt.Sprintf("the socket accepts connections, but no HTTP/2 frame came in %s", units.Duration(connect.Elapsed))
		if f.impostor() == nil {
			line += ": no code runs behind it"
		}
		e.For = append(e.For, line)
	case hangBacklog:
		addf(&e.For, "the listen queue of the socket is full: nobody has accepted a connection for a long time")
	case hangAll:
		switch p := f.daemon().Process; {
		case f.impatient():
			addf(&e.For, "the transport answers in %s, no RPC that needs the runtime's state does within %s", units.Duration(connect.Elapsed), units.Duration(f.rpcTimeout()))
		case p == nil || !isStopped(p) && !isUninterruptible(p):
			addf(&e.For, "the transport answers in %s, RPCs do not: deadlocked, not stopped", units.Duration(connect.Elapsed))
		case isUninterruptible(p):
			addf(&e.For, "the transport answers in %s, RPCs do not: some of its threads still run", units.Duration(connect.Elapsed))
		}
		f.addCalls(&e.For, isHanging, rpcStatus, rpcSandboxes, rpcContainers, rpcImages, rpcImageFs, rpcVersion)
		if r := f.rpc(rpcVersion); r.Outcome.alive() {
			addf(&e.For, "%s, which needs no lock", callLine(r.last()))
		}
	case hangMidway:
		if s, ok := f.silence(); ok {
			addf(&e.For, "it answered at first; then %s in a row hung and nothing was answered for %s", units.Count(s.Hung, "call"), units.Duration(s.For))
		}
		if f.stoppedForGood() {
			pulse := f.Measurement.Liveness[len(f.Measurement.Liveness)-1]
			addf(&e.For, "Version, which needs no lock and was answered at first, did not answer in %s when it was asked again", units.Duration(pulse.Elapsed))
		}
	case hangMost:
		all, hungs := f.inspections(), f.inspectionsThat(isHung)
		addf(&e.For, "%s of %s status calls did not answer in %s, in %s", units.Number(len(hungs)), units.Number(len(all)),
			units.Duration(hungs[0].Call.Elapsed), units.Count(podsOf(hungs), "pod"))
		f.addCalls(&e.For, isAlive, rpcSandboxes, rpcContainers)
		if len(hungs) == len(all) {
			addf(&e.For, "lists are answered from memory; what is below it answers for no object that was asked")
		} else {
			addf(&e.For, "lists are answered from memory; what is below it does not answer for most objects, which no single container explains")
		}
	}
	return e
}

// hungSummary says in one sentence what hangs, and how sure the pattern alone makes it.
func (f *Facts) hungSummary(how hang, d daemon) (string, float64) {
	switch {
	case d.Process != nil && isStopped(d.Process):
		return fmt.Sprintf("%s is %s (SIGSTOP): nothing it serves is answered", d.Label, d.Process.StateWord()), Certain
	case f.beyondSignals(d.Process):
		return fmt.Sprintf("%s is in %s and answers nothing", d.Label, stateOf(*d.Process)), Certain
	case how == hangMost && f.statusesAnswered() == 0:
		return fmt.Sprintf("the lists of %s answer from memory, no status call does", d.Label), Strong
	case how == hangMost:
		return fmt.Sprintf("status calls of %s hang for most objects, while the lists answer from memory", d.Label), Strong
	case how == hangAll:
		which := "every RPC misses"
		if f.rpc(rpcVersion).Outcome.alive() {
			which = "every RPC but Version misses"
		}
		why := "deadlocked or starved"
		if f.impatient() {
			why = "hung, or only slower than that"
		}
		return fmt.Sprintf("%s accepts connections, but %s its deadline of %s: %s", d.Label, which, units.Duration(f.rpcTimeout()), why), Certain
	case how == hangMidway:
		return fmt.Sprintf("%s stopped answering while it was measured", d.Label), Strong
	case how == hangBacklog:
		return fmt.Sprintf("%s no longer accepts connections: its listen queue is full", d.Label), Certain
	}
	if is := f.notRuntime(); is != "" {
		return fmt.Sprintf("%s holds the socket and never says a word; %s", d.Label, is), Strong
	}
	return fmt.Sprintf("%s accepts connections and never says a word: stopped, or waiting in the kernel", d.Label), Certain
}

// daemonState adds what the daemon's process is doing.
func (f *Facts) daemonState(e *Evidence, d daemon) {
	if d.Process == nil {
		return
	}
	named := "listens on the socket"
	if d.Guessed {
		named = "is the runtime daemon on this host (the socket names no process)"
	}
	switch {
	case isStopped(d.Process):
		addf(&e.For, "%s %s and its state is %q: a signal stopped it, it does not run at all", d.Label, named, d.Process.StateWord())
	case isUninterruptible(d.Process) && d.Process.Lasting:
		addf(&e.For, "%s %s and is in %s: it waits in the kernel", d.Label, named, stateOf(*d.Process))
	case isUninterruptible(d.Process):
		addf(&e.For, "%s %s and was in %s in one look: stuck in the kernel, or at a busy disk at that moment", d.Label, named, stateOf(*d.Process))
	default:
		addf(&e.For, "%s %s and is %s", d.Label, named, stateOf(*d.Process))
	}
	for _, t := range f.seen().Tasks.Value.Blocked { // of its threads; the state above is the main one's
		if t.PID == d.PID {
			f.addTaskLine(e, t)
		}
	}
}

// longRunning lists OCI runtimes and CNI plugins that have been at work for too long: the daemon may hold a lock for
// one of them.
func (f *Facts) longRunning(e *Evidence) []Subject {
	old := append(f.oldProcesses(host.RoleOCI, longOCI), f.oldProcesses(host.RoleCNI, f.cniTooLong())...)
	var subjects []Subject
	for _, p := range old[:min(len(old), maxRelated)] {
		addf(&e.For, "%s has been at work for %s (%s): a lock may be held for it", processLabel(p), units.Duration(f.age(p)), stateOf(p))
		subjects = append(subjects, f.processSubject(p))
	}
	return subjects
}

func (f *Facts) stepsWhenHung(d daemon) []NextStep {
	var s steps
	if d.Process != nil && isStopped(d.Process) {
		s.add(TouchesProcess, fmt.Sprintf("kill -CONT %d", d.PID), "The process is only stopped: continue it, and look who stopped it (a debugger, a script, a person).")
		f.addRestart(&s)
		return s.done()
	}
	if f.impostor() != nil {
		f.addService(&s)
		return s.done()
	}
	f.addCapture(&s)
	if d.PID > 1 {
		s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep -E 'State|Threads' /proc/%d/status", d.PID, d.PID, d.PID),
			"Where in the kernel does it wait? Shows a dead mount or disk.")
	} else {
		s.add(TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | grep -E 'containerd|crio|dockerd|runc'", "Is the daemon stopped (T) or waiting in the kernel (D)?")
	}
	f.addPressure(&s)
	if old := f.oldProcesses(host.RoleOCI, longOCI); len(old) > 0 {
		f.addKill(&s, old[0], "its container") // the oldest: the others may well wait behind it
	}
	if f.beyondSignals(d.Process) {
		addNode(&s, "No signal ends an uninterruptible sleep, so a restart of the unit would hang too.")
		return s.done()
	}
	if d.Process != nil && isUninterruptible(d.Process) {
		addLookAgain(&s, *d.Process)
	}
	f.addRestart(&s)
	return s.done()
}
