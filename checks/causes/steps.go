package causes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/plegbench"
)

// addDeletePodByUID adds the deletion of a pod that the lists name.
func addDeletePodByUID(f *facts.Facts, s *Steps, uid, why string) {
	if pod := facts.OwnedBy(f, host.Owner{PodUID: uid}); uid != "" && facts.Safe(pod.Namespace, pod.Pod) {
		s.Add(checks.TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", pod.Namespace, pod.Pod), why)
	}
}

// BlastRadii orders the Touches constants from nothing to the whole node, as the remediation ladder does: settings and
// cordons come after what is removed and before any daemon is restarted.
func BlastRadii() []string {
	return []string{
		checks.TouchesNothing, checks.TouchesProcess, checks.TouchesPod, checks.TouchesExited, checks.TouchesScheduler, checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode,
	}
}

// Steps collects next steps; done returns them in order of blast radius.
type Steps []checks.NextStep

// Add appends a step. A command with a word that is not safe must not be added at all: see safe.
func (s *Steps) Add(touches, command, why string) {
	*s = append(*s, checks.NextStep{Why: why, Command: command, Touches: touches})
}

// NameNode puts the node's name into the steps of causes, which write "$(hostname)" for it. Few nodes have a kubeconfig that may drain them,
// so what is said here is pasted elsewhere: on a control plane node it would drain that one.
func NameNode(f *facts.Facts, causes []checks.Cause) []checks.Cause {
	name := facts.NodeName(f)
	for _, c := range causes {
		for i := range c.NextSteps {
			switch s := &c.NextSteps[i]; {
			case !strings.Contains(s.Command, "$(hostname)"):
			case facts.Safe(name):
				s.Command = strings.NewReplacer(`"$(hostname)"`, name, "$(hostname)", name).Replace(s.Command)
			case s.Touches != checks.TouchesNothing:
				s.Why += " Pasted elsewhere, it needs the node's name for $(hostname)."
			}
		}
	}
	return causes
}

// Done orders the steps, keeping the order of those that touch the same, and drops repeated commands.
func (s Steps) Done() []checks.NextStep {
	out := make([]checks.NextStep, 0, len(s))
	for _, step := range s {
		if !slices.ContainsFunc(out, func(o checks.NextStep) bool { return o.Command == step.Command }) {
			out = append(out, step)
		}
	}
	radii := BlastRadii()
	slices.SortStableFunc(out, func(a, b checks.NextStep) int {
		return slices.Index(radii, a.Touches) - slices.Index(radii, b.Touches)
	})
	return out
}

// addCapture adds the goroutine dump of the runtime, which is gone after any restart. Only daemons that are known to
// take SIGUSR1 for it get one: others would die of the signal. One that is stopped or sleeps
// uninterruptibly for good would not act on it.
func addCapture(f *facts.Facts, s *Steps) {
	d := f.Target.Daemon
	name := strings.ToLower(f.Target.Name)
	if d.Process != nil {
		if facts.IsStopped(d.Process) || facts.BeyondSignals(f, d.Process) {
			return
		}
		name = d.Process.Name
	}
	comm, where := "", ""
	switch {
	case name == "containerd", d.Process == nil && f.Target.Unit == "containerd":
		comm, where = "containerd", "its log and /tmp/containerd.PID.stacks.log (with PrivateTmp below /tmp/systemd-private-*)"
	case name == "crio", name == "cri-o":
		comm, where = "crio", "/tmp/crio-goroutine-stacks-*.log"
	case name == "dockerd":
		comm, where = "dockerd", "goroutine-stacks-*.log in its exec-root, /var/run/docker by default"
	default:
		return
	}
	command := "pkill -USR1 -x " + comm
	if d.Process != nil {
		command = fmt.Sprintf("kill -USR1 %d", d.PID)
	}
	s.Add(checks.TouchesNothing, command, "Keep the evidence: the daemon dumps its goroutines into "+where+". A restart destroys it.")
}

// AddPressure adds a look at whether the host starves, where kdiag has not looked.
func AddPressure(f *facts.Facts, s *Steps) {
	if f.Seen.Pressure.OK {
		return
	}
	s.Add(checks.TouchesNothing, "grep . /proc/pressure/*",
		"Is the host starving? io full over 20, memory full over 5 or cpu some over 60 in avg10 makes the daemon a victim.")
}

// AddDisk adds a look at the disks that the runtime needs: its root folder, which may be a disk of its own, and /run.
func AddDisk(f *facts.Facts, s *Steps, why string) {
	root := facts.RootFolder(f)
	if root == "" {
		root = "/var/lib"
	}
	s.Add(checks.TouchesNothing, fmt.Sprintf("df -h %s /run; df -i %s /run", root, root), why)
}

// addLookAgain adds a further look at a process that was seen in uninterruptible sleep, which may be the moment's.
func addLookAgain(s *Steps, p host.Process) {
	s.Add(checks.TouchesNothing, fmt.Sprintf("ps -o pid,stat,wchan:32,etime,comm -p %d", p.PID),
		fmt.Sprintf("Look again, a few times: whoever uses a busy disk is in D for moments. Is %s still in D, in the same place?", facts.ProcessLabel(p)))
}

// addRestart adds the restart of the runtime's unit, the last resort short of the node.
func addRestart(f *facts.Facts, s *Steps) {
	unit := f.Target.Unit
	switch {
	case unit == "", f.Target.OtherEndpoint: // the kubelet's own runtime may be well, and restarts of any other cure no node
	case f.Target.RestartsKubelet:
		s.Add(checks.TouchesKubelet, "systemctl restart "+unit,
			"The unit runs runtime and kubelet together; containers survive it. While a mount hangs, a restarted kubelet may not come up.")
	case unit == facts.UnitsCRIDockerd:
		s.Add(checks.TouchesRuntime, "systemctl restart "+facts.UnitCRIDocker,
			"Restarts cri-dockerd alone: docker and its containers are not touched. Leave the kubelet alone: it recovers by itself.")
		if !f.Target.NobodyServes { // else cri-dockerd itself is at fault
			addRestartDocker(s)
		}
	case unit == facts.UnitDocker:
		addRestartDocker(s)
	default:
		s.Add(checks.TouchesRuntime, "systemctl restart "+unit,
			"Running containers survive it, execs and pulls do not. Dump first. Leave the kubelet alone: it recovers by itself, "+
				"and restarted while a mount hangs it may not come up.")
	}
}

// addRestartDocker adds the restart of docker, which unlike that of other runtimes ends what runs.
func addRestartDocker(s *Steps) {
	s.Add(checks.TouchesNode, "systemctl restart "+facts.UnitDocker,
		"Stops all containers unless docker info shows Live Restore Enabled: true. Only if docker itself does not answer (docker ps hangs).")
}

// addProcesses adds the smallest interventions for one object: its stuck runc, then its shim, then its pod.
func addProcesses(f *facts.Facts, s *Steps, i plegbench.Inspection) {
	what := facts.Label(i)
	for _, p := range facts.ProcessesServing(f, i.ID, i.SandboxID) {
		if p.PID <= 1 {
			continue
		}
		addStack(s, p, what)
		if facts.IsConmon(p) && !facts.IsStopped(&p) {
			if i.Kind == facts.KindContainer && p.ObjectID == i.ID && facts.Safe(i.ID) {
				s.Add(checks.TouchesPod, facts.CrictlCommand(f, "stop "+i.ID),
					fmt.Sprintf("Stops the container of %s; it may hang as well. Do not kill %s: the container would run on with nobody watching it.", what, facts.ProcessLabel(p)))
			}
			continue
		}
		addKill(f, s, p, what)
	}
}

// addStack adds a look at where a process waits.
func addStack(s *Steps, p host.Process, what string) {
	s.Add(checks.TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep State /proc/%d/status", p.PID, p.PID, p.PID),
		fmt.Sprintf("Where does %s of %s wait? Name the lock, mount or device.", facts.ProcessLabel(p), what))
}

// addKill adds the step that frees one process.
func addKill(f *facts.Facts, s *Steps, p host.Process, what string) {
	switch {
	case p.PID <= 1:
	case facts.IsStopped(&p):
		s.Add(checks.TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), facts.ProcessLabel(p)+" is stopped; nothing is lost by continuing it.")
	case facts.IsUninterruptible(&p):
		return // no signal reaches it
	case p.Role == host.RoleOCI:
		if a := facts.AgeOf(f, p); a > 0 && a < facts.LongOCI {
			return // at work, not stuck
		}
		s.Add(checks.TouchesProcess, fmt.Sprintf("kill -KILL %d", p.PID),
			fmt.Sprintf("Ends only the stuck %s; the shim reports an error and the lock is freed.", facts.ProcessLabel(p)))
	case p.Role == host.RoleShim && !facts.IsConmon(p):
		s.Add(checks.TouchesPod, fmt.Sprintf("kill -KILL %d", p.PID),
			fmt.Sprintf("Ends the shim of %s: all containers of that pod are lost, nothing else is.", what))
	}
}

// addDeletePod adds the deletion of one pod. A static pod lives as long as its manifest: only its mirror can be deleted.
func addDeletePod(f *facts.Facts, s *Steps, i plegbench.Inspection) {
	if !facts.Safe(i.Pod.Namespace, i.Pod.Name) {
		return
	}
	if facts.IsStatic(f, i) {
		s.Add(checks.TouchesNothing, "ls -l /etc/kubernetes/manifests",
			"A static pod: kubectl delete does nothing to it. It ends when its manifest leaves the kubelet's folder, usually this one.")
		return
	}
	s.Add(checks.TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", i.Pod.Namespace, i.Pod.Name),
		"A Deployment's replacement can start on another node meanwhile; that of a StatefulSet or DaemonSet waits until this one is gone. Here the stop may hang as well.")
}

// addNode adds the last rungs of the ladder.
func addNode(s *Steps, why string) {
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keeps new pods away while this lasts.")
	s.Add(checks.TouchesNode, `kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, "Moves away what can still be moved. --delete-emptydir-data loses the data in emptyDir volumes.")
	s.Add(checks.TouchesNode, "systemctl reboot", why)
}

// AddService adds a look at the runtime's unit and its log.
func AddService(f *facts.Facts, s *Steps) {
	unit := f.Target.Unit
	if pid := f.Target.Daemon.PID; unit == "" && pid > 1 {
		s.Add(checks.TouchesNothing, fmt.Sprintf("ls -l /proc/%d/exe; cat /proc/%d/cgroup; ps -o pid,ppid,user,lstart,stat,comm -p %d", pid, pid, pid),
			"What is it that holds the socket, and who started it?")
		return
	}
	if unit == "" {
		s.Add(checks.TouchesNothing, "ss -xlp", "Which process listens on which socket? The runtime's unit is not known here.")
		return
	}
	s.Add(checks.TouchesNothing, "systemctl status --no-pager "+unit, "Is the unit running, and since when?")
	var units []string
	for _, u := range strings.Fields(unit) {
		units = append(units, "-u "+u)
	}
	s.Add(checks.TouchesNothing, "journalctl --no-pager -n 100 "+strings.Join(units, " "), "What did it say last?")
}
