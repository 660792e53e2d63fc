package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// SystemdWedged is the code of this cause.
const SystemdWedged = "SystemdWedged"

var systemdWedged = cause(
	SystemdWedged, recogniseSystemdWedged, loggedSystemdWedged, "systemd.answer", "systemd.units",
)

var loggedSystemdWedged = fromRecords(hostTier, 0.75, "systemd or its bus does not answer; runc waits for it.",
	signature.SystemdUnresponsive)

func recogniseSystemdWedged(f *facts.Facts) *Finding {
	look, is := f.Seen.Systemd, f.Systemd
	s := look.Value
	var e checks.Evidence
	step, summary := checks.Certain, ""
	subject := checks.Subject{Kind: "Process", ID: "1", Name: "systemd"}
	switch {
	case is.Silent:
		summary = "systemd does not answer over D-Bus"
		Addf(&e.For, "systemd did not answer in %s", max(s.Took, look.Took))
	case is.BusSilent:
		summary = "the message bus (D-Bus) does not answer, by which containers are started; systemd itself does"
		subject = checks.Subject{Kind: "Unit", Name: "dbus.service"}
		Addf(&e.For, "systemd answered in %s on its own socket, and over the system bus it did not", s.Took)
	case is.Slow:
		summary = "systemd takes " + units.Duration(s.Took) + " for an answer over D-Bus; milliseconds are usual"
	case is.UnitsLeak:
		summary = textf("systemd still holds %s that are over", units.Count(s.Inactive, "unit"))
	case is.JobsWait:
		step = checks.Strong
		summary = textf("systemd is behind: %s wait", units.Count(s.Jobs, "job"))
	default:
		return nil
	}
	addIf(is.UnitsLeak, &e.For, "%s of %s are over: they leak", units.Number(s.Inactive), units.Count(s.Units, "unit"))
	severity := criticalIf(is.Silent || is.BusSilent)
	switch is.Driver {
	case "systemd":
		Addf(&e.For, "containers get their control groups from systemd here: each start and stop waits for it")
	case "cgroupfs":
		severity = checks.Warning
		Addf(&e.Against, "containers get their control groups without systemd here (cgroupfs)")
	default:
		Addf(&e.Missing, "whether containers get their control groups from systemd: the cgroup driver is not known")
	}
	for _, p := range top(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)) {
		e.For = append(e.For, atWork(f, p))
	}
	advice := choose(is.BusSilent, adviseBusSilent, adviseSystemdWedged)
	return newFinding(severity, step, summary, e, subject).advise(func(s *Steps, root string) { advice(f, s, root) })
}

func adviseSystemdWedged(f *facts.Facts, s *Steps, root string) {
	s.Look("timeout 5 systemctl is-system-running; echo $?", "Does it answer now? 124 is no.")
	s.Look("ps -o pid,stat,wchan:32,pcpu,etime,comm -p 1; cat /proc/1/stack", "Does process 1 work or wait, for what?")
	s.Look("timeout 20 systemctl list-units --all --no-legend --plain | awk '{print $3, $4}' | sort | uniq -c | sort "+
		"-rn | head", "How many units are there, and in which state? Thousands of inactive dead are a leak.")
	s.Look("findmnt -n | wc -l", "Tens of thousands of mounts alone keep systemd busy.")
	s.Add(checks.TouchesSystemd, "timeout 20 systemctl reset-failed", "Clears failed units, and nothing that runs.")
	if root != "" {
		return
	}
	s.Add(checks.TouchesSystemd, "timeout 90 systemctl daemon-reexec", "Process 1 starts anew; services go on running.")
	s.addNodeIf(f.Systemd.Silent, "Only when it does not answer at all. Where this hangs: systemctl reboot -ff.")
}

// adviseBusSilent does without systemctl, which asks systemd on its own socket when root runs it, and finds it well.
func adviseBusSilent(_ *facts.Facts, s *Steps, root string) {
	s.Look("ps -o pid,stat,wchan:32,pcpu,etime,comm -C dbus-daemon,dbus-broker", "Is it stopped (T), or does it wait?")
	s.Look("timeout 5 busctl status org.freedesktop.systemd1 > /dev/null; echo $?", "Does it answer now? 124 is no.")
	s.Look("journalctl --no-pager -n 50 -u dbus -u dbus-broker", "What did the bus log last?")
	s.addNodeIf(root == "", "Only when the bus stays silent. Do not restart dbus: its clients may not come back.")
}
