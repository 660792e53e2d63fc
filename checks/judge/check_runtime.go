package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// runtimeChecks are the checks of the socket and the calls of the runtime.
func runtimeChecks() []Check {
	return []Check{
		{
			ID:    "runtime.endpoint",
			Title: "which socket is asked, and why",
			Text: "The socket comes from --runtime-endpoint, $CONTAINER_RUNTIME_ENDPOINT, the running kubelet, " +
				"/etc/crictl.yaml or the well-known paths, in this order; where neither a kubelet nor a socket is " +
				"there, " +
				"from what the kubelet's files or the command lines of running shims name. " +
				"A verdict on a socket that the kubelet does not use says nothing about the node, so a difference " +
				"is a warning.",
			read: readRuntimeEndpoint,
		},
		{
			ID:    "runtime.connect",
			Title: "the socket accepts and speaks HTTP/2",
			Text: "Connects and exchanges the HTTP/2 preface, before any RPC. A gRPC server answers it from its " +
				"transport, so this tells a process that runs from one " +
				"that is stopped, and a full listen queue from a refusal.",
			read: readRuntimeConnect,
		},
		{
			ID:    "runtime.version",
			Title: "the runtime names itself",
			Text: "Version is a constant of the daemon: it needs no lock and no disk. Slow, it says that the " +
				"daemon does not get to run; Unimplemented, that CRI v1 is not " +
				"served. The kubelet asks for it with each node status.",
			read: readRuntimeVersion,
		},
		{
			ID:    "runtime.status",
			Title: "Status is answered, and RuntimeReady",
			Text: "The kubelet asks every five seconds; after 30 s without a good answer it calls the runtime " +
				"down. In containerd Status waits for the CNI lock, so it may " +
				"hang alone. containerd and CRI-O always say RuntimeReady=true.",
			read: readRuntimeStatus,
		},
		{
			ID:    "runtime.network",
			Title: "the runtime's network is ready",
			Text: "NetworkReady is false while there is no usable CNI configuration. The node is NotReady then, " +
				"but PLEG is not involved, and pods on the host's " +
				"network still start.",
			read: readRuntimeNetwork,
		},
		{
			ID:    "runtime.lists",
			Title: "both lists of a relist are answered in time",
			Text: "A relist begins with ListPodSandbox and ListContainers, unfiltered. If either fails or hangs, " +
				"PLEG's clock stands still, and after three minutes the " +
				"node is NotReady. Both are served from memory: milliseconds are normal.",
			read: readRuntimeLists,
		},
		{
			ID:    "runtime.inspect",
			Title: "the status of every pod and container is answered",
			Text: "Asks for the status of sandboxes and containers one by one, without verbose, as the kubelet " +
				"does for pods that change. One that hangs costs each relist " +
				"two minutes. NotFound is the ordinary race with a removal.",
			read: readRuntimeInspect,
		},
		{
			ID:    "image.service",
			Title: "image calls are answered",
			Text: "ListImages and ImageFsInfo. PLEG does not need them, so a node stays Ready without them, but " +
				"no new container starts, the disk is not watched, and a " +
				"kubelet that restarts does not come up. Warns when the image that sandboxes are made of (pause) " +
				"is not on the node: the runtime then pulls it before each new pod, and no pod starts where " +
				"that fails.",
			read: readImageService,
		},
	}
}

func readRuntimeEndpoint(f *facts.Facts) checks.Result {
	e := facts.Clean(f.Runtime.Endpoint)
	switch {
	case e == "":
		return result(checks.StatusUnknown, "no endpoint was found")
	case f.Target.OtherEndpoint:
		return result(checks.StatusWarning, "%s, but the kubelet %s", e, facts.UsesOther(f))
	case f.Runtime.EndpointReason != "":
		return result(checks.StatusOK, "%s: %s", e, facts.Clean(f.Runtime.EndpointReason))
	}
	return result(checks.StatusOK, "%s (%s)", e, cmp.Or(facts.Clean(f.Runtime.EndpointSource), "given"))
}

func readRuntimeConnect(f *facts.Facts) checks.Result {
	if f.Measurement == nil {
		return result(checks.StatusUnknown, "no runtime was asked")
	}
	c := f.Measurement.Connect
	switch c.State {
	case crictl.ConnectOK:
		line := "answered in " + units.Duration(c.Elapsed)
		if p := facts.PeerOf(f); p != nil && p.Name != "" {
			line += ", " + p.Name + ", " + p.State
		}
		return took(result(checks.StatusOK, "%s", line), c.Elapsed)
	case crictl.ConnectBacklogged:
		return took(result(checks.StatusCritical, "the listen queue is full: nothing is accepted"), c.Elapsed)
	case crictl.ConnectSilent:
		return took(result(checks.StatusCritical, "accepts, and says nothing for %s", units.Duration(c.Elapsed)),
			c.Elapsed)
	case crictl.ConnectForeign:
		if c.TTRPC {
			return took(result(checks.StatusCritical, "it is containerd's ttrpc socket, for its shims; %s",
				facts.CRISocketBeside(f.Runtime.Endpoint)), c.Elapsed)
		}
		return took(result(checks.StatusCritical, "what listens is no gRPC server"), c.Elapsed)
	}
	return took(result(checks.StatusUnknown, "%s", facts.ConnectProblem(c)), c.Elapsed)
}

func readRuntimeVersion(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCVersion, func() checks.Result {
		v := facts.RuntimeOf(f)
		status := checks.StatusOK
		if d := f.RPC[facts.RPCVersion].Last().Elapsed; f.Limits.SlowList > 0 && d >= f.Limits.SlowList {
			status = checks.StatusWarning
		}
		if v.Name == "" {
			return result(status, "answered, without a name")
		}
		return result(status, "%s %s, CRI %s", v.Name, cmp.Or(v.Version, "of unknown version"),
			cmp.Or(v.APIVersion, "of unknown version"))
	})
}

func readRuntimeStatus(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCStatus, func() checks.Result {
		if f.Measurement.Status == nil {
			return result(checks.StatusUnknown, "Status was answered without content")
		}
		if c, ok := f.Measurement.Status.Condition(facts.ConditionRuntimeReady); !ok || !c.Status {
			return result(checks.StatusCritical, "RuntimeReady is false")
		}
		status, took := checks.StatusOK, f.RPC[facts.RPCStatus].Last().Elapsed
		if f.Limits.SlowList > 0 && took >= f.Limits.SlowList {
			status = checks.StatusWarning
		}
		return result(status, "RuntimeReady, answered in %s", units.Duration(took))
	})
}

func readRuntimeNetwork(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	if f.Measurement.Status == nil {
		return result(checks.StatusUnknown, "Status was not answered")
	}
	if !f.Agent.NetworkReady {
		return result(checks.StatusUnknown, "NetworkReady is not reported")
	}
	return result(checks.StatusOK, "NetworkReady")
}

func readRuntimeLists(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	var asked, stalls, errors int
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		r := f.RPC[name]
		switch r.Outcome {
		case facts.Hung, facts.Failed:
			return took(result(checks.StatusCritical, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.Stalled:
			stalls += r.HungCalls()
			asked++
		case facts.Flaky:
			errors += r.FailedCalls()
			asked++
		case facts.Answered:
			asked++
		}
	}
	if asked < 2 {
		return result(checks.StatusUnknown, "not both lists were asked before the time was up")
	}
	p50, known := f.Calls.ListMedian, f.Calls.ListTimed
	if !known {
		p50 = f.RPC[facts.RPCSandboxes].Last().Elapsed + f.RPC[facts.RPCContainers].Last().Elapsed
	}
	line := fmt.Sprintf("%s in %s", held(f), units.Duration(p50))
	switch {
	case stalls > 0:
		return took(result(checks.StatusCritical, "%s, but %s did not answer", line,
			units.Count(stalls, "list call")), p50)
	case f.Limits.VerySlowList > 0 && p50 >= f.Limits.VerySlowList:
		return took(result(checks.StatusCritical, "%s", line), p50)
	case errors > 0:
		return took(result(checks.StatusWarning, "%s, but %s failed before", line, units.Count(errors, "list call")),
			p50)
	case f.Limits.SlowList > 0 && p50 >= f.Limits.SlowList:
		return took(result(checks.StatusWarning, "%s", line), p50)
	}
	return took(result(checks.StatusOK, "%s", line), p50)
}

// held says what the newest lists hold.
func held(f *facts.Facts) string {
	sandboxes, running, containers := 0, 0, 0
	if l := f.Measurement.Sandboxes; l != nil {
		sandboxes = len(l.Sandboxes)
	}
	if l := f.Measurement.Containers; l != nil {
		containers = len(l.Containers)
		for i := range l.Containers {
			if l.Containers[i].State == crictl.ContainerRunning {
				running++
			}
		}
	}
	return fmt.Sprintf("%s, %s (%s running)", units.Plural(sandboxes, "1 sandbox",
		units.Number(sandboxes)+" sandboxes"), units.Count(containers, "container"), units.Number(running))
}

func readRuntimeInspect(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	all := f.Sweep.Made
	if len(all) == 0 {
		if f.Calls.AnyList && f.Lists.Objects == 0 {
			return result(checks.StatusSkipped, "the runtime holds no pods")
		}
		return result(checks.StatusUnknown, "no status was asked")
	}
	hungs, bad := f.Sweep.Hung, facts.InspectionsThat(f,
		func(i plegbench.Inspection) bool { return facts.IsFailed(i) || facts.IsRefused(i) })
	running := f.Sweep.Running
	switch {
	case len(hungs) > 0:
		return took(result(checks.StatusCritical, "%s of %s hung, the first of %s", units.Number(len(hungs)),
			units.Number(len(all)), facts.Label(hungs[0])), hungs[0].Call.Elapsed)
	case len(bad) > 0:
		return result(checks.StatusWarning, "%s of %s failed, the first of %s: %s", units.Number(len(bad)),
			units.Number(len(all)), facts.Label(bad[0]), facts.Clean(bad[0].Call.Err))
	case running.Disagrees():
		return result(checks.StatusWarning, "%s", running.Disagreement())
	}
	line, s := answeredLine(f, all), f.Sweep.Summary
	if s == nil || s.SlowestSeconds == nil {
		return result(checks.StatusOK, "%s", line)
	}
	slowest := units.ToDuration(*s.SlowestSeconds)
	if s.P99Seconds != nil {
		line += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	status := checks.StatusOK
	if f.Limits.SlowStatus > 0 && slowest >= f.Limits.SlowStatus {
		status = checks.StatusWarning
	}
	return took(result(status, "%s, slowest %s", line, units.Duration(slowest)), slowest)
}

// answeredLine counts the status calls that were answered; what ended meanwhile is not among them.
func answeredLine(f *facts.Facts, all []plegbench.Inspection) string {
	answers := f.Sweep.Answered
	line := units.Count(answers, "status call")
	if total := max(f.Measurement.Sweep.Total, len(all)); total > answers {
		line = fmt.Sprintf("%s of %s", units.Number(answers), units.Count(total, "status call"))
	}
	line += " answered"
	if gone := len(f.Sweep.Gone); gone > 0 {
		line += fmt.Sprintf(", %s ended meanwhile", units.Number(gone))
	}
	return line
}

func readImageService(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	var slowest time.Duration
	asked, images := 0, ""
	for _, name := range []string{facts.RPCImages, facts.RPCImageFs} {
		r := f.RPC[name]
		switch r.Outcome {
		case facts.Hung:
			if f.Pattern.OnlyImageList {
				return took(result(checks.StatusWarning, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
			}
			return took(result(checks.StatusCritical, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.Failed:
			return took(result(checks.StatusWarning, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.NotAsked:
			continue
		}
		asked++
		slowest = max(slowest, r.Last().Elapsed)
		if name == facts.RPCImages {
			images = fmt.Sprintf("%s, ", units.Count(r.Last().Items, "image"))
		}
	}
	if asked == 0 {
		return result(checks.StatusUnknown, "image calls were not answered before the command ended")
	}
	if image := f.Seen.SandboxImage; image.OK && image.Value.Absent {
		return took(result(checks.StatusWarning,
			"the sandbox image %s is not on this node: no pod starts unless the runtime can pull it", facts.Clean(image.Value.Name)), slowest)
	}
	return took(result(checks.StatusOK, "%sanswered in %s", images, units.Duration(slowest)), slowest)
}
