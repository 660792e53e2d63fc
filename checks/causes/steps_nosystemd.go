package causes

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// WithoutSystemd gives the steps that ask systemd for something another form where systemd does not run. Where it was not looked for,
// or does not answer, they stay.
func WithoutSystemd(f *facts.Facts, causes []checks.Cause) []checks.Cause {
	for i := range causes {
		causes[i].NextSteps = PlainSteps(f, causes[i].NextSteps)
	}
	return causes
}

// PlainSteps are the steps of one cause or report in that form.
func PlainSteps(f *facts.Facts, all []checks.NextStep) []checks.NextStep {
	if !f.Target.NoSystemd {
		return all
	}
	var s Steps
	for _, step := range all {
		if plain, ok := plainStep(f, step); ok {
			s = append(s, plain)
		}
	}
	return s.Done()
}

// plainStep is a step without systemctl and journalctl; false where nothing takes its place.
func plainStep(f *facts.Facts, step checks.NextStep) (checks.NextStep, bool) {
	command := step.Command
	if !strings.Contains(command, "systemctl ") && !strings.Contains(command, "journalctl ") {
		return step, true
	}
	pid := daemonPID(f, command)
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
		name := startedBy(f, command)
		step.Command = "grep -rlsw " + name + " /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab"
		step.Why = fmt.Sprintf("Systemd does not run here: what starts %s? Let that do it. %s", name, step.Why)
	default:
		return step, false
	}
	return step, true
}

// daemonPID is the process that a command about a unit is about; 0 where it does not run, or is not known.
func daemonPID(f *facts.Facts, command string) int {
	if !aboutKubelet(f, command) {
		return f.Target.Daemon.PID
	}
	if f.Kubelet != nil {
		return f.Kubelet.PID
	}
	if all := facts.ProcessesOf(f, host.RoleKubelet); len(all) > 0 {
		return all[0].PID
	}
	return 0
}

func aboutKubelet(f *facts.Facts, command string) bool {
	unit := f.Target.KubeletUnit
	return strings.Contains(command, unit) && unit != f.Target.Unit
}

// startedBy names the program that a command about a unit starts, safe to paste.
func startedBy(f *facts.Facts, command string) string {
	name := strings.ReplaceAll(strings.ToLower(f.Target.Name), "-o", "o") // CRI-O's is crio
	if !aboutKubelet(f, command) && facts.Safe(name) {
		return name
	}
	return "kubelet"
}
