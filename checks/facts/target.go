package facts

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// wentAway returns the call that found the runtime gone, if nothing was answered after it.
func wentAway(f *Facts) (crictl.Call, bool) {
	if !f.Calls.Connected {
		return crictl.Call{}, false
	}
	gone, found := CallError(f, crictl.Unavailable, "connection refused", "no such file", "reading from server",
		"transport is closing",
		"connection reset", "broken pipe", "eof")
	if !found {
		return crictl.Call{}, false
	}
	for c := range EveryCall(f) {
		if c.OK() && c.Start.Add(c.Elapsed).After(gone.Start.Add(gone.Elapsed)) {
			return crictl.Call{}, false
		}
	}
	return gone, true
}

// runtimeUnitSeen returns the unit of the runtime that was asked, as systemd describes it; nil when it is another
// runtime's, or there is none.
func runtimeUnitSeen(f *Facts) *host.Unit {
	u := f.Seen.Systemd.Value.Runtime
	if u == nil || u.Load == "not-found" || f.Target.Unit != "" &&
		!slices.Contains(strings.Fields(f.Target.Unit), strings.TrimSuffix(u.Name, ".service")) {
		return nil
	}
	return u
}

// NamedTTRPC reports whether the socket that a person named is containerd's for its shims, which lies beside the one
// for CRI and has its name in front: then nothing was learnt of the runtime.
func NamedTTRPC(f *Input) bool {
	source := crictl.Source(f.Runtime.EndpointSource)
	return f.Measurement != nil && f.Measurement.Connect.TTRPC &&
		(source == crictl.SourceFlag || source == crictl.SourceEnv)
}

// CRISocketBeside says where the CRI socket is of which this is the ttrpc socket: containerd names that one after it
// unless it is told otherwise (services/server/config in containerd).
func CRISocketBeside(endpoint string) string {
	if cri, ok := strings.CutSuffix(endpoint, ".ttrpc"); ok {
		return "its CRI socket is " + Clean(cri)
	}
	return "its CRI socket is usually unix:///run/containerd/containerd.sock"
}

// A Daemon is the runtime's own process and what the service manager calls it.
type Daemon struct {
	Process *host.Process // nil when it is not known
	Guessed bool          // Process was not named by the socket but found by its role
	PID     int           // 0 when not known; may be known without Process
	Label   string        // containerd (pid 4711), or the runtime's name alone
	Unit    string        // systemd's name for it, safe to paste; empty when not known
}

// daemon finds the process behind the socket: the one that the socket names, else a stopped runtime daemon, else the
// only one there is. Pid 1 holds sockets for others (socket activation) and is never the runtime.
func daemon(f *Facts) Daemon {
	d := Daemon{Label: f.Target.Name, Unit: f.Target.Unit}
	if f.Target.Simulated {
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
		d.Process = likelyDaemon(f)
		d.Guessed = d.Process != nil
	}
	switch {
	case d.Process != nil:
		d.PID = d.Process.PID
		d.Label = Clean(d.Process.Name) + " (pid " + strconv.Itoa(d.PID) + ")"
	case peer != 0:
		d.PID = peer
		d.Label += " (pid " + strconv.Itoa(peer) + ")"
	}
	return d
}

// otherProcess returns the process that holds the socket if it is not a runtime: neither its name is one's, nor did it
// answer as one.
func otherProcess(f *Facts) *host.Process {
	p := f.Peer
	if p == nil || p.PID <= 1 || p.Role == host.RoleRuntime || p.Role == host.RoleKubelet ||
		f.RPC[RPCVersion].Outcome.Alive() {
		return nil
	}
	return p
}

// NotRuntime says that the process behind the socket is no runtime; empty when it is one, or not known.
func NotRuntime(f *Facts) string {
	switch name := f.Target.Name; {
	case f.Target.OtherProcess == nil:
		return ""
	case name == "the runtime":
		return "it is no runtime that kdiag knows"
	default:
		return "it is not " + name
	}
}

// likelyDaemon returns the runtime daemon when the socket names none.
func likelyDaemon(f *Facts) *host.Process {
	var daemons []*host.Process
	for i := range f.Processes {
		if f.Processes[i].Role == host.RoleRuntime {
			daemons = append(daemons, &f.Processes[i])
		}
	}
	for _, wanted := range []func(*host.Process) bool{IsStopped, IsUninterruptible} {
		if i := slices.IndexFunc(daemons, wanted); i >= 0 {
			return daemons[i]
		}
	}
	if len(daemons) == 1 {
		return daemons[0]
	}
	return nil
}

func IsStopped(p *host.Process) bool { return p.State == 'T' || p.State == 't' }

func IsUninterruptible(p *host.Process) bool { return p.State == 'D' }

// BeyondSignals reports whether the daemon is in uninterruptible sleep for good as far as can be seen: in two looks,
// and with nobody behind its socket. One that answers the transport has threads that run, and a signal reaches it.
func BeyondSignals(f *Facts, p *host.Process) bool {
	return p != nil && IsUninterruptible(p) && p.Lasting && f.Target.NobodyServes
}

// nobodyServes reports whether connections are not accepted, or accepted by the kernel alone.
func nobodyServes(f *Facts) bool {
	if f.Measurement == nil {
		return false
	}
	state := f.Measurement.Connect.State
	return state == crictl.ConnectSilent || state == crictl.ConnectBacklogged
}

// runtimeName names the runtime: as it says itself, else by its socket, else "the runtime".
func runtimeName(f *Facts) string {
	if f.Runtime.Name != "" {
		return Clean(f.Runtime.Name)
	}
	if f.Measurement != nil && f.Measurement.Version != nil && f.Measurement.Version.RuntimeName != "" {
		return Clean(f.Measurement.Version.RuntimeName)
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
func unit(f *Facts) string {
	e := f.Runtime.Endpoint
	name := strings.ToLower(f.Runtime.Name)
	switch {
	case f.Target.OtherProcess != nil, f.Target.OtherEndpoint && !crictl.IsWellKnown(e):
		return "" // no unit of the usual names runs what listens there
	case strings.Contains(e, "/k3s/"):
		return k3sUnit(f)
	case strings.Contains(e, "/k0s/"):
		return "'k0s*'" // k0sworker or k0scontroller
	case strings.Contains(e, "microk8s"):
		return "snap.microk8s.daemon-containerd"
	case strings.Contains(e, "cri-dockerd"), strings.Contains(name, "docker"):
		return UnitsCRIDockerd
	case strings.Contains(e, "crio"), strings.Contains(name, "cri-o"):
		return "crio"
	case strings.Contains(e, "/docker/"):
		return UnitDocker
	case strings.Contains(e, "containerd"), strings.Contains(name, "containerd"):
		return "containerd"
	case f.Target.Simulated:
		return "containerd" // the embedded runtime plays it unless a scenario says otherwise
	}
	return ""
}

// k3sUnit tells k3s from RKE2, which use the same socket: k3s runs the kubelet inside itself, RKE2 beside itself.
func k3sUnit(f *Facts) string {
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
	UnitDocker      = "docker"
	UnitCRIDocker   = "cri-docker"
	UnitsCRIDockerd = UnitDocker + " " + UnitCRIDocker
)

// RootFolder is where the runtime keeps its data, which is often a disk of its own; empty when it is not known.
func RootFolder(f *Facts) string {
	e, at := f.Runtime.Endpoint, f.Target.Daemon
	for _, d := range f.Seen.Folders.Value {
		if d.Role == host.FolderRuntime && d.PID == at.PID && at.PID != 0 && !at.Guessed &&
			SafePath.MatchString(d.Path) {
			return d.Path
		}
	}
	switch unit := f.Target.Unit; {
	case strings.Contains(e, "/k3s/"):
		return "/var/lib/rancher"
	case strings.Contains(e, "/k0s/"):
		return "/var/lib/k0s"
	case strings.Contains(e, "microk8s"):
		return "/var/snap/microk8s/common"
	case unit == UnitDocker, unit == UnitsCRIDockerd:
		return "/var/lib/docker"
	case unit == "crio":
		return "/var/lib/containers"
	case unit == "containerd":
		return "/var/lib/containerd"
	}
	return ""
}

// restartsKubelet reports whether the runtime's unit runs the kubelet too, so that restarting one restarts both.
func restartsKubelet(f *Facts) bool {
	return strings.Contains(f.Runtime.Endpoint, "/k3s/") || strings.Contains(f.Runtime.Endpoint, "/k0s/")
}

// socketPath is the path of the endpoint's socket.
func socketPath(f *Facts) string {
	return Clean(strings.TrimPrefix(f.Runtime.Endpoint, "unix://"))
}

// DaemonSubject names the daemon as a culprit: its process if it is known, else its unit, else the socket.
func DaemonSubject(f *Facts) *checks.Subject {
	d := f.Target.Daemon
	switch {
	case d.Process != nil:
		return &checks.Subject{
			Kind: "Process", ID: strconv.Itoa(d.PID), Name: Clean(d.Process.Name),
			Processes: []checks.Process{ProcessOf(f, *d.Process)},
		}
	case d.PID != 0:
		return &checks.Subject{Kind: "Process", ID: strconv.Itoa(d.PID), Name: f.Target.Name}
	case d.Unit != "" && !strings.ContainsAny(d.Unit, "' ") && !f.Target.NoSystemd:
		return &checks.Subject{Kind: "Unit", Name: d.Unit + ".service"}
	}
	return SocketSubject(f)
}

// SocketSubject names the socket as a culprit.
func SocketSubject(f *Facts) *checks.Subject {
	p := f.Target.SocketPath
	return &checks.Subject{Kind: "Socket", ID: p, Name: path.Base(p)}
}

// ProcessOf describes a process of the host for a report.
func ProcessOf(f *Facts, p host.Process) checks.Process {
	out := checks.Process{
		PID: p.PID, Name: Clean(p.Name), Role: string(p.Role), State: Clean(p.StateWord()),
		Wchan: Clean(p.Wchan),
	}
	if a := AgeOf(f, p); a > 0 {
		out.Age = units.Duration(a)
	}
	return out
}

// PeerOf describes the process that listens on the socket, nil when it is not known.
func PeerOf(f *Facts) *checks.Process {
	if f.Measurement == nil || f.Measurement.Connect.PeerPID == 0 || f.Target.Simulated {
		return nil
	}
	pid := f.Measurement.Connect.PeerPID
	for _, p := range f.Processes {
		if p.PID == pid {
			out := ProcessOf(f, p)
			return &out
		}
	}
	return &checks.Process{PID: pid}
}

// simulated reports whether the runtime is kdiag's own.
func simulated(f *Facts) bool { return f.Runtime.EndpointSource == string(crictl.SourceSimulated) }

// RuntimeOf is Runtime, completed from the answer to Version and safe to print.
func RuntimeOf(f *Facts) checks.Runtime {
	if f == nil {
		return checks.Runtime{}
	}
	r := f.Runtime
	if m := f.Measurement; m != nil && m.Version != nil {
		r.Name = cmp.Or(r.Name, m.Version.RuntimeName)
		r.Version = cmp.Or(r.Version, m.Version.RuntimeVersion)
		r.APIVersion = cmp.Or(r.APIVersion, m.Version.RuntimeAPIVersion)
	}
	return checks.Runtime{
		Endpoint: Clean(r.Endpoint), EndpointSource: Clean(r.EndpointSource), EndpointReason: Clean(r.EndpointReason),
		Name: Clean(r.Name), Version: Clean(r.Version), APIVersion: Clean(r.APIVersion), Simulate: Clean(r.Simulate),
	}
}

// NodeName is the name under which the cluster knows this node: that of its settings, else that of its certificate;
// empty where neither is known.
func NodeName(f *Facts) string {
	n := f.Seen
	if name := n.Settings.Value.NodeName; name != "" {
		return name
	}
	for _, c := range n.Certificates.Value {
		if name, ok := strings.CutPrefix(c.Subject, "system:node:"); ok && c.Role == ClientCertificate {
			return name
		}
	}
	return ""
}

// CrictlCommand builds a crictl command line for the endpoint that was measured. crictl gives up after two seconds
// unless told otherwise, which is too short for a large list.
func CrictlCommand(f *Facts, args string) string {
	if f.Target.Simulated || f.Runtime.EndpointSource == "crictl.yaml" ||
		!SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "crictl -t 60s " + args
	}
	return "crictl -r " + f.Runtime.Endpoint + " -t 60s " + args
}

// KdiagCommand builds a kdiag command line for the endpoint that was measured. What is said of a simulation never
// acts on the node at hand.
func KdiagCommand(f *Facts, args string) string {
	if f.Target.Simulated {
		return "kdiag " + args + " --simulate " + cmp.Or(f.Runtime.Simulate, "SCENARIO")
	}
	if f.Runtime.EndpointSource == "flag" && SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "kdiag " + args + " --runtime-endpoint " + f.Runtime.Endpoint
	}
	return "kdiag " + args
}

// NoSystemd is why systemd was not asked on a host that has another service manager, or none.
const NoSystemd = "systemd does not run here"

// lacksSystemd reports whether this host is known to have no systemd. A simulated runtime plays a node that has it.
func lacksSystemd(f *Facts) bool {
	l := f.Seen.Systemd
	return f.NoSystemd && !f.Target.Simulated || l.Skipped && l.Missing == NoSystemd
}

// otherEndpoint reports whether the kubelet of this host uses another endpoint than the one that was asked.
func otherEndpoint(f *Facts) bool {
	if f.Kubelet == nil || f.Kubelet.Endpoint == "" || f.Target.Simulated {
		return false
	}
	plain := func(s string) string {
		if url, err := crictl.ParseEndpoint(s); err == nil {
			s = url
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "unix://"), "/var") // /var/run is /run
	}
	return plain(f.Kubelet.Endpoint) != plain(f.Runtime.Endpoint)
}

// wrongSocket reports whether the socket that was asked is not the kubelet's and was not asked for by name: then what
// it says is no verdict on the node. Who gives --runtime-endpoint wants to know about that socket.
func wrongSocket(f *Facts) bool {
	return f.Target.OtherEndpoint && f.Runtime.EndpointSource != string(crictl.SourceFlag)
}

func EndpointProblem(f *Facts) string { return "the kubelet of this host " + UsesOther(f) }

// UsesOther says which other endpoint the kubelet uses, or what is wrong with the one that it was given.
func UsesOther(f *Facts) string {
	_, err := crictl.ParseEndpoint(f.Kubelet.Endpoint)
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		return fmt.Sprintf(`was given the endpoint "%s", which %s`, Clean(f.Kubelet.Endpoint), Clean(bad.Problem))
	}
	return "uses another endpoint: " + Clean(f.Kubelet.Endpoint)
}
