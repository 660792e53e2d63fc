package checks

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// A daemon is the runtime's own process and what the service manager calls it.
type daemon struct {
	Process *host.Process // nil when it is not known
	Guessed bool          // Process was not named by the socket but found by its role
	PID     int           // 0 when not known; may be known without Process
	Label   string        // containerd (pid 4711), or the runtime's name alone
	Unit    string        // systemd's name for it, safe to paste; empty when not known
}

// daemon finds the process behind the socket: the one that the socket names, else a stopped runtime daemon, else the
// only one there is. Pid 1 holds sockets for others (socket activation) and is never the runtime.
func (f *Facts) daemon() daemon {
	d := daemon{Label: f.runtimeName(), Unit: f.unit()}
	if f.simulated() {
		return d // it lives in kdiag's own process
	}
	peer := 0
	if f.Measurement != nil && f.Measurement.Connect.PeerPID > 1 {
		peer = f.Measurement.Connect.PeerPID
	}
	for i := range f.Processes {
		if peer != 0 && f.Processes[i].PID == peer {
			d.Process = &f.Processes[i]
		}
	}
	if d.Process == nil && f.Peer != nil && f.Peer.PID == peer {
		d.Process = f.Peer
	}
	if d.Process == nil && peer == 0 {
		d.Process = f.likelyDaemon()
		d.Guessed = d.Process != nil
	}
	switch {
	case d.Process != nil:
		d.PID = d.Process.PID
		d.Label = clean(d.Process.Name) + " (pid " + strconv.Itoa(d.PID) + ")"
	case peer != 0:
		d.PID = peer
		d.Label += " (pid " + strconv.Itoa(peer) + ")"
	}
	return d
}

// impostor returns the process that holds the socket where it is no runtime: neither its name is one's, nor did it answer as one.
func (f *Facts) impostor() *host.Process {
	p := f.Peer
	if p == nil || p.PID <= 1 || p.Role == host.RoleRuntime || p.Role == host.RoleKubelet || f.rpc(rpcVersion).Outcome.alive() {
		return nil
	}
	return p
}

// notRuntime says that the process behind the socket is no runtime; empty when it is one, or not known.
func (f *Facts) notRuntime() string {
	switch name := f.runtimeName(); {
	case f.impostor() == nil:
		return ""
	case name == "the runtime":
		return "it is no runtime that kdiag knows"
	default:
		return "it is not " + name
	}
}

// likelyDaemon returns the runtime daemon when the socket names none.
func (f *Facts) likelyDaemon() *host.Process {
	var daemons []*host.Process
	for i := range f.Processes {
		if f.Processes[i].Role == host.RoleRuntime {
			daemons = append(daemons, &f.Processes[i])
		}
	}
	for _, wanted := range []func(*host.Process) bool{isStopped, isUninterruptible} {
		if i := slices.IndexFunc(daemons, wanted); i >= 0 {
			return daemons[i]
		}
	}
	if len(daemons) == 1 {
		return daemons[0]
	}
	return nil
}

func isStopped(p *host.Process) bool         { return p.State == 'T' || p.State == 't' }
func isUninterruptible(p *host.Process) bool { return p.State == 'D' }

// beyondSignals reports whether the daemon is in uninterruptible sleep for good as far as can be seen: in two looks, and
// with nobody behind its socket. One that answers the transport has threads that run, and a signal reaches it.
func (f *Facts) beyondSignals(p *host.Process) bool {
	return p != nil && isUninterruptible(p) && p.Lasting && f.nobodyServes()
}

// nobodyServes reports whether connections are not accepted, or accepted by the kernel alone.
func (f *Facts) nobodyServes() bool {
	if f.Measurement == nil {
		return false
	}
	state := f.Measurement.Connect.State
	return state == crictl.ConnectSilent || state == crictl.ConnectBacklogged
}

// runtimeName names the runtime: as it says itself, else by its socket, else "the runtime".
func (f *Facts) runtimeName() string {
	if f.Runtime.Name != "" {
		return clean(f.Runtime.Name)
	}
	if f.Measurement != nil && f.Measurement.Version != nil && f.Measurement.Version.RuntimeName != "" {
		return clean(f.Measurement.Version.RuntimeName)
	}
	e := f.Runtime.Endpoint
	switch {
	case strings.Contains(e, "crio"):
		return "CRI-O"
	case strings.Contains(e, "cri-dockerd"), strings.Contains(e, "dockershim"):
		return "cri-dockerd"
	case strings.Contains(e, "containerd"):
		return "containerd"
	}
	return "the runtime"
}

// unit names the systemd unit of the runtime, quoted where it is a pattern; empty when it is not known.
func (f *Facts) unit() string {
	e := f.Runtime.Endpoint
	name := strings.ToLower(f.Runtime.Name)
	switch {
	case f.impostor() != nil, f.otherEndpoint() && !crictl.IsWellKnown(e):
		return "" // no unit of the usual names runs what listens there
	case strings.Contains(e, "/k3s/"):
		return f.k3sUnit()
	case strings.Contains(e, "/k0s/"):
		return "'k0s*'" // k0sworker or k0scontroller
	case strings.Contains(e, "microk8s"):
		return "snap.microk8s.daemon-containerd"
	case strings.Contains(e, "cri-dockerd"), strings.Contains(name, "docker"):
		return unitsCRIDockerd
	case strings.Contains(e, "crio"), strings.Contains(name, "cri-o"):
		return "crio"
	case strings.Contains(e, "/docker/"):
		return unitDocker
	case strings.Contains(e, "containerd"), strings.Contains(name, "containerd"):
		return "containerd"
	case f.simulated():
		return "containerd" // the embedded runtime plays it unless a scenario says otherwise
	}
	return ""
}

// k3sUnit tells k3s from RKE2, which use the same socket: k3s runs the kubelet inside itself, RKE2 beside itself.
func (f *Facts) k3sUnit() string {
	if f.Kubelet == nil {
		return "'k3s*' 'rke2-*'"
	}
	switch {
	case strings.HasPrefix(f.Kubelet.Name, "k3s-agent"):
		return "k3s-agent"
	case strings.HasPrefix(f.Kubelet.Name, "k3s"):
		return "k3s"
	}
	return "'rke2-*'"
}

// The units of docker, whose restart ends containers, and of cri-dockerd, whose restart does not.
const (
	unitDocker      = "docker"
	unitCRIDocker   = "cri-docker"
	unitsCRIDockerd = unitDocker + " " + unitCRIDocker
)

// rootFolder is where the runtime keeps its data, which is often a disk of its own; empty when it is not known.
func (f *Facts) rootFolder() string {
	e, at := f.Runtime.Endpoint, f.daemon()
	for _, d := range f.seen().Folders.Value {
		if d.Role == host.FolderRuntime && d.PID == at.PID && at.PID != 0 && !at.Guessed && safePath.MatchString(d.Path) {
			return d.Path
		}
	}
	switch unit := f.unit(); {
	case strings.Contains(e, "/k3s/"):
		return "/var/lib/rancher"
	case strings.Contains(e, "/k0s/"):
		return "/var/lib/k0s"
	case strings.Contains(e, "microk8s"):
		return "/var/snap/microk8s/common"
	case unit == unitDocker, unit == unitsCRIDockerd:
		return "/var/lib/docker"
	case unit == "crio":
		return "/var/lib/containers"
	case unit == "containerd":
		return "/var/lib/containerd"
	}
	return ""
}

// restartsKubelet reports whether the runtime's unit runs the kubelet too, so that restarting one restarts both.
func (f *Facts) restartsKubelet() bool {
	return strings.Contains(f.Runtime.Endpoint, "/k3s/") || strings.Contains(f.Runtime.Endpoint, "/k0s/")
}

// socketPath is the path of the endpoint's socket.
func (f *Facts) socketPath() string {
	return clean(strings.TrimPrefix(f.Runtime.Endpoint, "unix://"))
}

// subject names the daemon as a culprit: its process if it is known, else its unit, else the socket.
func (f *Facts) daemonSubject() *Subject {
	d := f.daemon()
	switch {
	case d.Process != nil:
		return &Subject{
			Kind: "Process", ID: strconv.Itoa(d.PID), Name: clean(d.Process.Name),
			Processes: []Process{f.processOf(*d.Process)},
		}
	case d.PID != 0:
		return &Subject{Kind: "Process", ID: strconv.Itoa(d.PID), Name: f.runtimeName()}
	case d.Unit != "" && !strings.ContainsAny(d.Unit, "' ") && !f.lacksSystemd():
		return &Subject{Kind: "Unit", Name: d.Unit + ".service"}
	}
	return f.socketSubject()
}

// socketSubject names the socket as a culprit.
func (f *Facts) socketSubject() *Subject {
	p := f.socketPath()
	return &Subject{Kind: "Socket", ID: p, Name: path.Base(p)}
}

// processOf describes a process of the host for a report.
func (f *Facts) processOf(p host.Process) Process {
	out := Process{PID: p.PID, Name: clean(p.Name), Role: string(p.Role), State: clean(p.StateWord()), Wchan: clean(p.Wchan)}
	if a := f.age(p); a > 0 {
		out.Age = units.Duration(a)
	}
	return out
}

// peer describes the process that listens on the socket, nil when it is not known.
func (f *Facts) peer() *Process {
	if f.Measurement == nil || f.Measurement.Connect.PeerPID == 0 || f.simulated() {
		return nil
	}
	pid := f.Measurement.Connect.PeerPID
	for _, p := range f.Processes {
		if p.PID == pid {
			out := f.processOf(p)
			return &out
		}
	}
	return &Process{PID: pid}
}

// simulated reports whether the runtime is kdiag's own.
func (f *Facts) simulated() bool { return f.Runtime.EndpointSource == string(crictl.SourceSimulated) }
