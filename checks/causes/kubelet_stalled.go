package causes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletStalled is the code of this cause.
const KubeletStalled = "KubeletStalled"

var kubeletStalled = Definition{
	Code:   KubeletStalled,
	Claims: []string{"kubelet.server"},
	Roots: []Root{
		{Code: RuntimeHung, When: kubeletNeverCameUp},
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: anyMountHangs},
		{Code: MemoryPressure, When: thrashes},
		{Code: CPUStarved, When: kubeletStarved},
		{Code: TaskStuck, When: kubeletTaskStuck},
		{Code: CgroupFrozen, When: kubeletFrozen},
		{Code: MountsExploded},
		{Code: CgroupsLeaked, When: livingCgroups},
	},
	OnPurpose: kubeletIsStopped,
	Recognise: recogniseKubeletStalled,
	FromLog:   loggedKubeletStalled,
}

func ServerWaitsLine(f *facts.Facts) string {
	a := f.Seen.Health.Value.SyncLoop
	return fmt.Sprintf("%s did not answer in %s, and the ping did: the kubelet may wait for the API server, which "+
		"it asks whether kdiag may come in", facts.Clean(a.URL), units.Duration(a.Took))
}

// plegStands reports whether the last good relist is older than the threshold by the kubelet's metric. Where its log
// says that relists finish, only too late, it does not stand.
func plegStands(f *facts.Facts) (time.Duration, bool) {
	age, known := f.Agent.PLEGAge, f.Agent.PLEGKnown
	if now := f.Log.PLEGNow; now != nil && len(now.Stalls) > 1 {
		return age, false
	}
	return age, known && age > f.Calls.Threshold
}

func recogniseKubeletStalled(f *facts.Facts) *Finding {
	var e checks.Evidence
	var summary string
	step := checks.Strong
	age, plegStands := plegStands(f)
	ping := f.Seen.Health.Value.Ping
	switch p, late := f.Agent.Stopped, f.Agent.NeverCameUp; {
	case p != nil:
		step = checks.Certain
		summary = fmt.Sprintf("%s is %s: the kubelet does nothing until it is continued", facts.ProcessLabel(*p),
			p.StateWord())
		Addf(&e.For, "%s is %s: a signal or a tracer stopped it", facts.ProcessLabel(*p), facts.StateOf(*p))
	case late != nil:
		summary = fmt.Sprintf("%s has been running for %s and has never come up: nothing listens on its health port",
			facts.ProcessLabel(*late), units.Duration(facts.AgeOf(f, *late)))
		Addf(&e.For, "%s: %s", facts.Clean(ping.URL), facts.Clean(ping.Err))
		Addf(&e.Missing, "whether its health port is another one, or was closed: the settings that kdiag read say %s",
			cmp.Or(facts.Clean(f.Seen.Settings.Value.HealthzAddress), "nothing of it"))
	case ping != nil && ping.Hung && f.Agent.Runs:
		summary = "the kubelet accepts connections on its health port and does not answer the ping"
		Addf(&e.For, "%s did not answer in %s; it needs nothing but a process that runs", facts.Clean(ping.URL),
			units.Duration(ping.Took))
	case !f.Pattern.Well:
		return nil // then it waits for the runtime, as it must
	case f.Agent.LoopStands:
		step = checks.Certain
		summary = "the kubelet's sync loop stands still, and the runtime answers everything"
	case plegStands:
		if age < f.Calls.Threshold+2*f.Calls.KubeletTimeout {
			step = checks.Fair // two calls that hung and have come back meanwhile look the same
		}
		summary = fmt.Sprintf("the kubelet's last good relist began %s ago, and the runtime answers everything",
			units.Duration(age))
	default:
		return nil
	}
	standstillEvidence(f, &e)
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.KubeletSubject(f)
	c.Advise = func(root string) []checks.NextStep { return stepsWhenKubeletStalled(f, root) }
	return c
}

// standstillEvidence adds what else speaks of a kubelet that stands still.
func standstillEvidence(f *facts.Facts, e *checks.Evidence) {
	h := f.Seen.Health
	if a := h.Value.SyncLoop; f.Agent.LoopStands {
		Addf(&e.For, "%s says %d: the loop has not been entered for five minutes or more", facts.Clean(a.URL), a.Status)
	} else if a != nil && a.Status == 200 {
		Addf(&e.Against, "%s says that the loop is at work", facts.Clean(a.URL))
	} else if f.Agent.ServerWaits {
		Addf(&e.Missing, "whether the loop runs: %s", ServerWaitsLine(f))
	} else if a != nil && a.Hung {
		Addf(&e.For, "%s did not answer in %s", facts.Clean(a.URL), units.Duration(a.Took))
	} else if h.Value.Missing != "" {
		Addf(&e.Missing, "port 10250 tells nothing: %s", facts.Clean(h.Value.Missing))
	}
	if p := h.Value.Ping; p != nil && p.Status == 200 {
		Addf(&e.For, "%s answers: it is a ping, and sees nothing of this", facts.Clean(p.URL))
	}
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if t.Role == host.RoleKubelet {
			addTaskLine(f, e, t)
		}
	}
	if f.Calls.Connected && f.Calls.BothLists {
		Addf(&e.For, "kdiag's own lists were answered in %s",
			units.Duration(f.RPC[facts.RPCSandboxes].Last().Elapsed+f.RPC[facts.RPCContainers].Last().Elapsed))
	}
	logOfPLEG(f, e)
	if all := f.Log.Incidents; f.Log.SameRuntime && len(all) > 0 {
		if last := all[len(all)-1]; !last.Recovered && !facts.Fresh(f, last.End, facts.SkipFresh) {
			Addf(&e.For, "its log falls silent at %s, in the middle of an episode in which it spoke every five seconds", facts.ClockText(f, *last.End))
		}
	}
	missingHost(f, e)
	missingJournal(f, e)
}

func stepsWhenKubeletStalled(f *facts.Facts, root string) []checks.NextStep {
	var s Steps
	if p := f.Agent.Stopped; p != nil && p.PID > 1 {
		s.Add(checks.TouchesNothing, fmt.Sprintf("grep -E 'State|TracerPid' /proc/%d/status", p.PID),
			"Is it still stopped, and does a debugger hold it?")
		s.Add(checks.TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), "The kubelet goes on; nothing is lost.")
		return s.Done()
	}
	s.Add(checks.TouchesNothing, `kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
		"Keep the evidence: what do relist and sync loop wait for? A restart destroys it.")
	s.Add(checks.TouchesNothing, "ps -eLo stat,pid,tid,wchan:32,etime,comm | grep '^D'",
		"Does a mount or a disk hold one of its threads? Then a restarted kubelet may not come up.")
	s.Add(checks.TouchesNothing, facts.KubeletLog(f)+" | tail -n 50", "What did it do last?")
	if root != "" || f.Seen.SilentMount() {
		return s.Done()
	}
	s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit,
		"Containers go on running. Not while a mount hangs: a kubelet that starts may wait for it without end.")
	return s.Done()
}

// loggedKubeletStalled: the runtime is not on record as failing, and the kubelet's own loops stand.
func loggedKubeletStalled(in *Incident) *LogFinding {
	f := in.finding(kubeletTier, 0,
		"The kubelet's own loops stand still, while no call to the runtime is on record as failing.")
	if found := in.found(signature.PLEGChannelFull, signature.EventedPLEGFull); len(found) > 0 {
		f.raise(0.55, found...)
	}
	if found := in.found(signature.WatchdogWithheld, signature.WatchdogTimeout); len(found) > 0 {
		f.raise(0.15, found...)
	}
	switch s := in.Standstill; {
	case s != nil:
		f.Summary = fmt.Sprintf("The kubelet itself stood still for %s or more: by so much its first record of the "+
			"trouble is late.", units.Duration(s.Late))
		f.raise(0.75, fmt.Sprintf("the first record states an age of %s: a loop that runs reports it every 5 s from "+
			"%s on", units.Duration(s.Age), units.Duration(s.Due)))
		f.lacks("what else on the node wrote meanwhile: a machine that stands still as a whole looks the same")
	case in.failing == 0 && !in.down && in.age() > 10*time.Minute:
		f.raise(0.3, fmt.Sprintf("the age grows to %s and no call is on record as failing, though a hung one "+
			"would be every 2 min", units.Duration(in.age())))
		f.lacks("whether the log holds all of the kubelet's lines")
	case in.failing > 0 && f.Confidence > 0:
		f.lower(0.3, "calls to the runtime fail: "+units.Count(in.failing, "record"))
	}
	if f.Confidence < 0.15 {
		return nil
	}
	return f
}
