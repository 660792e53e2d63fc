package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// readChecks reads every check out of the facts, in the order in which they are shown: the cause before its
// consequences, so from the kernel upwards, then the runtime from the socket inwards, the kubelet, and the logs.
// docs/checks.md describes them.
func readChecks(f *facts.Facts) []checks.Result {
	n := f.Seen
	return []checks.Result{
		look("host.pressure", f, n.Pressure, judgePressure),
		look("host.memory", f, n.Memory, judgeMemory),
		look("host.space", f, n.Spaces, judgeSpace),
		look("host.inodes", f, n.Spaces, judgeInodes),
		look("host.writes", f, n.Writes, judgeWrites),
		look("host.disks", f, n.Disks, judgeDisks),
		look("host.mounts", f, n.Mounts, judgeMounts),
		look("host.pids", f, n.PIDs, judgePIDs),
		look("host.files", f, n.Files, judgeFiles),
		look("host.inotify", f, n.Inotify, judgeInotify),
		look("host.conntrack", f, n.Conntrack, judgeConntrack),
		look("host.cgroups", f, n.Cgroups, judgeCgroups),
		look("host.clock", f, n.Clock, judgeClock),
		check("host.processes", f, readProcesses),
		look("host.tasks", f, n.Tasks, judgeTasks),
		look("host.zombies", f, n.Tasks, judgeZombies),
		look("host.shims", f, n.Tasks, judgeShims),
		look("host.freezer", f, n.Cgroups,
			fine("no control group of a pod, the runtime or the kubelet is frozen")),
		look("host.throttling", f, n.Cgroups,
			fine("no CPU quota throttles the runtime or the kubelet")),
		look("systemd.answer", f, n.Systemd, judgeSystemdAnswer),
		look("systemd.units", f, n.Systemd, judgeSystemdUnits),
		look("runtime.unit", f, n.Systemd, judgeRuntimeUnit),
		check("runtime.endpoint", f, readEndpoint),
		check("runtime.connect", f, readConnect),
		check("runtime.version", f, reached(readVersion)),
		check("runtime.status", f, reached(readStatus)),
		check("runtime.network", f, reached(readNetwork)),
		check("runtime.lists", f, reached(readLists)),
		check("runtime.inspect", f, reached(readInspect)),
		check("image.service", f, reached(readImages)),
		check("relist.size", f, reached(readSize)),
		check("relist.exited", f, reached(readExited)),
		check("relist.projection", f, reached(readProjection)),
		look("kubelet.unit", f, n.Systemd, judgeKubeletUnit),
		look("kubelet.settings", f, n.Settings, judgeSettings),
		look("kubelet.healthz", f, n.Health, judgeHealthz),
		look("kubelet.server", f, n.Health, judgeServer),
		look("kubelet.metrics", f, n.Health, judgeMetrics),
		look("kubelet.certificates", f, n.Certificates, judgeCertificates),
		look("kubelet.apiserver", f, n.Server, judgeAPIServer),
		look("kubelet.node", f, n.Server, judgeNodeObject),
		look("kubelet.cgroupdriver", f, n.RuntimeDriver, judgeCgroupDriver),
		look("kubelet.cni", f, n.CNI, judgeCNI),
		check("journal.pleg", f, logged(readLogOfPLEG)),
		check("journal.kubelet", f, logged(readLogOfKubelet)),
		check("journal.apiserver", f, logged(readLogOfAPIServer)),
		check("journal.kernel", f, logged(readLogOfKernel)),
		check(errorsCheck, f, logged(readErrors)),
	}
}

// results returns the checks, each with the line of the worst cause that claims it, and without those that the
// command does not look at. It is pure.
func results(j judgement) []checks.Result {
	var out []checks.Result
	for _, r := range readChecks(j.facts) {
		if r.ID == errorsCheck && r.Status == checks.StatusWarning && len(unexplained(j)) == 0 {
			r = explained(j)
		}
		if x := worst(j.found, r.ID); x != nil {
			r.Status, r.Summary = checks.Status(x.Severity), x.Summary
		}
		if r.Status != checks.StatusSkipped || r.Summary != facts.NotWanted {
			out = append(out, r)
		}
	}
	return out
}

// worst returns the most severe finding whose definition claims a check; nil when there is none.
func worst(found []causes.Finding, id string) (out *causes.Finding) {
	for _, x := range found {
		d, _ := causes.Lookup(x.Code)
		if slices.Contains(d.Claims, id) && (out == nil || x.Severity == checks.Critical &&
			out.Severity != checks.Critical) {
			out = &x
		}
	}
	return out
}

// onlyRuntime is the line of the checks of the node where the runtime alone was asked.
const onlyRuntime = "the node was not looked at: only the runtime was asked"

// look reads a check out of one reading of the node. judge gets the value, or the part that was read: trouble in
// a part is trouble, and a part without trouble is never ok.
func look[T any](id string, f *facts.Facts, l facts.Reading[T],
	judge func(*facts.Facts, T) checks.Result,
) checks.Result {
	return check(id, f, func(f *facts.Facts) checks.Result {
		switch {
		case f.Target.Simulated:
			return skipped("the runtime is simulated, and this host is not its node")
		case f.Node == nil:
			return skipped(onlyRuntime)
		case l.Skipped:
			return skipped("%s", l.Why())
		}
		r := judge(f, l.Value)
		if !l.OK && r.Status != checks.StatusWarning && r.Status != checks.StatusCritical {
			r = unknown("%s", l.Why())
		}
		if l.Took > 0 {
			r = took(r, l.Took)
		}
		return r
	})
}

// fine makes the judge of a check that only a cause makes anything else than ok.
func fine(line string) func(*facts.Facts, host.Cgroups) checks.Result {
	return func(*facts.Facts, host.Cgroups) checks.Result { return ok("%s", line) }
}

// check reads a check.
func check(id string, f *facts.Facts, read func(*facts.Facts) checks.Result) checks.Result {
	r := read(f)
	r.ID = id
	return r
}

// reached reads a check that needs calls of the runtime.
func reached(read func(*facts.Facts) checks.Result) func(*facts.Facts) checks.Result {
	return func(f *facts.Facts) checks.Result {
		switch {
		case f.Measurement == nil:
			return unknown("no runtime was asked")
		case !f.Calls.Connected:
			return skipped("the socket did not get that far")
		}
		return read(f)
	}
}

// result makes a result without a duration.
func result(s checks.Status, format string, args ...any) checks.Result {
	return checks.Result{Status: s, Summary: fmt.Sprintf(format, args...)}
}

func ok(format string, args ...any) checks.Result { return result(checks.StatusOK, format, args...) }

func warning(format string, args ...any) checks.Result {
	return result(checks.StatusWarning, format, args...)
}

func critical(format string, args ...any) checks.Result {
	return result(checks.StatusCritical, format, args...)
}

func unknown(format string, args ...any) checks.Result {
	return result(checks.StatusUnknown, format, args...)
}

func skipped(format string, args ...any) checks.Result {
	return result(checks.StatusSkipped, format, args...)
}

// took adds a duration to a result.
func took(r checks.Result, d time.Duration) checks.Result {
	r.DurationSeconds = new(max(d, 0).Seconds())
	return r
}

// slower makes an ok result a warning from a limit on.
func slower(r checks.Result, d, limit time.Duration) checks.Result {
	if r.Status == checks.StatusOK && d >= limit {
		r.Status = checks.StatusWarning
	}
	return took(r, d)
}
