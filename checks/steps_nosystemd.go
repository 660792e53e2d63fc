package checks

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
)

// noSystemd is why systemd was not asked on a host that has another service manager, or none.
const noSystemd = "systemd does not run here"

// lacksSystemd reports whether this host is known to have no systemd. A simulated runtime plays a node that has it.
func (f *Facts) lacksSystemd() bool {
	l := f.seen().Systemd
	return f.NoSystemd && !f.simulated() || l.Skipped && l.Missing == noSystemd
}

// withoutSystemd gives the steps that ask systemd for something another form where systemd does not run. Where it was not looked for,
// or does not answer, they stay.
func (f *Facts) withoutSystemd(causes []Cause) []Cause {
	for i := range causes {
		causes[i].NextSteps = f.plainSteps(causes[i].NextSteps)
	}
	return causes
}

// plainSteps are the steps of one cause or report in that form.
func (f *Facts) plainSteps(all []NextStep) []NextStep {
	if !f.lacksSystemd() {
		return all
	}
	var s steps
	for _, step := range all {
		if plain, ok := f.plainStep(step); ok {
			s = append(s, plain)
		}
	}
	return s.done()
}

// plainStep is a step without systemctl and journalctl; false where nothing takes its place.
func (f *Facts) plainStep(step NextStep) (NextStep, bool) {
	command := step.Command
	if !strings.Contains(command, "systemctl ") && !strings.Contains(command, "journalctl ") {
		return step, true
	}
	pid := f.daemonPID(command)
	switch {
	case command == "systemctl reboot":
		step.Command = "reboot"
	case strings.Contains(command, "journalctl --no-pager -k "): // the kernel's own log has no --since
		before, after, _ := strings.Cut(command, "journalctl --no-pager -k ")
		after = strings.TrimPrefix(after, "--since -1h")
		if lines, ok := strings.CutPrefix(after, "-n "); ok {
			after = " | tail -n " + lines
		}
		step.Command = before + "dmesg -T" + after
	case strings.HasPrefix(command, "systemctl status ") && pid > 1:
		step.Command = fmt.Sprintf("ps -o pid,ppid,stat,lstart,etime,comm -p %d", pid)
		step.Why = "Does it run, since when, and who is its parent? Systemd does not run here."
	case strings.HasPrefix(command, "journalctl ") && strings.Contains(command, " -u ") && pid > 1:
		step.Command = fmt.Sprintf("ls -l /proc/%d/fd/1 /proc/%d/fd/2", pid, pid)
		step.Why = "Where does its log go? Read its end there: " + step.Why
	case strings.Contains(command, "systemctl restart ") || strings.Contains(command, "systemctl start "):
		name := f.startedBy(command)
		step.Command = "grep -rlsw " + name + " /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab"
		step.Why = fmt.Sprintf("Systemd does not run here: what starts %s? Let that do it. %s", name, step.Why)
	default:
		return step, false
	}
	return step, true
}

// daemonPID is the process that a command about a unit is about; 0 where it does not run, or is not known.
func (f *Facts) daemonPID(command string) int {
	if !f.aboutKubelet(command) {
		return f.daemon().PID
	}
	if f.Kubelet != nil {
		return f.Kubelet.PID
	}
	if all := f.processes(host.RoleKubelet); len(all) > 0 {
		return all[0].PID
	}
	return 0
}

func (f *Facts) aboutKubelet(command string) bool {
	unit := f.kubeletUnit()
	return strings.Contains(command, unit) && unit != f.unit()
}

// startedBy names the program that a command about a unit starts, safe to paste.
func (f *Facts) startedBy(command string) string {
	name := strings.ReplaceAll(strings.ToLower(f.runtimeName()), "-o", "o") // CRI-O's is crio
	if !f.aboutKubelet(command) && safe(name) {
		return name
	}
	return "kubelet"
}
