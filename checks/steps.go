package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// safeWord matches what may stand in a command that a person pastes: no space, quote, option or shell character.
var safeWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// safeEndpoint matches the endpoints that may stand in a command.
var safeEndpoint = regexp.MustCompile(`^unix:///[A-Za-z0-9._/@+-]+$`)

// safe reports whether all words may stand in a command.
func safe(words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !safeWord.MatchString(w) })
}

// blastRadii orders the Touches constants from nothing to the whole node, as the remediation ladder does: settings and
// cordons come after what is removed and before any daemon is restarted.
func blastRadii() []string {
	return []string{
		TouchesNothing, TouchesProcess, TouchesPod, TouchesExited, TouchesScheduler, TouchesRuntime, TouchesKubelet, TouchesNode,
	}
}

// steps collects next steps; done returns them in order of blast radius.
type steps []NextStep

// add appends a step. A command with a word that is not safe must not be added at all: see safe.
func (s *steps) add(touches, command, why string) {
	*s = append(*s, NextStep{Why: why, Command: command, Touches: touches})
}

// nodeName is the name under which the cluster knows this node: that of its settings, else that of its certificate; empty where neither is
// known.
func (f *Facts) nodeName() string {
	n := f.seen()
	if name := n.Settings.Value.NodeName; name != "" {
		return name
	}
	for _, c := range n.Certificates.Value {
		if name, ok := strings.CutPrefix(c.Subject, "system:node:"); ok && c.Role == clientCertificate {
			return name
		}
	}
	return ""
}

// nameNode puts the node's name into the steps of causes, which write "$(hostname)" for it. Few nodes have a kubeconfig that may drain them,
// so what is said here is pasted elsewhere: on a control plane node it would drain that one.
func (f *Facts) nameNode(causes []Cause) []Cause {
	name := f.nodeName()
	for _, c := range causes {
		for i := range c.NextSteps {
			switch s := &c.NextSteps[i]; {
			case !strings.Contains(s.Command, "$(hostname)"):
			case safe(name):
				s.Command = strings.NewReplacer(`"$(hostname)"`, name, "$(hostname)", name).Replace(s.Command)
			case s.Touches != TouchesNothing:
				s.Why += " Pasted elsewhere, it needs the node's name for $(hostname)."
			}
		}
	}
	return causes
}

// done orders the steps, keeping the order of those that touch the same, and drops repeated commands.
func (s steps) done() []NextStep {
	out := make([]NextStep, 0, len(s))
	for _, step := range s {
		if !slices.ContainsFunc(out, func(o NextStep) bool { return o.Command == step.Command }) {
			out = append(out, step)
		}
	}
	radii := blastRadii()
	slices.SortStableFunc(out, func(a, b NextStep) int {
		return slices.Index(radii, a.Touches) - slices.Index(radii, b.Touches)
	})
	return out
}

// crictlCommand builds a crictl command line for the endpoint that was measured. crictl gives up after two seconds
// unless told otherwise, which is too short for a large list.
func (f *Facts) crictlCommand(args string) string {
	if f.simulated() || f.Runtime.EndpointSource == "crictl.yaml" || !safeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "crictl -t 60s " + args
	}
	return "crictl -r " + f.Runtime.Endpoint + " -t 60s " + args
}

// kdiagCommand builds a kdiag command line for the endpoint that was measured. What is said of a simulation never acts on the node
// at hand.
func (f *Facts) kdiagCommand(args string) string {
	if f.simulated() {
		return "kdiag " + args + " --simulate " + or(f.Runtime.Simulate, "SCENARIO")
	}
	if f.Runtime.EndpointSource == "flag" && safeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "kdiag " + args + " --runtime-endpoint " + f.Runtime.Endpoint
	}
	return "kdiag " + args
}

// addCapture adds the goroutine dump of the runtime, which is gone after any restart. Only daemons that are known to
// take SIGUSR1 for it get one: others would die of the signal. One that is stopped or sleeps
// uninterruptibly for good would not act on it.
func (f *Facts) addCapture(s *steps) {
	d := f.daemon()
	name := strings.ToLower(f.runtimeName())
	if d.Process != nil {
		if isStopped(d.Process) || f.beyondSignals(d.Process) {
			return
		}
		name = d.Process.Name
	}
	comm, where := "", ""
	switch {
	case name == "containerd", d.Process == nil && f.unit() == "containerd":
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
	s.add(TouchesNothing, command, "Keep the evidence: the daemon dumps its goroutines into "+where+". A restart destroys it.")
}

// isConsequence reports whether another cause explains this one, which then needs no remedy of its own. What the kernel did
// is past or out of reach: the remedy stays with what follows from it.
func (f *Facts) isConsequence(code string) bool {
	return slices.ContainsFunc(Definitions(), func(d Definition) bool {
		if d.Code == codeOOMKilled || d.Code == codeKernelHung {
			return false
		}
		return slices.Contains(d.RootOf, code) && d.recognise(f) != nil && applies(f, d.Code, code)
	})
}

// addPressure adds a look at whether the host starves, where kdiag has not looked.
func (f *Facts) addPressure(s *steps) {
	if f.seen().Pressure.OK {
		return
	}
	s.add(TouchesNothing, "grep . /proc/pressure/*",
		"Is the host starving? io full over 20, memory full over 5 or cpu some over 60 in avg10 makes the daemon a victim.")
}

// addDisk adds a look at the disks that the runtime needs: its root folder, which may be a disk of its own, and /run.
func (f *Facts) addDisk(s *steps, why string) {
	root := f.rootFolder()
	if root == "" {
		root = "/var/lib"
	}
	s.add(TouchesNothing, fmt.Sprintf("df -h %s /run; df -i %s /run", root, root), why)
}

// addLookAgain adds a further look at a process that was seen in uninterruptible sleep, which may be the moment's.
func addLookAgain(s *steps, p host.Process) {
	s.add(TouchesNothing, fmt.Sprintf("ps -o pid,stat,wchan:32,etime,comm -p %d", p.PID),
		fmt.Sprintf("Look again, a few times: whoever uses a busy disk is in D for moments. Is %s still in D, in the same place?", processLabel(p)))
}

// addRestart adds the restart of the runtime's unit, the last resort short of the node.
func (f *Facts) addRestart(s *steps) {
	unit := f.unit()
	switch {
	case unit == "", f.otherEndpoint(): // the kubelet's own runtime may be well, and restarts of any other cure no node
	case f.restartsKubelet():
		s.add(TouchesKubelet, "systemctl restart "+unit,
			"The unit runs runtime and kubelet together; containers survive it. While a mount hangs, a restarted kubelet may not come up.")
	case unit == unitsCRIDockerd:
		s.add(TouchesRuntime, "systemctl restart "+unitCRIDocker,
			"Restarts cri-dockerd alone: docker and its containers are not touched. Leave the kubelet alone: it recovers by itself.")
		if !f.nobodyServes() { // else cri-dockerd itself is at fault
			addRestartDocker(s)
		}
	case unit == unitDocker:
		addRestartDocker(s)
	default:
		s.add(TouchesRuntime, "systemctl restart "+unit,
			"Running containers survive it, execs and pulls do not. Dump first. Leave the kubelet alone: it recovers by itself, "+
				"and restarted while a mount hangs it may not come up.")
	}
}

// addRestartDocker adds the restart of docker, which unlike that of other runtimes ends what runs.
func addRestartDocker(s *steps) {
	s.add(TouchesNode, "systemctl restart "+unitDocker,
		"Stops all containers unless docker info shows Live Restore Enabled: true. Only if docker itself does not answer (docker ps hangs).")
}

// addProcesses adds the smallest interventions for one object: its stuck runc, then its shim, then its pod.
func (f *Facts) addProcesses(s *steps, i plegbench.Inspection) {
	what := label(i)
	for _, p := range f.processesOf(i.ID, i.SandboxID) {
		if p.PID <= 1 {
			continue
		}
		addStack(s, p, what)
		if isConmon(p) && !isStopped(&p) {
			if i.Kind == kindContainer && p.ObjectID == i.ID && safe(i.ID) {
				s.add(TouchesPod, f.crictlCommand("stop "+i.ID),
					fmt.Sprintf("Stops the container of %s; it may hang as well. Do not kill %s: the container would run on with nobody watching it.", what, processLabel(p)))
			}
			continue
		}
		f.addKill(s, p, what)
	}
}

// addStack adds a look at where a process waits.
func addStack(s *steps, p host.Process, what string) {
	s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep State /proc/%d/status", p.PID, p.PID, p.PID),
		fmt.Sprintf("Where does %s of %s wait? Name the lock, mount or device.", processLabel(p), what))
}

// addKill adds the step that frees one process.
func (f *Facts) addKill(s *steps, p host.Process, what string) {
	switch {
	case p.PID <= 1:
	case isStopped(&p):
		s.add(TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), processLabel(p)+" is stopped; nothing is lost by continuing it.")
	case isUninterruptible(&p):
		return // no signal reaches it
	case p.Role == host.RoleOCI:
		if a := f.age(p); a > 0 && a < longOCI {
			return // at work, not stuck
		}
		s.add(TouchesProcess, fmt.Sprintf("kill -KILL %d", p.PID),
			fmt.Sprintf("Ends only the stuck %s; the shim reports an error and the lock is freed.", processLabel(p)))
	case p.Role == host.RoleShim && !isConmon(p):
		s.add(TouchesPod, fmt.Sprintf("kill -KILL %d", p.PID),
			fmt.Sprintf("Ends the shim of %s: all containers of that pod are lost, nothing else is.", what))
	}
}

// addDeletePod adds the deletion of one pod. A static pod lives as long as its manifest: only its mirror can be deleted.
func (f *Facts) addDeletePod(s *steps, i plegbench.Inspection) {
	if !safe(i.Pod.Namespace, i.Pod.Name) {
		return
	}
	if f.isStatic(i) {
		s.add(TouchesNothing, "ls -l /etc/kubernetes/manifests",
			"A static pod: kubectl delete does nothing to it. It ends when its manifest leaves the kubelet's folder, usually this one.")
		return
	}
	s.add(TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", i.Pod.Namespace, i.Pod.Name),
		"A Deployment's replacement can start on another node meanwhile; that of a StatefulSet or DaemonSet waits until this one is gone. Here the stop may hang as well.")
}

// isStatic reports whether the kubelet has the pod of an inspection from a file or a URL, not from the API server.
func (f *Facts) isStatic(i plegbench.Inspection) bool {
	list := f.Measurement.Sandboxes
	return list != nil && slices.ContainsFunc(list.Sandboxes, func(s crictl.PodSandbox) bool {
		return s.ID == i.SandboxID && s.ConfigSource != "" && s.ConfigSource != "api"
	})
}

// addNode adds the last rungs of the ladder.
func addNode(s *steps, why string) {
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keeps new pods away while this lasts.")
	s.add(TouchesNode, `kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, "Moves away what can still be moved. --delete-emptydir-data loses the data in emptyDir volumes.")
	s.add(TouchesNode, "systemctl reboot", why)
}

// addService adds a look at the runtime's unit and its log.
func (f *Facts) addService(s *steps) {
	unit := f.unit()
	if pid := f.daemon().PID; unit == "" && pid > 1 {
		s.add(TouchesNothing, fmt.Sprintf("ls -l /proc/%d/exe; cat /proc/%d/cgroup; ps -o pid,ppid,user,lstart,stat,comm -p %d", pid, pid, pid),
			"What is it that holds the socket, and who started it?")
		return
	}
	if unit == "" {
		s.add(TouchesNothing, "ss -xlp", "Which process listens on which socket? The runtime's unit is not known here.")
		return
	}
	s.add(TouchesNothing, "systemctl status --no-pager "+unit, "Is the unit running, and since when?")
	var units []string
	for _, u := range strings.Fields(unit) {
		units = append(units, "-u "+u)
	}
	s.add(TouchesNothing, "journalctl --no-pager -n 100 "+strings.Join(units, " "), "What did it say last?")
}
