package checks

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/crictl"
)

func runtimeUnsupported() Definition {
	return Definition{
		Code:  codeRuntimeUnsupported,
		Title: "something answers, but not CRI v1",
		Means: "There is a server behind the socket, and it is not a runtime that a kubelet can use: it does not speak HTTP/2 at all, or it speaks gRPC and does " +
			"not know runtime.v1.RuntimeService. The second is containerd with its CRI plugin disabled or not loaded, docker's private " +
			"containerd, or a runtime so old that it only has v1alpha2. A full root folder gives exactly the same answer: containerd starts, " +
			"and its CRI plugin fails to load for want of space.\n\n" +
			"A kubelet that starts against it exits with \"validate CRI v1 runtime API\". One that was running already gets Unimplemented from " +
			"every call: container runtime is down after 30 s, PLEG unhealthy after 3m.",
		Confirm: []string{
			"grep disabled_plugins /etc/containerd/config.toml: \"cri\" in the list is the package default of docker's containerd.io.",
			"ctr plugins ls | grep cri: STATUS must be ok; error means that it failed to load, and the log says why.",
			"The runtime's log, \"failed to load plugin io.containerd.grpc.v1.cri\": with \"no space left on device\" the disk is full (df -h and df -i of the root folder).",
			"ss -xlp | grep SOCKET: which process is it?",
		},
		Fix: []string{
			"Remove cri from disabled_plugins and restart containerd, which keeps running containers.",
			"Disk full: free space in the runtime's root folder, then restart it so that the plugin loads.",
			"Plugin in error: repair what its log line names (a bad config version, CNI folder, snapshotter, too many open files for its watcher).",
			"Wrong socket: correct the kubelet's containerRuntimeEndpoint, or the flag given to kdiag.",
			"v1alpha2 only: upgrade the runtime (containerd 1.6, CRI-O 1.20 or newer).",
		},
		Mistaken: "RuntimeDown: there nothing answers. RuntimeNotReady with \"server is not initialized yet\": the plugin is there and still starting; wait.",
		Sources: []string{
			"gRPC codes: Unimplemented, unknown service runtime.v1.RuntimeService",
			"containerd/containerd#10468 (CRI plugin not loaded: too many open files)",
		},
		recognise: recogniseRuntimeUnsupported,
	}
}

func recogniseRuntimeUnsupported(f *Facts) *Cause {
	if f.Measurement == nil || f.NamedTTRPC() {
		return nil
	}
	var e Evidence
	var summary string
	if f.Measurement.Connect.TTRPC {
		summary = fmt.Sprintf("%s is containerd's ttrpc socket, for its shims: no kubelet can use it", f.socketPath())
		addf(&e.For, "it does not answer HTTP/2, and answers ttrpc; %s", CRISocketBeside(f.Runtime.Endpoint))
	} else if connect := f.Measurement.Connect; connect.State == crictl.ConnectForeign {
		summary = fmt.Sprintf("what listens on %s does not speak gRPC", f.socketPath())
		if is := f.notRuntime(); is != "" {
			summary += fmt.Sprintf(": %s, and %s", f.daemon().Label, is)
		}
		line := "it does not answer the HTTP/2 preface as a gRPC server does"
		if connect.FirstByte != "" {
			line += ", but with " + clean(connect.FirstByte)
		}
		if connect.Err != "" {
			line += ": " + clean(connect.Err)
		}
		e.For = append(e.For, line)
	} else {
		call, found := f.unimplemented()
		if !found {
			return nil
		}
		summary = fmt.Sprintf("%s speaks gRPC, but serves no CRI v1: plugin disabled or not loaded, too old, or the wrong socket", f.daemon().Label)
		addf(&e.For, "%s", callLine(call))
		f.addCalls(&e.Against, isAlive, rpcStatus, rpcSandboxes, rpcContainers)
	}
	f.endpointEvidence(&e)
	step := raised(Certain, f.hearDown(&e))
	c := newCause(codeRuntimeUnsupported, Critical, step, summary, e)
	c.Subject = f.socketSubject()
	if p := f.peer(); p != nil && p.PID > 1 {
		if f.Peer != nil && f.Peer.PID == p.PID {
			*p = f.processOf(*f.Peer)
		}
		c.Subject.Processes = []Process{*p}
	}
	c.NextSteps = f.stepsWhenUnsupported()
	return c
}

// NamedTTRPC reports whether the socket that a person named is containerd's for its shims, which lies beside the one for CRI and has its
// name in front: then nothing was learnt of the runtime.
func (f *Facts) NamedTTRPC() bool {
	source := crictl.Source(f.Runtime.EndpointSource)
	return f.Measurement != nil && f.Measurement.Connect.TTRPC && (source == crictl.SourceFlag || source == crictl.SourceEnv)
}

// CRISocketBeside says where the CRI socket is of which this is the ttrpc socket: containerd names that one after it unless it is told
// otherwise (services/server/config in containerd).
func CRISocketBeside(endpoint string) string {
	if cri, ok := strings.CutSuffix(endpoint, ".ttrpc"); ok {
		return "its CRI socket is " + clean(cri)
	}
	return "its CRI socket is usually unix:///run/containerd/containerd.sock"
}

// unimplemented returns a call that shows that CRI v1 is not served: Version, Status or a list is answered with Unimplemented.
func (f *Facts) unimplemented() (crictl.Call, bool) {
	if !f.connected() || f.anyList() {
		return crictl.Call{}, false
	}
	for _, name := range []string{rpcVersion, rpcStatus, rpcSandboxes, rpcContainers} {
		if c := f.rpc(name).last(); c.Code == crictl.Unimplemented {
			return c, true
		}
	}
	return crictl.Call{}, false
}

func (f *Facts) stepsWhenUnsupported() []NextStep {
	var s steps
	if d := f.daemon(); d.PID <= 1 && safeEndpoint.MatchString(f.Runtime.Endpoint) {
		s.add(TouchesNothing, "ss -xlp | grep -F "+f.socketPath(), "Which process listens there?")
	}
	_, grpc := f.unimplemented()
	if grpc && !strings.Contains(f.unit(), "crio") {
		f.addPlugin(&s)
	}
	s.add(TouchesNothing, "grep -n containerRuntimeEndpoint /var/lib/kubelet/config.yaml", "Which socket does the kubelet use?")
	if grpc {
		f.addDisk(&s, "Is the disk full? Then the CRI plugin does not load, and the answer is the same.")
	}
	f.addService(&s)
	if !f.Measurement.Connect.TTRPC {
		f.addRestart(&s)
	}
	for i := range s {
		if grpc && s[i].Touches != TouchesNothing {
			s[i].Why = "Only after the repair: restarted unchanged, it answers the same. " + s[i].Why
		}
	}
	return s.done()
}

// addPlugin adds a look at why containerd serves no CRI, in the configuration that the daemon was given.
func (f *Facts) addPlugin(s *steps) {
	file := "/etc/containerd/config.toml"
	if p := f.daemon().Process; p != nil && safePath.MatchString(p.Config) {
		file = p.Config
	}
	ctr := "ctr"
	if safeEndpoint.MatchString(f.Runtime.Endpoint) {
		ctr += " -a " + f.socketPath()
	}
	s.add(TouchesNothing, fmt.Sprintf("grep -n disabled_plugins %s; %s plugins ls | grep -w cri", file, ctr),
		`Is "cri" among disabled_plugins? Take it out there, and restart containerd. If the plugin is in error, its log says what to repair.`)
}
