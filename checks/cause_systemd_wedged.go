package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func systemdWedged() Definition {
	return Definition{
		Code:  codeSystemdWedged,
		Title: "systemd does not answer, or leaks units",
		Means: "With the systemd cgroup driver each container and each pod is a unit: runc asks systemd over D-Bus to start a scope, and the kubelet to start a slice, and both wait for the answer. A systemd that does not " +
			"answer, or crawls through thousands of units that it never forgot, makes every start, stop and update of a container wait; runc piles up, and with it the locks that the status calls need. systemctl hangs as well, so the usual " +
			"remedies do too.\n\n" +
			"It happens when units leak (scopes that stay loaded and inactive; systemd before 247 under load), when mounts or cgroups are very many, when D-Bus or process 1 waits for a disk, or when process 1 has no CPU.",
		Confirm: []string{
			"timeout 5 systemctl is-system-running; echo $?: 124 says that it did not answer.",
			"systemctl list-units --all --no-legend | wc -l, and how many of them are loaded inactive dead.",
			"top -p 1: process 1 at 100 % of a CPU works through its units; at 0 % it waits: cat /proc/1/stack.",
			"ps -eo etime,comm,args | grep '[r]unc': several that are older than ten seconds wait for a unit.",
		},
		Fix: []string{
			"Forget failed units: systemctl reset-failed.",
			"systemctl daemon-reexec: process 1 starts anew and keeps its units' state. Services go on running.",
			"Leaks: update systemd (247 and later), and whoever makes the units; stop the probe or job that creates one each second.",
			"It does not answer at all, daemon-reexec included: cordon, drain what can be drained, reboot. " +
				"Where reboot asks systemd in vain, systemctl reboot -ff: it syncs, but ends no process and unmounts nothing, so that what applications have not written may be lost.",
		},
		Mistaken: "MountsExploded, CgroupsLeaked: systemd crawls because of them; they are named as the root. A unit that fails (degraded) is no trouble of systemd's. A node with the cgroupfs driver starts containers without systemd.",
		Sources: []string{
			"kubernetes/kubernetes#57345 (leaked scopes), systemd/systemd: src/core/dbus.c, man systemd(1) (daemon-reexec)",
			"opencontainers/runc: libcontainer/cgroups/systemd (start of a scope over D-Bus)",
		},
		RootOf:    []string{codeRuntimeHung, codeRuntimeSlow, codeListHang, codeInspectHang},
		recognise: recogniseSystemdWedged,
	}
}

// systemdSilent reports whether systemd is there and does not answer.
func (f *Facts) systemdSilent() bool {
	l := f.seen().Systemd
	return !l.Value.Answered && (l.Value.Hung || l.Hung && !l.OK)
}

// busSilent reports whether systemd answers on its own socket, and not over the message bus by which runc and the kubelet ask it.
func (f *Facts) busSilent() bool {
	s := f.seen().Systemd.Value
	return s.Answered && s.BusHung && !s.BusAnswered
}

// systemdSlow reports whether systemd took too long for an answer.
func (f *Facts) systemdSlow() bool {
	s, limit := f.seen().Systemd.Value, f.nodeLimits().SlowSystemd
	return s.Answered && limit > 0 && s.Took >= limit
}

// unitsLeak reports whether units pile up that are over.
func (f *Facts) unitsLeak() bool {
	limit := f.nodeLimits().LeakedUnits
	return limit > 0 && f.seen().Systemd.Value.Inactive >= limit
}

// jobsWait reports whether systemd is behind with what it was asked to do. At boot that is so for a while.
func (f *Facts) jobsWait() bool {
	s, limit := f.seen().Systemd.Value, f.nodeLimits().WaitingJobs
	return limit > 0 && s.Jobs >= limit && s.State != "starting" && s.State != "initializing"
}

// systemdDriver says by what containers get their cgroups: systemd, cgroupfs, or empty when it is not known.
func (f *Facts) systemdDriver() string {
	n := f.seen()
	return or(n.RuntimeDriver.Value, n.Settings.Value.CgroupDriver)
}

func recogniseSystemdWedged(f *Facts) *Cause {
	look := f.seen().Systemd
	s := look.Value
	var e Evidence
	severity, step := Warning, Certain
	var summary string
	switch {
	case f.systemdSilent():
		severity = Critical
		summary = "systemd does not answer over D-Bus"
		addf(&e.For, "systemd did not answer in %s", units.Duration(max(s.Took, look.Took)))
	case f.busSilent():
		severity = Critical
		summary = "the message bus (D-Bus) does not answer, by which containers are started; systemd itself does"
		addf(&e.For, "systemd answered in %s on its own socket, and over the system bus it did not", units.Duration(s.Took))
	case f.systemdSlow():
		summary = "systemd takes " + units.Duration(s.Took) + " for an answer over D-Bus"
		addf(&e.For, "systemd answered in %s; milliseconds are usual", units.Duration(s.Took))
	case f.unitsLeak():
		summary = fmt.Sprintf("systemd has not forgotten %s that are over: each of its steps goes through them", units.Count(s.Inactive, "unit"))
	case f.jobsWait():
		step = Strong
		summary = fmt.Sprintf("systemd is behind: %s wait", units.Count(s.Jobs, "job"))
	default:
		return nil
	}
	if f.unitsLeak() {
		addf(&e.For, "%s of %s are loaded, inactive and dead: they leak", units.Number(s.Inactive), units.Count(s.Units, "unit"))
	}
	if f.jobsWait() {
		addf(&e.For, "%s wait to be run", units.Count(s.Jobs, "job"))
	}
	switch f.systemdDriver() {
	case "systemd":
		addf(&e.For, "containers get their control groups from systemd here: each start and stop waits for it")
	case "cgroupfs":
		severity = Warning
		addf(&e.Against, "containers get their control groups without systemd here (cgroupfs)")
	default:
		addf(&e.Missing, "whether containers get their control groups from systemd: the cgroup driver is not known")
	}
	for _, p := range f.oldProcesses(host.RoleOCI, longOCI)[:min(len(f.oldProcesses(host.RoleOCI, longOCI)), topHeaps)] {
		addf(&e.For, "%s has been at work for %s (%s)", processLabel(p), units.Duration(f.age(p)), stateOf(p))
	}
	c := newCause(codeSystemdWedged, severity, step, summary, e)
	c.Subject = &Subject{Kind: "Process", ID: "1", Name: "systemd"}
	if f.busSilent() {
		c.Subject = &Subject{Kind: "Unit", Name: "dbus.service"}
	}
	c.NextSteps = f.stepsWhenSystemdWedged()
	return c
}

func (f *Facts) stepsWhenSystemdWedged() []NextStep {
	var s steps
	if f.busSilent() {
		return f.stepsWhenBusSilent()
	}
	s.add(TouchesNothing, "timeout 5 systemctl is-system-running; echo $?", "Does it answer now? 124 says no.")
	s.add(TouchesNothing, "ps -o pid,stat,wchan:32,pcpu,etime,comm -p 1; cat /proc/1/stack", "Does process 1 work (100 % of a CPU) or wait, and for what?")
	s.add(TouchesNothing, "timeout 20 systemctl list-units --all --no-legend --plain | awk '{print $3, $4}' | sort | uniq -c | sort -rn | head", "How many units are there, and in which state? Thousands of inactive dead are a leak.")
	s.add(TouchesNothing, "findmnt -n | wc -l", "Tens of thousands of mounts keep systemd busy by themselves.")
	s.add(TouchesProcess, "timeout 20 systemctl reset-failed", "Forgets failed units. Nothing that runs is touched.")
	if f.isConsequence(codeSystemdWedged) {
		return s.done()
	}
	s.add(TouchesRuntime, "timeout 90 systemctl daemon-reexec", "Process 1 starts anew and keeps the state of its units; services and containers go on running.")
	if !f.systemdSilent() {
		return s.done()
	}
	addNode(&s, "Only when it does not answer at all. Where this asks systemd in vain, systemctl reboot -ff: it syncs, but ends no process and unmounts nothing, so that what applications have not written may be lost.")
	return s.done()
}

// stepsWhenBusSilent do without systemctl, which asks systemd on its own socket when root runs it, and finds it well.
func (f *Facts) stepsWhenBusSilent() []NextStep {
	var s steps
	s.add(TouchesNothing, "ps -o pid,stat,wchan:32,pcpu,etime,comm -C dbus-daemon,dbus-broker", "Does the bus run, and what does it wait for? T is stopped: kill -CONT PID lets it go on.")
	s.add(TouchesNothing, "timeout 5 busctl status org.freedesktop.systemd1 > /dev/null; echo $?", "Does the bus answer now? 124 says no. systemctl asks past the bus when root runs it, and tells nothing.")
	s.add(TouchesNothing, "journalctl --no-pager -n 50 -u dbus -u dbus-broker", "What did the bus say last?")
	if f.isConsequence(codeSystemdWedged) {
		return s.done()
	}
	addNode(&s, "Only when the bus stays silent. Do not restart dbus on a node that is to live on: what is connected to it may not come back.")
	return s.done()
}

// systemdWedgedExplains reports whether a wedged systemd is why something else hangs: containers are units, and where single objects or a
// list hang, a runc must be waiting too long.
func systemdWedgedExplains(f *Facts, consequence string) bool {
	if f.systemdDriver() == "cgroupfs" {
		return false
	}
	switch consequence {
	case codeRuntimeHung, codeRuntimeSlow:
		return f.systemdDriver() == "systemd"
	case codeListHang, codeInspectHang:
		return len(f.oldProcesses(host.RoleOCI, longOCI)) > 0
	}
	return false
}
