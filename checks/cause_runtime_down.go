package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

func runtimeDown() Definition {
	return Definition{
		Code:  codeRuntimeDown,
		Title: "nothing listens on the runtime's socket",
		Means: "The socket file is missing, or connecting to it is refused: the daemon is stopped, crashed, has not started yet, " +
			"or listens somewhere else. containerd's and CRI-O's running containers go on running under their shims, and nobody watches them; those of docker only with live restore.\n\n" +
			"Every call of the kubelet fails within milliseconds. After 30 s without a good Status it says \"container runtime is " +
			"down\" and the node becomes NotReady; after 3m without a good relist it adds \"PLEG is not healthy\". New pods do not start, " +
			"probes that exec fail, and nothing is restarted.",
		Confirm: []string{
			"systemctl status containerd (or crio, docker and cri-docker): is the unit active?",
			"ss -xlp | grep -F containerd.sock: does a process listen on that path?",
			"The kubelet's log says \"connection refused\" or \"no such file or directory\", and says so every second, not every two minutes.",
		},
		Fix: []string{
			"Read the runtime's last log lines first: a full disk, a broken config.toml or a damaged database will stop it again.",
			"Start the unit. containerd and CRI-O keep running containers and find them again; nothing needs to be drained for it.",
			"If the path is wrong, correct the kubelet's containerRuntimeEndpoint (or the flag given to kdiag).",
		},
		Mistaken: "RuntimeHung: there the connection is accepted and calls time out after minutes. RuntimeUnsupported: there something answers. " +
			"A missing socket on a path that the kubelet does not use proves nothing: look at which endpoint was asked, and why.",
		Sources: []string{
			"kubelet: pkg/kubelet/runtime.go (30 s without Status), pkg/kubelet/pleg/generic.go (3m without relist)",
			"kubelet: cmd/kubelet/app/server.go (one that starts and finds no runtime ends itself: validate CRI v1 runtime API)",
			"gRPC codes: Unavailable with connection refused or no such file",
		},
		RootOf:    []string{codeKubeletDown, codeKubeletCrashLooping},
		recognise: recogniseRuntimeDown,
	}
}

func recogniseRuntimeDown(f *Facts) *Cause {
	if f.Measurement == nil {
		return nil
	}
	var e Evidence
	var summary string
	connect := f.Measurement.Connect
	switch connect.State {
	case crictl.ConnectMissing:
		summary = fmt.Sprintf("nothing listens: the socket %s does not exist", f.socketPath())
	case crictl.ConnectRefused:
		summary = fmt.Sprintf("nothing listens: %s is there, but connecting to it is refused", f.socketPath())
	default:
		call, gone := f.wentAway()
		if !gone {
			return nil
		}
		summary = fmt.Sprintf("%s went away while it was asked", f.runtimeName())
		addf(&e.For, "%s", callLine(call))
	}
	if connect.Err != "" {
		addf(&e.For, "connecting to %s: %s", f.socketPath(), clean(connect.Err))
	} else if len(e.For) == 0 {
		addf(&e.For, "the socket was found %s", connect.State)
	}
	if n := f.orphanedShims(); n > 0 {
		summary += "; " + f.shimsWithout(n)
	}
	f.downByProcesses(&e)
	f.downByUnit(&e)
	if u := f.runtimeUnitSeen(); unitDown(u) {
		why := clean(u.Result)
		if why == "" || why == "success" { // stopped by somebody
			why = clean(u.Sub)
		}
		summary += fmt.Sprintf("; %s is %s (%s)", clean(u.Name), clean(u.Active), why)
	}
	f.endpointEvidence(&e)
	f.hearStops(&e)
	step := raised(Certain, f.hearDown(&e))
	c := newCause(codeRuntimeDown, Critical, step, summary, e)
	c.Subject = f.socketSubject()
	if s := f.daemonSubject(); s.Kind == "Unit" {
		c.Subject = s
	}
	c.NextSteps = f.stepsWhenDown()
	return c
}

// wentAway returns the call that found the runtime gone, if nothing was answered after it.
func (f *Facts) wentAway() (crictl.Call, bool) {
	if !f.connected() {
		return crictl.Call{}, false
	}
	gone, found := f.callError(crictl.Unavailable, "connection refused", "no such file", "reading from server", "transport is closing",
		"connection reset", "broken pipe", "eof")
	if !found {
		return crictl.Call{}, false
	}
	for _, c := range f.everyCall() {
		if c.OK() && c.Start.Add(c.Elapsed).After(gone.Start.Add(gone.Elapsed)) {
			return crictl.Call{}, false
		}
	}
	return gone, true
}

// downByProcesses says whether a runtime daemon is running after all.
func (f *Facts) downByProcesses(e *Evidence) {
	f.missingHost(e)
	if f.HostMissing != "" || f.simulated() {
		return
	}
	daemons := f.processes(host.RoleRuntime)
	if len(daemons) == 0 {
		addf(&e.For, "no runtime daemon is running on this host")
		if n := f.orphanedShims(); n > 0 {
			addf(&e.For, "%s: containers go on, and nobody watches them", f.shimsWithout(n))
		}
		return
	}
	addf(&e.Against, "%s is running: it is still starting, or listens on another socket", processLabel(daemons[0]))
}

// orphanedShims counts the shims of a host on which no runtime daemon runs.
func (f *Facts) orphanedShims() int {
	if f.HostMissing != "" || f.simulated() || len(f.processes(host.RoleRuntime)) > 0 {
		return 0
	}
	return len(f.processes(host.RoleShim))
}

func (f *Facts) shimsWithout(n int) string {
	return fmt.Sprintf("%s %s without a daemon", units.Count(n, "shim"), verb(n, "runs", "run"))
}

// keepsKubeletDown reports whether a kubelet that starts finds no runtime, and ends itself at once.
func (f *Facts) keepsKubeletDown() bool {
	if f.Measurement == nil || f.otherEndpoint() {
		return false
	}
	state := f.Measurement.Connect.State
	return state == crictl.ConnectMissing || state == crictl.ConnectRefused
}

// runtimeUnitSeen returns the unit of the runtime that was asked, as systemd describes it; nil when it is another runtime's, or there
// is none.
func (f *Facts) runtimeUnitSeen() *host.Unit {
	u := f.seen().Systemd.Value.Runtime
	if u == nil || u.Load == "not-found" || f.unit() != "" && !slices.Contains(strings.Fields(f.unit()), strings.TrimSuffix(u.Name, ".service")) {
		return nil
	}
	return u
}

// downByUnit adds what systemd says of the runtime's unit. One that was restarted many times did not come down by itself once.
func (f *Facts) downByUnit(e *Evidence) {
	u := f.runtimeUnitSeen()
	if u == nil {
		return
	}
	if u.Active == "active" {
		addf(&e.Against, "systemd: %s: it is still starting, or listens on another socket", f.unitLine(u))
		return
	}
	addf(&e.For, "systemd: %s", f.unitLine(u))
	switch {
	case u.Result == "oom-kill":
		addf(&e.For, "the OOM killer ended it: memory is the cause")
	case u.Result == "start-limit-hit":
		addf(&e.For, "systemd has given up starting it: systemctl reset-failed comes before the next start")
	case u.Restarts >= loopRestarts:
		addf(&e.For, "it ends again and again: starting it once more repeats what ends it")
	}
}

// endpointEvidence says whether the endpoint is the one that the kubelet uses.
func (f *Facts) endpointEvidence(e *Evidence) {
	switch {
	case f.simulated():
	case f.Runtime.EndpointSource == string(crictl.SourceKubelet) && f.Kubelet != nil:
		addf(&e.For, "it is the endpoint of the kubelet that is running here")
	case f.Runtime.EndpointSource == string(crictl.SourceKubelet):
		addf(&e.For, "the endpoint is from %s", clean(f.Runtime.EndpointReason))
	case f.Kubelet == nil:
		addf(&e.Missing, "whether the kubelet uses this endpoint: no kubelet was seen on this host")
	case f.otherEndpoint():
		addf(&e.Against, "the kubelet %s", f.usesOther())
	}
}

func (f *Facts) stepsWhenDown() []NextStep {
	var s steps
	if f.Runtime.EndpointSource == string(crictl.SourceFlag) && f.Measurement.Connect.State == crictl.ConnectMissing {
		s.add(TouchesNothing, "kdiag pleg", "Was the path typed right? Without --runtime-endpoint kdiag asks the kubelet's own runtime.")
	}
	f.addService(&s)
	if safeEndpoint.MatchString(f.Runtime.Endpoint) {
		s.add(TouchesNothing, "ls -l "+f.socketPath()+"; ss -xlp | grep -F "+f.socketPath(), "Is there a socket, and does a process listen on it?")
	}
	f.addDisk(&s, "A full disk is the commonest reason why the daemon does not start again.")
	switch unit := f.unit(); {
	case unit == "", f.otherEndpoint():
	case f.restartsKubelet():
		s.add(TouchesKubelet, "systemctl restart "+unit, "Starts runtime and kubelet, which share this unit; containers that run are kept.")
	case unit == unitsCRIDockerd:
		s.add(TouchesRuntime, "systemctl start "+unitDocker+"; systemctl restart "+unitCRIDocker,
			"Starts docker if it does not run, and cri-dockerd anew. Do not restart a docker that runs: without live restore that stops all containers.")
	case unit == unitDocker:
		addRestartDocker(&s)
	default:
		command := "systemctl restart " + unit
		if u := f.runtimeUnitSeen(); u != nil && u.Result == "start-limit-hit" {
			command = "systemctl reset-failed " + unit + "; " + command
		}
		s.add(TouchesRuntime, command, "Starts the daemon; containers that run are kept.")
	}
	return s.done()
}
