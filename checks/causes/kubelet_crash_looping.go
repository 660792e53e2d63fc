package causes

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletCrashLooping is the code of this cause.
const KubeletCrashLooping = "KubeletCrashLooping"

var kubeletCrashLooping = Definition{
	Code:   KubeletCrashLooping,
	Claims: []string{"journal.kubelet"},
	Roots: []Root{
		{Code: RuntimeDown, When: kubeletFindsNoRuntime},
		{Code: RuntimeHung, When: endedByWatchdog},
		{Code: ListHang, When: endedByWatchdog},
		{Code: KubeletStalled, When: endedByWatchdog},
		{Code: PLEGUnhealthy, When: endedByWatchdog},
		{Code: CertificateExpired, When: endsByCredentials},
		{Code: DiskFull, When: kubeletDiskFull},
		{Code: InodesExhausted, When: kubeletInodesGone},
		{Code: OOMKilled, When: oomHitKubelet},
		{Code: PIDsExhausted, When: kubeletCannotFork},
		{Code: FilesExhausted, When: kubeletOutOfFiles},
		{Code: InotifyExhausted, When: inotifyGone},
	},
	Recognise: recogniseKubeletCrashLooping,
	FromLog:   loggedKubeletCrashLooping,
}

// restartsByUnit is what systemd's own count says where the log does not: it counts since somebody started the unit,
// which may be weeks ago, so it speaks for a loop only while the unit is about to be started again, or was a moment
// ago.
func restartsByUnit(f *facts.Facts) facts.Restarts {
	u := f.Agent.Unit
	if u == nil || u.Restarts < facts.LoopRestarts {
		return facts.Restarts{}
	}
	again := u.Sub == "auto-restart" || u.Sub == "auto-restart-queued"
	if !again && (u.Active != "active" || u.Since.IsZero() || f.Now.Sub(u.Since) >= facts.LoopFresh) {
		return facts.Restarts{}
	}
	r := facts.Restarts{Count: u.Restarts, Line: "systemd: " + UnitLine(f, u)}
	if !u.Since.IsZero() {
		r.Last = &u.Since
	}
	return r
}

func recogniseKubeletCrashLooping(f *facts.Facts) *Finding {
	r, within := f.Log.Restarts, "in the last "+units.Duration(f.Log.Window)
	if r.Count < facts.LoopRestarts {
		r, within = restartsByUnit(f), "since somebody started its unit"
	}
	if r.Count < facts.LoopRestarts || f.Target.Simulated {
		return nil
	}
	var e checks.Evidence
	e.For = append(e.For, r.Line)
	why := whatEndsKubelet(f, &e)
	if u := f.Agent.Unit; u != nil && !strings.HasPrefix(r.Line, "systemd: ") {
		Addf(&e.For, "systemd: %s", UnitLine(f, u))
	}
	severity, step := checks.Critical, checks.Certain
	if why == "" {
		step = checks.Strong
		why = "why is not in the log"
	}
	when := ""
	if r.Last != nil {
		when = ", last at " + facts.ClockText(f, *r.Last)
	}
	if !facts.Fresh(f, r.Last, facts.LoopFresh) {
		severity = checks.Warning
		Addf(&e.Against, "it has not been restarted for %s and more", units.Duration(facts.LoopFresh))
	}
	for _, p := range facts.ProcessesOf(f, host.RoleKubelet) {
		if a := facts.AgeOf(f, p); a >= facts.LoopFresh {
			Addf(&e.Against, "%s has been running for %s", facts.ProcessLabel(p), units.Duration(a))
			severity = checks.Warning
		} else if a > 0 {
			Addf(&e.For, "%s has been running for only %s", facts.ProcessLabel(p), units.Duration(a))
		}
	}
	if ready := facts.Logged(f, signature.NodeReady); severity == checks.Critical && ready != nil &&
		ready.First != nil && r.Last != nil && ready.First.After(*r.Last) {
		severity = checks.Warning
		Addf(&e.Against, "the node became ready at %s, after the last restart and never before: a kubelet that "+
			"has not joined yet restarts until it has its settings", facts.ClockText(f, *ready.First))
	}
	missingHost(f, &e)
	c := newFinding(severity, step, fmt.Sprintf("the kubelet was restarted %s %s%s: %s",
		units.Times(r.Count), within, when, why), e)
	c.Subject = facts.KubeletSubject(f)
	c.Advise = func(string) []checks.NextStep { return stepsWhenCrashLooping(f) }
	return c
}

// whatEndsKubelet adds what the log says of the kubelet's ends and returns the best of it, empty if it says nothing.
func whatEndsKubelet(f *facts.Facts, e *checks.Evidence) string {
	why := ""
	note := func(short, format string, args ...any) {
		Addf(&e.For, format, args...)
		why = cmp.Or(why, short)
	}
	if oomHits(f, facts.RoleKubelet) {
		note("the kernel killed it for want of memory", "the kernel's OOM killer names the kubelet")
	}
	if f.Log.Watchdog {
		note("systemd's watchdog killed it, because its loop stood still",
			"systemd's watchdog timed out: the kubelet feeds it only while its sync loop runs (WatchdogSec in its "+
				"unit, 1.32 and later)")
	}
	if c := facts.Logged(f, signature.KubeletFatal); c != nil {
		text := facts.Quote(f, lastWords(c.Example))
		note("it ends itself with: "+text, "the kubelet's own last words, first of %s: %s",
			units.Count(int(c.Count), "record"), text)
	}
	if u := f.Agent.Unit; why == "" && u != nil && u.Result != "" && u.Result != "success" {
		why = "systemd says " + facts.Clean(u.Result)
	}
	if len(facts.UnitsOf(f, signature.UnitFailed, facts.RoleKubelet)) > 0 {
		if c := facts.Logged(f, signature.UnitFailed); c != nil && unitInRecord(c.Example) == facts.RoleKubelet {
			note("systemd says: "+facts.Quote(f, c.Example), "systemd: %s", facts.Quote(f, c.Example))
		}
	}
	return why
}

// unitInRecord tells whose unit a record of systemd begins with: kubelet.service: Main process exited ...
func unitInRecord(record string) facts.Role {
	name, _, _ := strings.Cut(record, ": ")
	return facts.UnitRole(name)
}

// lastWords is the part of a fatal record that says why: after its header, without the kubelet's own frame around it.
func lastWords(record string) string {
	s := record
	if _, rest, ok := strings.Cut(s, "] "); ok {
		s = rest
	}
	if _, rest, ok := strings.Cut(s, "err=\""); ok && rest != "" {
		s = strings.TrimSuffix(rest, "\"")
	}
	return s
}

func stepsWhenCrashLooping(f *facts.Facts) []checks.NextStep {
	var s Steps
	unit := f.Target.KubeletUnit
	s.Add(checks.TouchesNothing, "systemctl status --no-pager "+unit,
		"Is it up at this moment, since when, and how did it end last?")
	s.Add(checks.TouchesNothing,
		facts.KubeletLog(f)+" | grep -E ' [EF][0-9]{4} |atchdog|process exited' | tail -n 50", "The last words before each end: the first error of each life is the cause.")
	if oomHits(f, facts.RoleKubelet) {
		s.Add(checks.TouchesNothing, "journalctl --no-pager -k --since -1h | grep -iE 'oom|out of memory'",
			"Who used the memory when the kernel chose the kubelet?")
	}
	if f.Log.Watchdog {
		s.Add(checks.TouchesNothing, "systemctl show "+unit+" -p WatchdogUSec -p NRestarts",
			"How long may its loop stand still before systemd kills it?")
		s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "pleg --deep"),
			"The loop stands still for a call to the runtime: which one hangs?")
	}
	s.Add(checks.TouchesNothing, "kdiag journal --since -1h",
		"Starts, ends and what happened between them, as a timeline.")
	if !f.Log.Watchdog {
		s.Add(checks.TouchesKubelet, "systemctl reset-failed "+unit+"; systemctl start "+unit,
			"Only after the repair, when systemd has given up starting it: the first clears its count, the second "+
				"starts it.")
	}
	return s.Done()
}

func loggedKubeletCrashLooping(in *Incident) *LogFinding {
	starts := len(in.each(signature.KubeletStarted)) // one start writes several records, in one burst
	if in.count(signature.KubeletFatal) == 0 && starts < 3 {
		return nil
	}
	f := in.finding(kubeletTier, 0.3, "The kubelet starts again and again.", signature.KubeletFatal,
		signature.UnitRestarted)
	if starts >= 3 {
		f.raise(0.2, fmt.Sprintf("it was started %d times around the episode", starts))
	}
	return f
}
