package causes

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeDown is the code of this cause.
const RuntimeDown = "RuntimeDown"

var runtimeDown = Definition{
	Code:   RuntimeDown,
	Claims: []string{"runtime.connect"},
	Roots: []Root{
		{Code: DiskFull, When: runtimeDiskFull},
		{Code: InodesExhausted, When: runtimeInodesGone},
		{Code: IOStall, When: diskFails},
		{Code: OOMKilled, When: oomHitRuntime},
		{Code: PIDsExhausted, When: runtimeCannotFork},
		{Code: InotifyExhausted, When: inotifyGone},
	},
	OnPurpose: runtimeStoppedInOrder,
	Recognise: recogniseRuntimeDown,
	FromLog:   loggedRuntimeDown,
}

func recogniseRuntimeDown(f *facts.Facts) *Finding {
	if f.Measurement == nil {
		return nil
	}
	var e checks.Evidence
	var summary string
	connect := f.Measurement.Connect
	switch connect.State {
	case crictl.ConnectMissing:
		summary = fmt.Sprintf("nothing listens: the socket %s does not exist", f.Target.SocketPath)
	case crictl.ConnectRefused:
		summary = fmt.Sprintf("nothing listens: %s is there, but connecting to it is refused", f.Target.SocketPath)
	default:
		call, gone := f.Calls.Gone, f.Calls.WentAway
		if !gone {
			return nil
		}
		summary = fmt.Sprintf("%s went away while it was asked", f.Target.Name)
		Addf(&e.For, "%s", facts.CallLine(call))
	}
	if connect.Err != "" {
		Addf(&e.For, "connecting to %s: %s", f.Target.SocketPath, facts.Clean(connect.Err))
	} else if len(e.For) == 0 {
		Addf(&e.For, "the socket was found %s", connect.State)
	}
	if n := orphanedShims(f); n > 0 {
		summary += "; " + shimsWithout(f, n)
	}
	downByProcesses(f, &e)
	downByUnit(f, &e)
	if u := f.Target.RuntimeUnit; UnitDown(u) {
		why := facts.Clean(u.Result)
		if why == "" || why == "success" { // stopped by somebody
			why = facts.Clean(u.Sub)
		}
		summary += fmt.Sprintf("; %s is %s (%s)", facts.Clean(u.Name), facts.Clean(u.Active), why)
	}
	endpointEvidence(f, &e)
	logOfStops(f, &e)
	step := raised(checks.Certain, logOfDown(f, &e))
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.SocketSubject(f)
	if s := facts.DaemonSubject(f); s.Kind == "Unit" {
		c.Subject = s
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenDown(f) }
	return c
}

// downByProcesses says whether a runtime daemon is running after all.
func downByProcesses(f *facts.Facts, e *checks.Evidence) {
	missingHost(f, e)
	if f.HostMissing != "" || f.Target.Simulated {
		return
	}
	daemons := facts.ProcessesOf(f, host.RoleRuntime)
	if len(daemons) == 0 {
		Addf(&e.For, "no runtime daemon is running on this host")
		if n := orphanedShims(f); n > 0 {
			Addf(&e.For, "%s: containers go on, and nobody watches them", shimsWithout(f, n))
		}
		return
	}
	Addf(&e.Against, "%s is running: it is still starting, or listens on another socket",
		facts.ProcessLabel(daemons[0]))
}

// orphanedShims counts the shims of a host on which no runtime daemon runs.
func orphanedShims(f *facts.Facts) int {
	if f.HostMissing != "" || f.Target.Simulated || len(facts.ProcessesOf(f, host.RoleRuntime)) > 0 {
		return 0
	}
	return len(facts.ProcessesOf(f, host.RoleShim))
}

func shimsWithout(f *facts.Facts, n int) string {
	return fmt.Sprintf("%s %s without a daemon", units.Count(n, "shim"), units.Plural(n, "runs", "run"))
}

// downByUnit adds what systemd says of the runtime's unit. One that was restarted many times did not come down by
// itself once.
func downByUnit(f *facts.Facts, e *checks.Evidence) {
	u := f.Target.RuntimeUnit
	if u == nil {
		return
	}
	if u.Active == "active" {
		Addf(&e.Against, "systemd: %s: it is still starting, or listens on another socket", UnitLine(f, u))
		return
	}
	Addf(&e.For, "systemd: %s", UnitLine(f, u))
	switch {
	case u.Result == "oom-kill":
		Addf(&e.For, "the OOM killer ended it: memory is the cause")
	case u.Result == "start-limit-hit":
		Addf(&e.For, "systemd has given up starting it: systemctl reset-failed comes before the next start")
	case u.Restarts >= facts.LoopRestarts:
		Addf(&e.For, "it ends again and again: starting it once more repeats what ends it")
	}
}

// endpointEvidence says whether the endpoint is the one that the kubelet uses.
func endpointEvidence(f *facts.Facts, e *checks.Evidence) {
	switch {
	case f.Target.Simulated:
	case f.Runtime.EndpointSource == string(crictl.SourceKubelet) && f.Kubelet != nil:
		Addf(&e.For, "it is the endpoint of the kubelet that is running here")
	case f.Runtime.EndpointSource == string(crictl.SourceKubelet):
		Addf(&e.For, "the endpoint is from %s", facts.Clean(f.Runtime.EndpointReason))
	case f.Kubelet == nil:
		Addf(&e.Missing, "whether the kubelet uses this endpoint: no kubelet was seen on this host")
	case f.Target.OtherEndpoint:
		Addf(&e.Against, "the kubelet %s", facts.UsesOther(f))
	}
}

func stepsWhenDown(f *facts.Facts) []checks.NextStep {
	var s Steps
	if f.Runtime.EndpointSource == string(crictl.SourceFlag) && f.Measurement.Connect.State == crictl.ConnectMissing {
		s.Add(checks.TouchesNothing, "kdiag pleg",
			"Was the path typed right? Without --runtime-endpoint kdiag asks the kubelet's own runtime.")
	}
	AddService(f, &s)
	if facts.SafeEndpoint.MatchString(f.Runtime.Endpoint) {
		s.Add(checks.TouchesNothing, "ls -l "+f.Target.SocketPath+"; ss -xlp | grep -F "+f.Target.SocketPath,
			"Is there a socket, and does a process listen on it?")
	}
	AddDisk(f, &s, "A full disk is the commonest reason why the daemon does not start again.")
	switch unit := f.Target.Unit; {
	case unit == "", f.Target.OtherEndpoint:
	case f.Target.RestartsKubelet:
		s.Add(checks.TouchesKubelet, "systemctl restart "+unit,
			"Starts runtime and kubelet, which share this unit; containers that run are kept.")
	case unit == facts.UnitsCRIDockerd:
		s.Add(checks.TouchesRuntime, "systemctl start "+facts.UnitDocker+"; systemctl restart "+facts.UnitCRIDocker,
			"Starts docker if it does not run, and cri-dockerd anew. Do not restart a docker that runs: without "+
				"live restore that stops all containers.")
	case unit == facts.UnitDocker:
		addRestartDocker(&s)
	default:
		command := "systemctl restart " + unit
		if u := f.Target.RuntimeUnit; u != nil && u.Result == "start-limit-hit" {
			command = "systemctl reset-failed " + unit + "; " + command
		}
		s.Add(checks.TouchesRuntime, command, "Starts the daemon; containers that run are kept.")
	}
	return s.Done()
}

// loggedRuntimeDown is for a daemon that refuses calls or has ended.
func loggedRuntimeDown(in *Incident) *LogFinding {
	ended, again := in.runtimeEnd()
	if in.refused == 0 && in.records(signature.RuntimeStopped) == nil && ended == nil {
		return nil
	}
	f := in.finding(runtimeTier, 0.55, "The runtime's daemon is not running.", signature.RuntimeStopped)
	if ended != nil {
		f.raise(0, "systemd reports that the runtime's unit failed, first at "+
			ended[0].First().In(in.Zone).Format(time.TimeOnly))
	}
	if in.refused > 0 {
		f.Summary = "Nothing listens on the runtime's socket: the daemon is not running."
		f.raise(0.2, in.refusals())
	} else if ended != nil {
		f.Confidence += 0.05
		f.late = in.lateStart(ended)
	}
	switch {
	case in.answeredAgain():
		f.lower(0.4, "something listens again, though not as a CRI runtime")
	case in.down:
		f.raise(0.1, listedDown)
	}
	if again {
		f.lower(0.15, "the runtime was started again")
	}
	if in.missed > in.refused {
		f.lower(0.2, "calls rather missed their deadline than were refused: "+units.Count(in.missed, "record"))
	}
	return f
}
