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
	if f.Measurement == nil {
		return nil
	}
	var e Evidence
	var summary string
	if connect := f.Measurement.Connect; connect.State == crictl.ConnectForeign {
		summary = fmt.Sprintf("what listens on %s does not speak gRPC", f.socketPath())
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
		c.Subject.Processes = []Process{*p}
	}
	c.NextSteps = f.stepsWhenUnsupported()
	return c
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
	if safeEndpoint.MatchString(f.Runtime.Endpoint) {
		s.add(TouchesNothing, "ss -xlp | grep -F "+f.socketPath(), "Which process listens there?")
	}
	if unit := f.unit(); strings.Contains(unit, "containerd") || unit == "" {
		s.add(TouchesNothing, "grep -n disabled_plugins /etc/containerd/config.toml; ctr plugins ls | grep -w cri", "Is the CRI plugin disabled, or did it fail to load?")
	}
	s.add(TouchesNothing, "grep -n containerRuntimeEndpoint /var/lib/kubelet/config.yaml", "Which socket does the kubelet use?")
	f.addDisk(&s, "Is the disk full? Then the CRI plugin does not load, and the answer is the same.")
	f.addService(&s)
	f.addRestart(&s)
	return s.done()
}
