package causes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// BlastRadii returns the Touches constants by their damage: nothing, records of the dead, one pod, all that runs.
func BlastRadii() []string {
	return []string{
		checks.TouchesNothing, checks.TouchesDump, checks.TouchesScheduler, checks.TouchesLimit, checks.TouchesLogs,
		checks.TouchesExited, checks.TouchesProcess, checks.TouchesPod, checks.TouchesMount, checks.TouchesSystemd,
		checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode,
	}
}

// Steps collects next steps; Done returns them in the order in which a person should try them.
type Steps []checks.NextStep

// Add appends a step. A command with a word that is not safe must not be added at all: see facts.Safe.
func (s *Steps) Add(touches, command, why string) {
	*s = append(*s, checks.NextStep{Why: why, Command: command, Touches: touches})
}

// Look appends a step that only reads.
func (s *Steps) Look(command, why string) { s.Add(checks.TouchesNothing, command, why) }

// lookIf appends a step that only reads, where the condition holds.
func (s *Steps) lookIf(condition bool, command, why string) {
	if condition {
		s.Look(command, why)
	}
}

// lookBlocked appends a look at the tasks in uninterruptible sleep. ps would hang where one holds the lock of its
// memory map, by reading its command line.
func (s *Steps) lookBlocked() {
	s.Look("grep -s ') D ' /proc/[0-9]*/task/[0-9]*/stat | cut -d ' ' -f 1-3",
		"List tasks in uninterruptible sleep, a few times: which stay?")
}

// lookStacks appends the kernel stacks of all blocked tasks, which the kernel writes into its log.
func (s *Steps) lookStacks() {
	s.Add(checks.TouchesDump, "echo w > /proc/sysrq-trigger; journalctl --no-pager -k -n 200",
		"Capture the stacks of all blocked tasks (written to the kernel log)")
}

// lookStack appends where a process waits.
func (s *Steps) lookStack(pid int, why string) {
	s.lookIf(pid > 1, textf("cat /proc/%d/stack /proc/%[1]d/wchan; grep State /proc/%[1]d/status", pid), why)
}

// lookRelist appends the goroutines of the kubelet.
func (s *Steps) lookRelist() {
	s.Look(`kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
		"Read the kubelet's goroutines: where does it wait?")
}

// lookPods appends the pods of the node.
func (s *Steps) lookPods(why string) {
	s.Look(`kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`, why)
}

// restartKubelet appends the restart of the kubelet.
func (s *Steps) restartKubelet(f *facts.Facts, why string) {
	s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit, why)
}

// drain appends the drain of the node.
func (s *Steps) drain(why string) {
	s.Add(checks.TouchesNode,
		`kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, why)
}

// cordon appends what keeps new pods away.
func (s *Steps) cordon() {
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keep new pods away while this lasts")
}

// addNodeIf appends the last rungs of the ladder, where the condition holds.
func (s *Steps) addNodeIf(condition bool, why string) {
	if !condition {
		return
	}
	s.cordon()
	s.drain("Move away what can still be moved; data in emptyDir volumes is lost")
	s.Add(checks.TouchesNode, "systemctl reboot", why)
}

// Done orders the steps by their damage, and drops repeated commands. Of those that touch the same, steps through the
// API come before steps by force; else they keep their order.
func (s Steps) Done() []checks.NextStep {
	out := make([]checks.NextStep, 0, len(s))
	for _, step := range s {
		if !slices.ContainsFunc(out, func(o checks.NextStep) bool { return o.Command == step.Command }) {
			out = append(out, step)
		}
	}
	radii := BlastRadii()
	slices.SortStableFunc(out, func(a, b checks.NextStep) int {
		return cmp.Or(slices.Index(radii, a.Touches)-slices.Index(radii, b.Touches), force(a)-force(b))
	})
	return out
}

// force is 1 for a step that ends or removes something without asking its owner, else 0.
func force(s checks.NextStep) int {
	for _, by := range []string{"kill -KILL ", "kill -TERM ", " rmp -f ", "umount "} {
		if strings.Contains(s.Command, by) {
			return 1
		}
	}
	return 0
}

// Finish puts the node's name into the steps of causes, which write "$(hostname)" for it, and gives them another form
// where systemd does not run. Few nodes have a kubeconfig that may drain them, so the command is pasted elsewhere: on a
// control plane node it would drain that one.
func Finish(f *facts.Facts, causes []checks.Cause) []checks.Cause {
	name := facts.NodeName(f)
	for k := range causes {
		for i := range causes[k].NextSteps {
			switch s := &causes[k].NextSteps[i]; {
			case !strings.Contains(s.Command, "$(hostname)"):
			case facts.Safe(name):
				s.Command = strings.NewReplacer(`"$(hostname)"`, name, "$(hostname)", name).Replace(s.Command)
			case s.Touches != checks.TouchesNothing:
				s.Why = strings.TrimSuffix(s.Why, ".") + ". If run elsewhere, replace $(hostname) with the node name"
			}
		}
		steps := PlainSteps(f, withBundle(f, causes[k].NextSteps))
		if len(steps) == 0 { // of names that cannot be pasted, say
			var s Steps
			s.Look("kdiag explain "+causes[k].Code, "Read how to confirm it, and what ends it")
			steps = s.Done()
		}
		causes[k].NextSteps = steps
	}
	return causes
}

// withBundle adds kdiag bundle where a step ends a pod or more, and with that what explains the fault. The archive
// holds the goroutine dump of the runtime, so that step is left out. A report made from an archive needs no other.
func withBundle(f *facts.Facts, all []checks.NextStep) []checks.NextStep {
	radii := BlastRadii()
	ends := func(s checks.NextStep) bool {
		return slices.Index(radii, s.Touches) >= slices.Index(radii, checks.TouchesPod)
	}
	if f.Runtime.From != "" || !slices.ContainsFunc(all, ends) {
		return all
	}
	s := Steps(slices.DeleteFunc(all, func(s checks.NextStep) bool {
		return strings.HasPrefix(s.Command, "kdiag stacks --capture")
	}))
	s.Add(checks.TouchesDump, facts.KdiagCommand(f, "bundle"),
		"Save logs, facts and dumps; the steps below destroy them")
	return s.Done()
}

// addCapture adds the goroutine dump of the runtime, which is gone after any restart, unless kdiag has it. Only daemons
// that are known to write one are asked. One that is stopped or sleeps uninterruptibly for good would not act on it.
func addCapture(f *facts.Facts, s *Steps) {
	if f.Stacks.Taken {
		return
	}
	d := f.Target.Daemon
	name := strings.ReplaceAll(strings.ToLower(f.Target.Name), "cri-o", "crio")
	if d.Process != nil {
		if facts.IsStopped(d.Process) || facts.BeyondSignals(f, d.Process) {
			return
		}
		name = d.Process.Name
	} else if f.Target.Unit == "containerd" {
		name = "containerd"
	}
	if slices.Contains([]string{"containerd", "crio", "cri-dockerd", "dockerd"}, name) {
		command := "kdiag stacks --capture"
		if !f.Target.Simulated { // there is none to capture: render makes it a comment
			command = facts.KdiagCommand(f, "stacks --capture")
		}
		s.Add(checks.TouchesDump, command, "Capture the runtime's goroutines: who waits for whom")
	}
}

// AddPressure adds a look at whether the host starves, where kdiag has not looked.
func AddPressure(f *facts.Facts, s *Steps) {
	s.lookIf(!f.Seen.Pressure.OK, "grep . /proc/pressure/*",
		"Check host pressure (starved if io full > 20, memory full > 5)")
}

// AddDisk adds a look at the disks that the runtime needs: its root folder, which may be its own disk, and /run.
func AddDisk(f *facts.Facts, s *Steps, why string) {
	s.Look(textf("df -h %s /run; df -i %[1]s /run", cmp.Or(facts.RootFolder(f), "/var/lib")), why)
}

// addLookAgain adds a further look at a process that was seen in uninterruptible sleep, which may be the moment's.
func addLookAgain(s *Steps, p host.Process) {
	s.Look(textf("ps -o pid,stat,wchan:32,etime,comm -p %d", p.PID), "Look a few times: is it still in state D?")
}

// addRestart adds the restart of the runtime's unit, the last resort short of the node. The kubelet's own runtime may
// be well where another endpoint was asked: then a restart cures no node.
func addRestart(f *facts.Facts, s *Steps, caveats ...string) {
	unit := f.Target.Unit
	if unit == "" || f.Target.OtherEndpoint {
		return
	}
	command := "systemctl restart " + unit
	touches, why := checks.TouchesRuntime, "Restart "+unit+"; only execs and pulls are lost"
	switch {
	case f.Target.RestartsKubelet:
		touches = checks.TouchesKubelet
		why = "Restart runtime and kubelet, but not while a mount hangs"
	case unit == facts.UnitsCRIDockerd:
		command = "systemctl start " + facts.UnitDocker + "; systemctl restart " + facts.UnitCRIDocker
		why = "Start docker if it does not run, and restart cri-dockerd; containers are not touched"
	case unit == facts.UnitDocker:
		touches = checks.TouchesNode
		why = "Restart docker; stops all containers unless docker info shows Live Restore Enabled: true"
	}
	if u := f.Target.RuntimeUnit; u != nil && u.Result == "start-limit-hit" {
		command = "systemctl reset-failed " + unit + "; " + command
	}
	s.Add(touches, command, strings.Join(append(caveats, why), " "))
}

// addProcesses adds the smallest interventions for one object: its stuck runc, then its shim.
func addProcesses(f *facts.Facts, s *Steps, i plegbench.Inspection) {
	what := facts.Label(i)
	for _, p := range facts.ProcessesServing(f, i.ID, i.SandboxID) {
		addStack(s, p, what)
		if facts.IsConmon(p) && !facts.IsStopped(&p) {
			if i.Kind == facts.KindContainer && p.ObjectID == i.ID && facts.Safe(i.ID) {
				s.Add(checks.TouchesPod, facts.CrictlCommand(f, "stop "+i.ID),
					textf("Stop the container; do not kill %v, which supervises it", p))
			}
			continue
		}
		addKill(f, s, p, what)
	}
}

// addStack adds a look at where a process waits.
func addStack(s *Steps, p host.Process, what string) {
	s.lookStack(p.PID, textf("Look where %v of %s waits: a lock, a mount or a device", p, what))
}

// resume adds the step that resumes a stopped process: the end of its tracer, or a signal.
func (s *Steps) resume(p host.Process) {
	if p.Tracer > 1 {
		s.Look(textf("ps -o pid,user,etime,comm -p %d", p.Tracer), textf("Find out who traces %v", p))
		s.Add(checks.TouchesProcess, textf("kill %d", p.Tracer), textf("End the tracer; %v resumes", p))
		return
	}
	s.Add(checks.TouchesProcess, textf("kill -CONT %d", p.PID), textf("Resume the stopped %v (harmless)", p))
}

// addKill adds the step that frees one process.
func addKill(f *facts.Facts, s *Steps, p host.Process, what string) {
	age := facts.AgeOf(f, p)
	switch {
	case p.PID <= 1:
	case facts.IsStopped(&p):
		s.resume(p)
	case facts.IsUninterruptible(&p): // no signal reaches it
	case p.Role == host.RoleOCI && (age == 0 || age >= facts.LongOCI): // a younger one is at work, not stuck
		s.Add(checks.TouchesProcess, textf("kill -KILL %d", p.PID), textf("End only the stuck %v", p))
	case p.Role == host.RoleShim && !facts.IsConmon(p):
		s.Add(checks.TouchesPod, textf("kill -KILL %d", p.PID), "End the shim of "+what+", and its pod's containers")
	}
}

// addDeletePod adds the deletion of one pod: why, empty for a pod that hangs, and when its owner replaces it. A static
// pod lives as long as its manifest: only its mirror can be deleted.
func addDeletePod(f *facts.Facts, s *Steps, pod crictl.Pod, why string) {
	switch {
	case !facts.Safe(pod.Namespace, pod.Name):
	case facts.IsStaticPod(f, pod.UID):
		folder := cmp.Or(f.Seen.Settings.Value.StaticPodPath, kubelet.UsualManifests)
		s.lookIf(facts.SafePath.MatchString(folder), "ls -l "+folder,
			"Find the manifest of this static pod; moved away, it ends the pod")
	default:
		text := cmp.Or(strings.TrimSuffix(why, "."), "Delete the pod")
		switch owner := facts.WorkloadOf(f, pod.UID); {
		case owner.Kind == "StatefulSet":
			text += "; its StatefulSet waits until it is gone (the stop may hang; --force risks two writers)"
		case owner.Kind == "DaemonSet":
			text += "; its DaemonSet replaces it here only, once it is gone (the stop may hang)"
		case why != "":
			text = why
		default:
			text += "; a Deployment's replacement can start elsewhere (here the stop may hang)"
		}
		s.Add(checks.TouchesPod, textf("kubectl delete pod -n %s %s --wait=false", pod.Namespace, pod.Name), text)
	}
}

// podOf returns the pod that the lists have under a UID.
func podOf(f *facts.Facts, uid string) crictl.Pod {
	if uid == "" {
		return crictl.Pod{}
	}
	s := facts.OwnedBy(f, host.Owner{PodUID: uid})
	return crictl.Pod{Namespace: s.Namespace, Name: s.Pod, UID: uid}
}

// AddService adds a look at the runtime's unit and its log.
func AddService(f *facts.Facts, s *Steps) {
	unit, d := f.Target.Unit, f.Target.Daemon
	switch {
	case unit != "":
		s.Look("systemctl status --no-pager "+unit, "Check whether the unit runs, and since when")
		s.Look("journalctl --no-pager -n 100 -u "+strings.Join(strings.Fields(unit), " -u "), "Read its last records")
	case d.PID > 1 && !d.Guessed:
		s.Look(textf("ls -l /proc/%d/exe; cat /proc/%[1]d/cgroup; ps -o pid,ppid,user,lstart,stat,comm -p %[1]d",
			d.PID), "Check which program holds the socket, and who started it")
	default:
		s.Look("ss -xlp", "See which process listens on which socket; the runtime's unit is unknown")
	}
}

// PlainSteps gives the steps that ask systemd for something another form where systemd does not run. Where it was not
// looked for, or does not answer, they stay.
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

// withoutTimedatectl leaves out of a command what systemd alone answers, where something else beside it does.
var withoutTimedatectl = strings.NewReplacer(
	"; timedatectl", "", "timedatectl; ", "", " || timedatectl timesync-status", "",
)

// plainStep is a step without systemctl and journalctl; false where nothing takes its place.
func plainStep(f *facts.Facts, step checks.NextStep) (checks.NextStep, bool) {
	step.Command = withoutTimedatectl.Replace(step.Command)
	command := step.Command
	if !strings.Contains(command, "systemctl ") && !strings.Contains(command, "journalctl ") {
		return step, true
	}
	name := strings.ReplaceAll(strings.ToLower(f.Target.Name), "-o", "o") // CRI-O's is crio
	if unit := f.Target.KubeletUnit; strings.Contains(command, unit) && unit != f.Target.Unit || !facts.Safe(name) {
		name = "kubelet"
	}
	switch {
	case command == "systemctl reboot":
		step.Command = "reboot"
	case strings.Contains(command, "journalctl --no-pager -k "): // the kernel's own log has no --since
		step.Command = strings.NewReplacer("journalctl --no-pager -k --since -1h", "dmesg -T",
			"journalctl --no-pager -k -n", "dmesg -T | tail -n").Replace(command)
	case strings.Contains(command, "systemctl restart ") || strings.Contains(command, "systemctl start "):
		step.Command = "grep -rlsw " + name + " /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab"
		step.Why = textf("Find what starts %s (systemd does not run here). With it: %s", name, step.Why)
	default:
		return step, false
	}
	return step, true
}

// KubeletLog is the command that prints what the kubelet has logged in the window.
func KubeletLog(f *facts.Facts) string {
	var units []string
	for _, u := range strings.Fields(f.Target.KubeletUnit) {
		units = append(units, "-u "+u)
	}
	return "journalctl --no-pager " + strings.Join(units, " ") + " --since -15min"
}
