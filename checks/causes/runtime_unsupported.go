package causes

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeUnsupported is the code of this cause.
const RuntimeUnsupported = "RuntimeUnsupported"

var runtimeUnsupported = Definition{
	Code: RuntimeUnsupported,
	Roots: []Root{
		{Code: InotifyExhausted, When: inotifyGone},
	},
	Recognise: recogniseRuntimeUnsupported,
	FromLog:   loggedRuntimeUnsupported,
}

func recogniseRuntimeUnsupported(f *facts.Facts) *Finding {
	if f.Measurement == nil || facts.NamedTTRPC(&f.Input) {
		return nil
	}
	var e checks.Evidence
	var summary string
	if f.Measurement.Connect.TTRPC {
		summary = fmt.Sprintf("%s is containerd's ttrpc socket, for its shims: no kubelet can use it",
			f.Target.SocketPath)
		Addf(&e.For, "it does not answer HTTP/2, and answers ttrpc; %s", facts.CRISocketBeside(f.Runtime.Endpoint))
	} else if connect := f.Measurement.Connect; connect.State == crictl.ConnectForeign {
		summary = fmt.Sprintf("what listens on %s does not speak gRPC", f.Target.SocketPath)
		if is := facts.NotRuntime(f); is != "" {
			summary += fmt.Sprintf(": %s, and %s", f.Target.Daemon.Label, is)
		}
		line := "it does not answer the HTTP/2 preface as a gRPC server does"
		if connect.FirstByte != "" {
			line += ", but with " + facts.Clean(connect.FirstByte)
		}
		if connect.Err != "" {
			line += ": " + facts.Clean(connect.Err)
		}
		e.For = append(e.For, line)
	} else {
		call, found := f.Calls.NotCRI, f.Calls.IsNotCRI
		if !found {
			return nil
		}
		summary = fmt.Sprintf("%s speaks gRPC, but serves no CRI v1: plugin disabled or not loaded, too old, or "+
			"the wrong socket", f.Target.Daemon.Label)
		Addf(&e.For, "%s", facts.CallLine(call))
		addCalls(f, &e.Against, isAlive, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
	}
	endpointEvidence(f, &e)
	step := raised(checks.Certain, logOfDown(f, &e))
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.SocketSubject(f)
	if p := facts.PeerOf(f); p != nil && p.PID > 1 {
		if f.Peer != nil && f.Peer.PID == p.PID {
			*p = facts.ProcessOf(f, *f.Peer)
		}
		c.Subject.Processes = []checks.Process{*p}
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenUnsupported(f) }
	return c
}

func stepsWhenUnsupported(f *facts.Facts) []checks.NextStep {
	var s Steps
	if d := f.Target.Daemon; d.PID <= 1 && facts.SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		s.Add(checks.TouchesNothing, "ss -xlp | grep -F "+f.Target.SocketPath, "Which process listens there?")
	}
	_, grpc := f.Calls.NotCRI, f.Calls.IsNotCRI
	if grpc && !strings.Contains(f.Target.Unit, "crio") {
		addPlugin(f, &s)
	}
	s.Add(checks.TouchesNothing, "grep -n containerRuntimeEndpoint /var/lib/kubelet/config.yaml",
		"Which socket does the kubelet use?")
	if grpc {
		AddDisk(f, &s, "Is the disk full? Then the CRI plugin does not load, and the answer is the same.")
	}
	AddService(f, &s)
	if !f.Measurement.Connect.TTRPC {
		addRestart(f, &s)
	}
	for i := range s {
		if grpc && s[i].Touches != checks.TouchesNothing {
			s[i].Why = "Only after the repair: restarted unchanged, it answers the same. " + s[i].Why
		}
	}
	return s.Done()
}

// addPlugin adds a look at why containerd serves no CRI, in the configuration that the daemon was given.
func addPlugin(f *facts.Facts, s *Steps) {
	file := "/etc/containerd/config.toml"
	if p := f.Target.Daemon.Process; p != nil && facts.SafePath.MatchString(p.Config) {
		file = p.Config
	}
	ctr := "ctr"
	if facts.SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		ctr += " -a " + f.Target.SocketPath
	}
	s.Add(checks.TouchesNothing, fmt.Sprintf("grep -n disabled_plugins %s; %s plugins ls | grep -w cri", file, ctr),
		`Is "cri" among disabled_plugins? Take it out there, and restart containerd. If the plugin is in error, its log says what to repair.`)
}

// loggedRuntimeUnsupported is for a socket that answers every call, but not as CRI v1: containerd without its CRI
// plugin, another program, a runtime that is too old. Relists fail at once, each second, and so does the status.
func loggedRuntimeUnsupported(in *Incident) *LogFinding {
	if in.count(signature.CRIUnsupported) == 0 {
		return nil
	}
	f := in.finding(runtimeTier, 0.35, "Something listens on the runtime's socket that does not speak CRI v1: the "+
		"runtime's CRI plugin is disabled, or it is another program.", signature.CRIUnsupported)
	unimplemented := func(c journal.Call) bool { return c.Code == "Unimplemented" }
	if in.calls(unimplemented, signature.RelistFailed, signature.ListFailed) > 0 {
		f.raise(0.4, "the lists of every relist fail with it")
	}
	again := in.answeredAgain()
	if in.down && again {
		f.raise(0.1, listedDown)
	}
	switch {
	case in.refused > 0 && again:
		f.raise(0, in.refusals()+": before that, when nothing listened, as while the daemon is started again")
	case in.refused > 0:
		f.lower(0.4, "calls were refused after that: "+in.refusals())
	}
	return f
}
