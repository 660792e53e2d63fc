package causes

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// SystemdWedged is the code of this cause.
const SystemdWedged = "SystemdWedged"

func loggedSystemdWedged(in *Incident) *Finding {
	return in.early(checks.Strong, "systemd or its bus does not answer; runc waits for it.",
		signature.SystemdUnresponsive)
}

func recogniseSystemdWedged(f *facts.Facts) *Finding {
	look, l := f.Seen.Systemd, f.Limits.Node
	s := look.Value
	silent := !s.Answered && (s.Hung || look.Hung && !look.OK)
	busSilent := s.Answered && s.BusHung && !s.BusAnswered
	unitsLeak := s.Inactive >= l.LeakedUnits
	var e checks.Evidence
	step, summary := checks.Certain, ""
	subject := checks.Subject{Kind: "Process", ID: "1", Name: "systemd"}
	switch {
	case silent:
		summary = "systemd does not answer over D-Bus"
		Addf(&e.For, "systemd: no reply in %s", max(s.Took, look.Took))
	case busSilent:
		summary = "D-Bus does not answer, and containers are started through it; systemd itself answers"
		subject = checks.Subject{Kind: "Unit", Name: "dbus.service"}
		Addf(&e.For, "systemd answered in %s on its private socket; no reply over the system bus", s.Took)
	case s.Answered && s.Took >= l.SlowSystemd:
		summary = "systemd takes " + units.Duration(s.Took) + " to answer over D-Bus (normal: milliseconds)"
	case unitsLeak:
		summary = textf("systemd leaks units: %s that have ended are still loaded", units.Count(s.Inactive, "unit"))
	case s.Jobs >= l.WaitingJobs && s.State != "starting" && s.State != "initializing":
		step = checks.Strong
		summary = textf("systemd is behind: %s are queued", units.Count(s.Jobs, "job"))
	default:
		return nil
	}
	addIf(unitsLeak, &e.For, "%s of %s have ended: they leak", units.Number(s.Inactive), units.Count(s.Units,
		"unit"))
	severity := criticalIf(silent || busSilent)
	switch containersDriver(f) {
	case "systemd":
		Addf(&e.For, "cgroup driver systemd: each container start and stop waits for it")
	case "cgroupfs":
		severity = checks.Warning
		Addf(&e.Against, "cgroup driver cgroupfs: containers start without systemd")
	default:
		Addf(&e.Missing, "cgroup driver unknown: containers may not need systemd")
	}
	for _, p := range top(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)) {
		e.For = append(e.For, atWork(f, p))
	}
	if cpu := f.Seen.Pressure.Value.CPU; cpu != nil && cpu.Some.Avg10 >= l.CPUSome {
		step = min(step, checks.Fair)
		Addf(&e.Against, "tasks waited for a CPU in %s (PSI cpu some): systemd may only be slow", pressureText(cpu.Some))
	}
	return newFinding(severity, step, summary, e, subject).advise(func(s *Steps, root string) {
		if busSilent {
			adviseBusSilent(s, root)
		} else {
			adviseSystemdWedged(s, root, silent)
		}
	})
}

// containersDriver is the cgroup driver of containers: systemd, cgroupfs, or empty when it is not known.
func containersDriver(f *facts.Facts) string {
	return cmp.Or(f.Seen.RuntimeDriver.Value, f.Seen.Settings.Value.CgroupDriver)
}

func adviseSystemdWedged(s *Steps, root string, silent bool) {
	s.Look("timeout 5 systemctl is-system-running; echo $?", "Check if it answers now (124: no).")
	s.Look("ps -o pid,stat,wchan:32,pcpu,etime,comm -p 1; cat /proc/1/stack",
		"Check if process 1 works or waits, and for what.")
	s.Look("findmnt -n | wc -l", "Count mounts; tens of thousands keep systemd busy.")
	if !silent { // else both would only wait for it
		s.Look("timeout 20 systemctl list-units --all --no-legend --plain | awk '{print $3, $4}' | sort | uniq -c | "+
			"sort -rn | head", "Count units by state; thousands of inactive dead ones are a leak.")
		s.Add(checks.TouchesSystemd, "timeout 20 systemctl reset-failed",
			"Clears failed units; running ones are not touched.")
	}
	if root != "" {
		return
	}
	s.Add(checks.TouchesSystemd, "timeout 90 systemctl daemon-reexec", "Restarts process 1; services keep running.")
	s.addNodeIf(silent, "Reboot only if it does not answer at all. If this hangs: systemctl reboot -ff.")
}

// adviseBusSilent asks with busctl: systemctl, when root runs it, asks systemd on its own socket, and finds it well.
func adviseBusSilent(s *Steps, root string) {
	s.Look("ps -o pid,stat,wchan:32,pcpu,etime,comm -C dbus-daemon,dbus-broker", "Check if it is stopped (T) or waits.")
	s.Look("timeout 5 busctl status org.freedesktop.systemd1 > /dev/null; echo $?",
		"Check if it answers now (124: no).")
	s.Look("journalctl --no-pager -n 50 -u dbus -u dbus-broker", "Read the last log lines of the bus.")
	s.Add(checks.TouchesProcess, "timeout 20 systemctl kill -s CONT dbus", "Resumes it if it is stopped (harmless).")
	s.addNodeIf(root == "", "Reboot only if the bus stays silent. Do not restart dbus: its clients may not reconnect.")
}
