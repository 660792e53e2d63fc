package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func cniHung() Definition {
	return Definition{
		Code:  codeCNIHung,
		Title: "a CNI operation does not return",
		Means: "A CNI plugin, or what it talks to, does not come back. containerd holds its CNI lock meanwhile, and Status needs that lock: Status hangs while " +
			"lists and status calls of pods are answered in milliseconds.\n\n" +
			"The kubelet asks Status every five seconds. After 30 s without an answer the node says \"container runtime is down\", " +
			"although crictl ps works; PLEG stays healthy. Starting and stopping pods with their own network hangs for up to four minutes each, " +
			"and sandboxes that cannot be torn down pile up.",
		Confirm: []string{
			"crictl pods answers at once, crictl info does not: that pair is the signature.",
			"ps -eo pid,etime,comm,args | grep cni: a plugin at work for more than a minute is stuck.",
			"The runtime's log: RunPodSandbox and StopPodSandbox requests without an end.",
		},
		Fix: []string{
			"Kill the stuck plugin process: the operation fails, the lock is freed, the kubelet tries again.",
			"Restart the network add-on's pod on this node: plugins usually wait for its daemon.",
			"Look for exhausted addresses (IPAM) and at the add-on's connection to its data store or API server.",
			"Restart the runtime if no plugin process is left and Status still hangs.",
		},
		Mistaken: "RuntimeHung: there the lists hang as well. NetworkNotReady: there Status answers, and says no. \"container runtime is down\" alone " +
			"does not mean that the runtime is down.",
		Sources: []string{
			"containerd/containerd#4666 (Status behind the CNI lock), #5438, #9947 (network teardown after timeouts)",
			"containerd: internal/cri/server/status.go",
		},
		RootOf:    []string{codeNetworkNotReady},
		recognise: recogniseCNIHung,
	}
}

// cniTooLong is the age from which a CNI plugin is stuck.
func (f *Facts) cniTooLong() time.Duration {
	if f.Limits.CNIPluginTooLong > 0 {
		return f.Limits.CNIPluginTooLong
	}
	return DefaultLimits().CNIPluginTooLong
}

func recogniseCNIHung(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone || !f.anyList() || f.rpc(rpcVersion).Outcome == hung {
		return nil
	}
	statusHangs := f.rpc(rpcStatus).Outcome == hung
	old := f.oldProcesses(host.RoleCNI, f.cniTooLong())
	if !statusHangs && len(old) == 0 {
		return nil
	}
	var e Evidence
	severity, step := Critical, Strong
	summary := "Status hangs while the lists answer: a CNI operation holds the runtime's network lock"
	if statusHangs {
		addf(&e.For, "%s", callLine(f.rpc(rpcStatus).last()))
		f.addCalls(&e.For, isAlive, rpcVersion, rpcSandboxes, rpcContainers)
		f.addCalls(&e.Against, isHanging, rpcSandboxes, rpcContainers)
		f.missingPatience(&e)
	} else {
		severity = Warning
		if r := f.rpc(rpcStatus); r.Outcome.alive() {
			addf(&e.Against, "%s: the runtime's network lock is not held", callLine(r.last()))
		}
	}
	for _, p := range old {
		addf(&e.For, "CNI plugin %s has been at work for %s (%s)", processLabel(p), units.Duration(f.age(p)), stateOf(p))
	}
	f.missingHost(&e)
	if len(old) > 0 {
		step = Certain
		summary = fmt.Sprintf("CNI plugin %s has been at work for %s", processLabel(old[0]), units.Duration(f.age(old[0])))
		if statusHangs {
			summary += ", and Status hangs behind it"
		}
	} else if f.HostMissing == "" && !f.simulated() {
		addf(&e.Against, "no CNI plugin has been at work on this host for more than %s", units.Duration(f.cniTooLong()))
	}
	step = raised(step, f.hearCNI(&e, statusHangs))
	c := newCause(codeCNIHung, severity, step, summary, e)
	c.Subject = f.cniSubject(old)
	for _, p := range old[min(1, len(old)):min(len(old), maxRelated+1)] {
		c.Related = append(c.Related, f.processSubject(p))
	}
	c.NextSteps = f.stepsWhenCNIHung(old)
	return c
}

// cniSubject names the oldest plugin, else the RPC that shows the trouble.
func (f *Facts) cniSubject(old []host.Process) *Subject {
	if len(old) > 0 {
		s := f.processSubject(old[0])
		return &s
	}
	return &Subject{Kind: "RPC", Name: rpcStatus}
}

func (f *Facts) stepsWhenCNIHung(old []host.Process) []NextStep {
	var s steps
	f.addCapture(&s)
	if len(old) == 0 {
		s.add(TouchesNothing, "ps -eo pid,ppid,stat,etime,comm --sort=-etime | grep -iE 'cni|calico|cilium|flannel|bridge|loopback|multus|weave|ipam'",
			"Which plugin has been at work for longer than a minute?")
	}
	for _, p := range old[:min(len(old), 3)] {
		s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan", p.PID, p.PID), "What does the plugin wait for?")
		switch {
		case isUninterruptible(&p):
		case isStopped(&p):
			f.addKill(&s, p, "the sandbox")
		default:
			s.add(TouchesProcess, fmt.Sprintf("kill -TERM %d", p.PID), "Ends the one operation; the kubelet tries it again. Use -KILL if it stays.")
		}
	}
	s.add(TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`,
		"Is the network add-on's pod on this node well? Plugins wait for its daemon; deleting that pod restarts it.")
	f.addRestart(&s)
	return s.done()
}
