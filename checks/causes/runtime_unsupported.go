package causes

import (
	"cmp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeUnsupported is the code of this cause.
const RuntimeUnsupported = "RuntimeUnsupported"

func recogniseRuntimeUnsupported(f *facts.Facts) *Finding {
	if f.Measurement == nil || facts.NamedTTRPC(&f.Input) {
		return nil
	}
	var e checks.Evidence
	var summary string
	connect := f.Measurement.Connect
	switch {
	case connect.TTRPC:
		summary = f.Target.SocketPath + " is containerd's ttrpc socket, for its shims: no kubelet can use it"
		Addf(&e.For, "it does not answer HTTP/2, and answers ttrpc; %s", facts.CRISocketBeside(f.Runtime.Endpoint))
	case connect.State == crictl.ConnectForeign:
		summary = textf("what listens on %s does not speak gRPC", f.Target.SocketPath)
		if is := facts.NotRuntime(f); is != "" {
			summary += textf(": %s, and %s", f.Target.Daemon.Label, is)
		}
		Addf(&e.For, "it answers no HTTP/2: %s", facts.Clean(strings.TrimSpace(connect.FirstByte+" "+connect.Err)))
	case f.Calls.NotCRI != nil:
		summary = f.Target.Daemon.Label + " speaks gRPC, but serves no CRI v1: plugin off, too old, or another socket"
		Addf(&e.For, "%v", *f.Calls.NotCRI)
		addCalls(f, &e.Against, facts.Outcome.Alive, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
	default:
		return nil
	}
	says := ""
	if f.Calls.NotCRI != nil {
		says = addLastWords(f, &e, nil)
		if off := facts.Clean(f.Seen.Peers.Value.CRIOff); off != "" {
			says = ": " + off
			e.For = append(e.For, off)
		}
		summary = ifElse(says == "", summary, f.Target.Daemon.Label+" speaks gRPC, but serves no CRI v1"+says)
	}
	endpointEvidence(f, &e)
	step := raised(checks.Certain, logOf(f, &e, signsOfDown...))
	subject := *facts.SocketSubject(f)
	if p := facts.PeerOf(f); p != nil && p.PID > 1 {
		if f.Peer != nil && f.Peer.PID == p.PID {
			*p = facts.ProcessOf(f, *f.Peer)
		}
		subject.Processes = []checks.Process{*p}
	}
	return newFinding(checks.Critical, step, summary, e, subject).advise(func(s *Steps, _ string) {
		d, grpc, socket := f.Target.Daemon, f.Calls.NotCRI != nil, f.Target.SocketPath
		safe := facts.SafeEndpoint.MatchString(f.Runtime.Endpoint)
		s.lookIf(d.PID <= 1 && safe, "ss -xlp | grep -F "+socket, "Find out which process listens there")
		if damaged := cmp.Or(facts.RootFolder(f), "/var/lib/containerd"); strings.Contains(says, "meta.db") {
			s.Look(textf("ls -l %s/io.containerd.metadata.v1.bolt", damaged),
				"Look at the database; what it lists is lost if you move it away: drain the node first")
		}
		if grpc && says == "" && !strings.Contains(f.Target.Unit, "crio") {
			file, ctr := "/etc/containerd/config.toml", "ctr"
			if d.Process != nil && facts.SafePath.MatchString(d.Process.Config) {
				file = d.Process.Config
			}
			ctr += ifElse(safe, " -a "+socket, "")
			s.Look(textf("grep -n disabled_plugins %s; %s plugins ls | grep -w cri", file, ctr),
				`Check for "cri" in disabled_plugins; remove it, then restart containerd`)
		}
		if strings.Contains(says, "disabled_plugins") {
			AddService(f, s)
			addRestart(f, s, `Remove "cri" from disabled_plugins first.`)
			return
		}
		s.lookIf(says == "", "grep -n containerRuntimeEndpoint /var/lib/kubelet/config.yaml",
			"Check which socket the kubelet uses")
		if grpc {
			AddDisk(f, s, "Check for a full disk: the CRI plugin does not load then")
		}
		AddService(f, s)
		if !f.Measurement.Connect.TTRPC {
			addRestart(f, s, "Only after the repair: without it nothing changes.")
		}
	})
}

// loggedRuntimeUnsupported is for a socket that answers every call, but not as CRI v1: containerd without its CRI
// plugin, another program, a runtime that is too old. Relists fail at once, each second, and so does the status.
func loggedRuntimeUnsupported(in *Incident) *Finding {
	unimplemented := func(c journal.Call) bool { return c.Code == "Unimplemented" }
	again, lists := in.answeredAgain(), in.calls(unimplemented, signature.RelistFailed, signature.ListFailed)
	f := in.recorded(raised(ifElse(lists > 0, checks.Strong, checks.Weak), in.down && again),
		"Something listens on the runtime's socket that does not speak CRI v1: the runtime's CRI plugin is "+
			"disabled, or it is another program.", signature.CRIUnsupported)
	if f == nil {
		return nil
	}
	f.supports(ifElse(lists > 0, "lists fail with it: "+units.Count(lists, "record"), ""),
		ifElse(in.down && again, listedDown, ""))
	switch {
	case in.refused > 0 && again:
		f.supports(in.refusals() + ": before that, when nothing listened")
	case in.refused > 0:
		f.unlikely("calls were refused after that: " + in.refusals())
	}
	return f
}
