package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

func readEndpoint(f *facts.Facts) checks.Result {
	e := facts.Clean(f.Runtime.Endpoint)
	switch {
	case e == "":
		return unknown("no endpoint was found")
	case f.Target.OtherEndpoint:
		return warning("%s, but the kubelet %s", e, facts.UsesOther(f))
	}
	return ok("%s: %s", e, facts.Clean(cmp.Or(f.Runtime.EndpointReason, f.Runtime.EndpointSource, "given")))
}

func readConnect(f *facts.Facts) checks.Result {
	if f.Measurement == nil {
		return unknown("no runtime was asked")
	}
	c := f.Measurement.Connect
	r := unknown("%s", causes.ConnectProblem(c))
	switch c.State {
	case crictl.ConnectOK:
		r = ok("answered in %s", units.Duration(c.Elapsed))
		if p := facts.PeerOf(f); p != nil && p.Name != "" {
			r.Summary += ", " + p.Name + ", " + p.State
		}
	case crictl.ConnectBacklogged, crictl.ConnectSilent, crictl.ConnectForeign:
		r.Status = checks.StatusCritical
	}
	return took(r, c.Elapsed)
}

// readRPC is the result for one RPC: good makes it of an answer.
func readRPC(f *facts.Facts, name string, good func() checks.Result) checks.Result {
	r := f.RPC[name]
	switch r.Outcome {
	case facts.NotAsked:
		return unknown("%s: no reply before --timeout", name)
	case facts.Hung, facts.Failed:
		return took(critical("%s", facts.CallLine(r.Last())), r.Last().Elapsed)
	}
	return slower(good(), r.Last().Elapsed, f.Limits.SlowList)
}

func readVersion(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCVersion, func() checks.Result {
		v, took := facts.RuntimeOf(f), f.RPC[facts.RPCVersion].Last().Elapsed
		slow := ""
		if took >= f.Limits.SlowList {
			slow = ", answered in " + units.Duration(took)
		}
		return ok("%s %s, CRI %s%s", cmp.Or(v.Name, "no name"), cmp.Or(v.Version, "of unknown version"),
			cmp.Or(v.APIVersion, "of unknown version"), slow)
	})
}

func readStatus(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCStatus, func() checks.Result {
		if f.Measurement.Status == nil {
			return unknown("Status was answered without content")
		}
		if c, found := f.Measurement.Status.Condition(facts.ConditionRuntimeReady); !found || !c.Status {
			return critical("RuntimeReady is false")
		}
		return ok("RuntimeReady, answered in %s", units.Duration(f.RPC[facts.RPCStatus].Last().Elapsed))
	})
}

func readNetwork(f *facts.Facts) checks.Result {
	switch {
	case f.Measurement.Status == nil:
		return unknown("Status was not answered")
	case !f.KubeletState.NetworkReady:
		return unknown("NetworkReady is not reported")
	}
	return ok("NetworkReady")
}

func readLists(f *facts.Facts) checks.Result {
	hung, failed, asked := 0, 0, true
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		r := f.RPC[name]
		if r.Outcome == facts.Hung || r.Outcome == facts.Failed {
			return took(critical("%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		}
		hung, failed, asked = hung+r.HungCalls(), failed+r.FailedCalls(), asked && r.Outcome != facts.NotAsked
	}
	if !asked {
		return unknown("not both lists were read before --timeout")
	}
	p50 := f.Calls.ListMedian
	if f.Calls.ListMedian == 0 {
		p50 = f.RPC[facts.RPCSandboxes].Last().Elapsed + f.RPC[facts.RPCContainers].Last().Elapsed
	}
	r := ok("%s in %s", inLists(f), units.Duration(p50))
	if hung+failed > 0 {
		r = warning("%s, but %s hung or failed", r.Summary, units.Count(hung+failed, "list call"))
	}
	if hung > 0 || p50 >= f.Limits.VerySlowList {
		r.Status = checks.StatusCritical
	}
	return slower(r, p50, f.Limits.SlowList)
}

// inLists counts what the newest lists hold.
func inLists(f *facts.Facts) string {
	sandboxes, running, containers := 0, 0, 0
	for e := range facts.Entries(f, facts.RPCSandboxes, facts.RPCContainers) {
		if e.Kind == facts.KindSandbox {
			sandboxes++
			continue
		}
		containers++
		if e.Runs {
			running++
		}
	}
	return fmt.Sprintf("%s, %s (%s running)", units.Count(sandboxes, "sandbox"), units.Count(containers, "container"),
		units.Number(running))
}

func readInspect(f *facts.Facts) checks.Result {
	all, hung := len(f.Sweep.Made), f.Sweep.Hung
	bad := facts.InspectionsThat(f,
		func(i plegbench.Inspection) bool { return facts.IsFailed(i) || facts.IsRefused(i) })
	switch {
	case all == 0 && f.Calls.AnyList && f.Lists.Objects == 0:
		return skipped("the runtime holds no pods")
	case all == 0:
		return unknown("no status call was made")
	case len(hung) > 0:
		return took(critical("%s of %s hung, the first: %s", units.Number(len(hung)), units.Count(all, "status call"),
			facts.Label(hung[0])), hung[0].Call.Elapsed)
	case len(bad) > 0:
		return warning("%s of %s failed, the first: %s: %s", units.Number(len(bad)), units.Count(all, "status call"),
			facts.Label(bad[0]), facts.Clean(bad[0].Call.Err))
	case f.Sweep.Running.Disagrees():
		return warning("%s", f.Sweep.Running.Disagreement())
	}
	r := ok("%s of %s answered", units.Number(f.Sweep.Answered),
		units.Count(max(f.Measurement.Sweep.Total, all), "status call"))
	s := f.Sweep.Summary
	if s == nil || s.SlowestSeconds == nil {
		return r
	}
	slowest := units.ToDuration(*s.SlowestSeconds)
	if s.P99Seconds != nil {
		r.Summary += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	r.Summary += ", slowest " + units.Duration(slowest)
	return slower(r, slowest, f.Limits.SlowStatus)
}

func readImages(f *facts.Facts) checks.Result {
	var slowest time.Duration
	asked := false
	for _, name := range []string{facts.RPCImages, facts.RPCImageFs} {
		last := f.RPC[name].Last()
		switch outcome := f.RPC[name].Outcome; {
		case outcome == facts.Hung && !f.Pattern.OnlyImageList:
			return took(critical("%s", facts.CallLine(last)), last.Elapsed)
		case outcome == facts.Hung, outcome == facts.Failed:
			return took(warning("%s", facts.CallLine(last)), last.Elapsed)
		}
		asked = asked || f.RPC[name].Outcome != facts.NotAsked
		slowest = max(slowest, last.Elapsed)
	}
	if !asked {
		return unknown("image calls: no reply before --timeout")
	}
	if image := f.Seen.SandboxImage; image.OK && image.Value.Absent {
		return took(warning("the sandbox image %s is not on this node: no pod starts unless the runtime can pull it",
			facts.Clean(image.Value.Name)), slowest)
	}
	return took(ok("%s, answered in %s", units.Count(f.RPC[facts.RPCImages].Last().Items, "image"),
		units.Duration(slowest)), slowest)
}

func readSize(f *facts.Facts) checks.Result {
	s := f.Lists.Size
	if !f.Lists.SizeKnown {
		return unknown("no list arrived")
	}
	return ok("%s is %s, %s of %s", s.RPC, units.Size(s.Bytes), units.Percent(s.Share()), units.Size(s.Limit))
}

func readExited(f *facts.Facts) checks.Result {
	if f.Measurement.Containers == nil && f.Measurement.Sandboxes == nil {
		return unknown("no list arrived")
	}
	c := f.Lists.Census
	return ok("%s (%s beyond the newest), %s", units.Count(c.Exited, "exited container"), units.Number(c.BeyondNewest),
		units.Count(c.DeadSandboxes, "dead sandbox"))
}

func readProjection(f *facts.Facts) checks.Result {
	s := f.Summary
	if s == nil || s.ProjectedSeconds == nil {
		return unknown("needs both lists and the status of the pods")
	}
	now, limit := causes.Optional(s.ProjectedSeconds), f.Calls.Threshold
	age := max(now, causes.Optional(s.ProjectedAgeSeconds))
	// the work, without the pause that the age contains
	worst := max(now, causes.Optional(s.ChurnSeconds), causes.Optional(s.ColdSeconds))
	line := causes.Projection(f)
	switch {
	case age > limit || len(f.Calls.HungLists) > 0:
		return critical("%s", line)
	case worst >= time.Duration(float64(limit)*f.Limits.RelistWarning):
		return warning("%s", line)
	case s.ColdSeconds == nil:
		return unknown("%s; no status call was answered", line)
	}
	return ok("%s", line)
}
