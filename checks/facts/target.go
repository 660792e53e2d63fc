package facts

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// deriveTarget finds out which runtime is asked, and which daemons run behind it.
func deriveTarget(f *Facts) {
	t := &f.Target
	t.Simulated = f.Runtime.EndpointSource == string(crictl.SourceSimulated)
	if f.Node != nil && !t.Simulated { // where the runtime is kdiag's own, this host is not its node
		f.Seen = f.Node
	}
	// A process that is no runtime by its name, and did not answer as one either.
	if p := f.Peer; p != nil && p.PID > 1 && p.Role != host.RoleRuntime && p.Role != host.RoleKubelet &&
		!f.RPC[RPCVersion].Outcome.Alive() {
		t.OtherProcess = p
	}
	e := f.Runtime.Endpoint
	t.SocketPath = Clean(strings.TrimPrefix(e, "unix://"))
	t.RestartsKubelet = strings.Contains(e, "/k3s/") || strings.Contains(e, "/k0s/")
	t.OtherEndpoint = f.Kubelet != nil && f.Kubelet.Endpoint != "" && !t.Simulated &&
		!crictl.SameEndpoint(f.Kubelet.Endpoint, f.Runtime.Endpoint)
	t.WrongSocket = t.OtherEndpoint && f.Runtime.EndpointSource != string(crictl.SourceFlag)
	t.Name = runtimeName(f)
	t.Unit = runtimeUnit(f)
	t.Daemon = daemon(f)
	t.Docker = docker(f)
	t.NoSystemd = f.NoSystemd && !t.Simulated || f.Seen.Systemd.Skipped && f.Seen.Systemd.Missing == NoSystemd
	u := f.Seen.Systemd.Value.Runtime
	if u != nil && u.Load != "not-found" && (t.Unit == "" ||
		slices.Contains(strings.Fields(t.Unit), strings.TrimSuffix(u.Name, ".service"))) {
		t.RuntimeUnit = u
	}
	f.KubeletState.Unit = f.Seen.Systemd.Value.Kubelet
	t.KubeletUnit = kubeletUnit(f)
}

// The units of docker, whose restart ends containers, and of cri-dockerd, whose restart does not.
const (
	UnitDocker      = "docker"
	UnitCRIDocker   = "cri-docker"
	UnitsCRIDockerd = UnitDocker + " " + UnitCRIDocker
)

// A layout is how a runtime is set up on a node.
type layout struct {
	endpoint string // part of its endpoint
	reported string // part of the name that it reports, in lower case; empty for none
	name     string
	unit     string // quoted where it is a pattern
	folder   string // of its data
}

// layouts are the known ones. The first that fits counts.
var layouts = []layout{
	{"/k3s/", "", "containerd", "'k3s*' 'rke2-*'", "/var/lib/rancher"},
	{"/k0s/", "", "containerd", "'k0s*'", "/var/lib/k0s"},
	{"microk8s", "", "containerd", "snap.microk8s.daemon-containerd", "/var/snap/microk8s/common"},
	{"cri-dockerd", "docker", "cri-dockerd", UnitsCRIDockerd, "/var/lib/docker"},
	{"crio", "cri-o", "CRI-O", "crio", "/var/lib/containers"},
	{"/docker/", "", "containerd", UnitDocker, "/var/lib/docker"},
	{"containerd", "containerd", "containerd", "containerd", "/var/lib/containerd"},
}

// layoutOf returns how the runtime is set up, by its endpoint and, where it is given, the name that it reports.
func layoutOf(f *Facts, reported string) layout {
	i := slices.IndexFunc(layouts, func(l layout) bool {
		return strings.Contains(f.Runtime.Endpoint, l.endpoint) ||
			l.reported != "" && strings.Contains(reported, l.reported)
	})
	if i < 0 {
		return layout{}
	}
	return layouts[i]
}

// runtimeName names the runtime: as it reports itself, else by its socket.
func runtimeName(f *Facts) string {
	name := f.Runtime.Name
	if f.Measurement != nil && f.Measurement.Version != nil {
		name = cmp.Or(name, f.Measurement.Version.RuntimeName)
	}
	return Clean(cmp.Or(name, layoutOf(f, "").name, "the runtime"))
}

// runtimeUnit names the systemd unit of the runtime; empty when it is not known. k3s runs the kubelet inside itself,
// RKE2 beside itself, on the same socket.
func runtimeUnit(f *Facts) string {
	if f.Target.OtherProcess != nil || f.Target.OtherEndpoint && !crictl.IsWellKnown(f.Runtime.Endpoint) {
		return "" // no unit of the usual names runs what listens there
	}
	l := layoutOf(f, strings.ToLower(f.Runtime.Name))
	switch {
	case l.endpoint == "" && f.Target.Simulated:
		return "containerd" // the embedded runtime plays it unless a scenario has another name
	case l.endpoint != "/k3s/" || f.Kubelet == nil:
		return l.unit
	case strings.HasPrefix(f.Kubelet.Name, "k3s-agent"):
		return "k3s-agent"
	case strings.HasPrefix(f.Kubelet.Name, "k3s"):
		return "k3s"
	}
	return "'rke2-*'"
}

// RootFolder is where the runtime keeps its data, often on its own disk; empty when it is not known.
func RootFolder(f *Facts) string {
	at := f.Target.Daemon
	for _, d := range f.Seen.Folders.Value {
		behind := slices.ContainsFunc(f.Target.Docker.Daemons, func(p host.Process) bool { return p.PID == d.PID })
		if d.Role == host.FolderRuntime && (d.PID == at.PID && at.PID != 0 && !at.Guessed || behind) &&
			SafePath.MatchString(d.Path) {
			return d.Path
		}
	}
	if f.Target.Unit == "" {
		return ""
	}
	return cmp.Or(layoutOf(f, strings.ToLower(f.Runtime.Name)).folder, "/var/lib/containerd")
}

// NamedTTRPC reports whether the socket that a person named is containerd's for its shims, which lies beside the one
// for CRI and has its name in front: then nothing was learnt of the runtime.
func NamedTTRPC(f *Input) bool {
	source := crictl.Source(f.Runtime.EndpointSource)
	return f.Measurement != nil && f.Measurement.Connect.TTRPC &&
		(source == crictl.SourceFlag || source == crictl.SourceEnv)
}

// CRISocketBeside names the CRI socket of which this is the ttrpc socket: containerd names that one after it unless
// it is configured otherwise (services/server/config in containerd).
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

// daemon finds the process behind the socket: the one that the socket names, else a runtime daemon that is stopped or
// asleep, else the only one there is. Pid 1 holds sockets for others (socket activation) and is never the runtime.
func daemon(f *Facts) Daemon {
	d := Daemon{Label: f.Target.Name, Unit: f.Target.Unit}
	if f.Target.Simulated {
		return d // it lives in kdiag's own process
	}
	if f.Measurement != nil && f.Measurement.Connect.PeerPID > 1 {
		d.PID = f.Measurement.Connect.PeerPID
	}
	if d.PID == 0 {
		d.Process = likelyDaemon(f)
		d.Guessed = d.Process != nil
	} else if i := slices.IndexFunc(f.Processes, func(p host.Process) bool { return p.PID == d.PID }); i >= 0 {
		d.Process = &f.Processes[i]
	} else if f.Peer != nil && f.Peer.PID == d.PID {
		d.Process = f.Peer
	}
	if d.Process != nil {
		d.PID, d.Label = d.Process.PID, ProcessLabel(*d.Process)
	} else if d.PID != 0 {
		d.Label += " (pid " + strconv.Itoa(d.PID) + ")"
	}
	return d
}

// likelyDaemon returns the runtime daemon when the socket names none.
func likelyDaemon(f *Facts) *host.Process {
	daemons := filter(ProcessesOf(f, host.RoleRuntime),
		func(p host.Process) bool { return p.Daemon == 0 && !listensElsewhere(f, p) })
	i := slices.IndexFunc(daemons, func(p host.Process) bool { return IsStopped(&p) || IsUninterruptible(&p) })
	if i < 0 && len(daemons) != 1 {
		return nil
	}
	return &daemons[max(i, 0)]
}

// NotRuntime is the remark that the process behind the socket is no runtime; empty when it is one, or not known.
func NotRuntime(f *Facts) string {
	switch {
	case f.Target.OtherProcess == nil:
		return ""
	case f.Target.Name == "the runtime":
		return "not a runtime that kdiag knows"
	}
	return "it is not " + f.Target.Name
}

// IsStopped reports whether a signal or a tracer stopped a process.
func IsStopped(p *host.Process) bool { return p.State == 'T' || p.State == 't' }

// IsUninterruptible reports whether a process is in uninterruptible sleep.
func IsUninterruptible(p *host.Process) bool { return p.State == 'D' }

// BeyondSignals reports whether the daemon is in uninterruptible sleep for good as far as can be seen: in two looks,
// and with no process behind its socket. One that answers the transport has threads that run, and a signal reaches it.
func BeyondSignals(f *Facts, p *host.Process) bool {
	return p != nil && IsUninterruptible(p) && p.Lasting && f.Measurement != nil &&
		(f.Measurement.Connect.State == crictl.ConnectSilent || f.Measurement.Connect.State == crictl.ConnectBacklogged)
}

// DaemonSubject names the daemon as a culprit: its process if it is known, else its unit, else the socket.
func DaemonSubject(f *Facts) *checks.Subject {
	d := f.Target.Daemon
	switch {
	case d.Process != nil:
		return new(ProcessSubject(f, *d.Process, host.Owner{}))
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

// PeerOf describes the process that listens on the socket, nil when it is not known.
func PeerOf(f *Facts) *checks.Process {
	d := f.Target.Daemon
	switch {
	case d.PID == 0 || d.Guessed:
		return nil
	case d.Process != nil:
		return new(ProcessOf(f, *d.Process))
	}
	return &checks.Process{PID: d.PID}
}

// ProcessOf describes a process of the host for a report.
func ProcessOf(f *Facts, p host.Process) checks.Process {
	out := checks.Process{
		PID: p.PID, Name: Clean(p.Name), Role: string(p.Role), State: Clean(p.StateWord()), Wchan: Clean(p.Wchan),
	}
	if a := AgeOf(f, p); a > 0 {
		out.Age = units.Duration(a)
	}
	return out
}

// RuntimeOf is Runtime, completed from the answer to Version and safe to print.
func RuntimeOf(f *Facts) checks.Runtime {
	r := f.Runtime
	if m := f.Measurement; m != nil && m.Version != nil {
		r.Name = cmp.Or(r.Name, m.Version.RuntimeName)
		r.Version = cmp.Or(r.Version, m.Version.RuntimeVersion)
		r.APIVersion = cmp.Or(r.APIVersion, m.Version.RuntimeAPIVersion)
	}
	for _, s := range []*string{
		&r.Endpoint, &r.EndpointSource, &r.EndpointReason, &r.Name, &r.Version, &r.APIVersion, &r.Simulate,
	} {
		*s = Clean(*s)
	}
	return r
}

// NodeName is the name under which the cluster knows this node: that of its settings, else that of its certificate;
// empty where neither is known.
func NodeName(f *Facts) string {
	if name := f.Seen.Settings.Value.NodeName; name != "" {
		return name
	}
	for _, c := range f.Seen.Certificates.Value {
		if name, ok := strings.CutPrefix(c.Subject, "system:node:"); ok && c.Role == ClientCertificate {
			return name
		}
	}
	return ""
}

// CrictlCommand builds a crictl command line for the endpoint that was measured. crictl gives up after two seconds
// unless told otherwise, which is too short for a large list.
func CrictlCommand(f *Facts, args string) string {
	if f.Target.Simulated || f.Runtime.EndpointSource == string(crictl.SourceConfig) ||
		!SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "crictl -t 60s " + args
	}
	return "crictl -r " + f.Runtime.Endpoint + " -t 60s " + args
}

// KdiagCommand builds a kdiag command line for the endpoint that was measured. A step of a simulation never acts on
// the node at hand.
func KdiagCommand(f *Facts, args string) string {
	if f.Target.Simulated {
		return "kdiag " + args + " --simulate " + cmp.Or(f.Runtime.Simulate, "SCENARIO")
	}
	if f.Runtime.EndpointSource == string(crictl.SourceFlag) && SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		return "kdiag " + args + " --runtime-endpoint " + f.Runtime.Endpoint
	}
	return "kdiag " + args
}

// NoSystemd is why systemd was not asked on a host that has another service manager, or none.
const NoSystemd = "systemd does not run here"

// EndpointProblem is the sentence that the kubelet does not use the endpoint that was asked.
func EndpointProblem(f *Facts) string { return "the kubelet of this host " + UsesOther(f) }

// UsesOther names the other endpoint that the kubelet uses.
func UsesOther(f *Facts) string { return "uses another endpoint: " + Clean(f.Kubelet.Endpoint) }
