package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// SystemdWedged is the code of this cause.
const SystemdWedged = "SystemdWedged"

var systemdWedged = Definition{
	Code:   SystemdWedged,
	Claims: []string{"systemd.answer", "systemd.units"},
	Roots: []Root{
		{Code: IOStall, When: diskStands},
		{Code: MountsExploded},
		{Code: CgroupsLeaked, When: livingCgroups},
	},
	Recognise: recogniseSystemdWedged,
	FromLog: fromRecords(hostTier, 0.75, "systemd or its bus does not answer; runc waits for it.",
		signature.SystemdUnresponsive),
}

func recogniseSystemdWedged(f *facts.Facts) *Finding {
	look := f.Seen.Systemd
	s := look.Value
	var e checks.Evidence
	severity, step := checks.Warning, checks.Certain
	var summary string
	switch {
	case f.Systemd.Silent:
		severity = checks.Critical
		summary = "systemd does not answer over D-Bus"
		Addf(&e.For, "systemd did not answer in %s", units.Duration(max(s.Took, look.Took)))
	case f.Systemd.BusSilent:
		severity = checks.Critical
		summary = "the message bus (D-Bus) does not answer, by which containers are started; systemd itself does"
		Addf(&e.For, "systemd answered in %s on its own socket, and over the system bus it did not",
			units.Duration(s.Took))
	case f.Systemd.Slow:
		summary = "systemd takes " + units.Duration(s.Took) + " for an answer over D-Bus"
		Addf(&e.For, "systemd answered in %s; milliseconds are usual", units.Duration(s.Took))
	case f.Systemd.UnitsLeak:
		summary = fmt.Sprintf("systemd has not forgotten %s that are over: each of its steps goes through them",
			units.Count(s.Inactive, "unit"))
	case f.Systemd.JobsWait:
		step = checks.Strong
		summary = fmt.Sprintf("systemd is behind: %s wait", units.Count(s.Jobs, "job"))
	default:
		return nil
	}
	if f.Systemd.UnitsLeak {
		Addf(&e.For, "%s of %s are loaded, inactive and dead: they leak", units.Number(s.Inactive),
			units.Count(s.Units, "unit"))
	}
	if f.Systemd.JobsWait {
		Addf(&e.For, "%s wait to be run", units.Count(s.Jobs, "job"))
	}
	switch f.Systemd.Driver {
	case "systemd":
		Addf(&e.For, "containers get their control groups from systemd here: each start and stop waits for it")
	case "cgroupfs":
		severity = checks.Warning
		Addf(&e.Against, "containers get their control groups without systemd here (cgroupfs)")
	default:
		Addf(&e.Missing, "whether containers get their control groups from systemd: the cgroup driver is not known")
	}
	for _, p := range facts.OldProcesses(f, host.RoleOCI,
		facts.LongOCI)[:min(len(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)), facts.MostNamed)] {
		Addf(&e.For, "%s has been at work for %s (%s)", facts.ProcessLabel(p), units.Duration(facts.AgeOf(f, p)),
			facts.StateOf(p))
	}
	c := newFinding(severity, step, summary, e)
	c.Subject = &checks.Subject{Kind: "Process", ID: "1", Name: "systemd"}
	if f.Systemd.BusSilent {
		c.Subject = &checks.Subject{Kind: "Unit", Name: "dbus.service"}
	}
	c.Advise = func(root string) []checks.NextStep { return stepsWhenSystemdWedged(f, root) }
	return c
}

func stepsWhenSystemdWedged(f *facts.Facts, root string) []checks.NextStep {
	var s Steps
	if f.Systemd.BusSilent {
		return stepsWhenBusSilent(f, root)
	}
	s.Add(checks.TouchesNothing, "timeout 5 systemctl is-system-running; echo $?", "Does it answer now? 124 says no.")
	s.Add(checks.TouchesNothing, "ps -o pid,stat,wchan:32,pcpu,etime,comm -p 1; cat /proc/1/stack",
		"Does process 1 work (100 % of a CPU) or wait, and for what?")
	s.Add(checks.TouchesNothing,
		"timeout 20 systemctl list-units --all --no-legend --plain | awk '{print $3, $4}' | sort | uniq -c | sort "+
			"-rn | head", "How many units are there, and in which state? Thousands of inactive dead are a leak.")
	s.Add(checks.TouchesNothing, "findmnt -n | wc -l", "Tens of thousands of mounts keep systemd busy by themselves.")
	s.Add(checks.TouchesProcess, "timeout 20 systemctl reset-failed",
		"Forgets failed units. Nothing that runs is touched.")
	if root != "" {
		return s.Done()
	}
	s.Add(checks.TouchesRuntime, "timeout 90 systemctl daemon-reexec",
		"Process 1 starts anew and keeps the state of its units; services and containers go on running.")
	if !f.Systemd.Silent {
		return s.Done()
	}
	addNode(&s, "Only when it does not answer at all. Where this asks systemd in vain, systemctl reboot -ff: it "+
		"syncs, but ends no process and unmounts nothing, so that what applications have not written may be lost.")
	return s.Done()
}

// stepsWhenBusSilent do without systemctl, which asks systemd on its own socket when root runs it, and finds it well.
func stepsWhenBusSilent(f *facts.Facts, root string) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing, "ps -o pid,stat,wchan:32,pcpu,etime,comm -C dbus-daemon,dbus-broker",
		"Does the bus run, and what does it wait for? T is stopped: kill -CONT PID lets it go on.")
	s.Add(checks.TouchesNothing, "timeout 5 busctl status org.freedesktop.systemd1 > /dev/null; echo $?",
		"Does the bus answer now? 124 says no. systemctl asks past the bus when root runs it, and tells nothing.")
	s.Add(checks.TouchesNothing, "journalctl --no-pager -n 50 -u dbus -u dbus-broker", "What did the bus say last?")
	if root != "" {
		return s.Done()
	}
	addNode(&s, "Only when the bus stays silent. Do not restart dbus on a node that is to live on: what is "+
		"connected to it may not come back.")
	return s.Done()
}
