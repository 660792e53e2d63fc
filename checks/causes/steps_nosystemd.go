package causes

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// WithoutSystemd gives the steps that ask systemd for something another form where systemd does not run. Where it was
// not looked for, or does not answer, they stay.
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
	name, pid := strings.ReplaceAll(strings.ToLower(f.Target.Name), "-o", "o"), f.Target.Daemon.PID // CRI-O's is crio
	if unit := f.Target.KubeletUnit; strings.Contains(command, unit) && unit != f.Target.Unit || !facts.Safe(name) {
		name, pid = "kubelet", 0
		if all := facts.ProcessesOf(f, host.RoleKubelet); len(all) > 0 {
			pid = all[0].PID
		}
	}
	switch {
	case command == "systemctl reboot":
		step.Command = "reboot"
	case strings.Contains(command, "journalctl --no-pager -k "): // the kernel's own log has no --since
		step.Command = strings.NewReplacer("journalctl --no-pager -k --since -1h", "dmesg -T",
			"journalctl --no-pager -k -n", "dmesg -T | tail -n").Replace(command)
	case strings.HasPrefix(command, "systemctl status ") && pid > 1:
		step.Command = fmt.Sprintf("ps -o pid,ppid,stat,lstart,etime,comm -p %d", pid)
		step.Why = "Does it run, since when, and who is its parent? Systemd does not run here."
	case strings.Contains(command, "systemctl restart ") || strings.Contains(command, "systemctl start "):
		step.Command = "grep -rlsw " + name + " /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab"
		step.Why = fmt.Sprintf("Systemd does not run here: what starts %s? Let that do it. %s", name, step.Why)
	default:
		return step, false
	}
	return step, true
}
