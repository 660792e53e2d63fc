package checks

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// The number of restarts in the window from which a kubelet is in a loop, and how old the last may be for the loop to go
// on: the watchdog's kills, the slowest loop there is, come every five to six minutes.
const (
	loopRestarts = 3
	loopFresh    = 6 * time.Minute
	endPause     = 2 * time.Second // parts the last words of one kubelet from those of the next
)

func kubeletCrashLooping() Definition {
	return Definition{
		Code:  codeKubeletCrashLooping,
		Title: "the kubelet is restarted again and again",
		Means: "The kubelet's unit ends and systemd starts it again, three times or more in a quarter of an hour. It exits by itself when something that it needs to start is missing: " +
			"its configuration, a runtime with CRI v1, cgroups or swap as it wants them, a certificate. Or it is killed: by the OOM killer, or by systemd's watchdog. That only exists where " +
			"the unit sets WatchdogSec and the kubelet is of 1.32 or later; it is fed while the sync loop runs, so a loop that stands still for five minutes, because a call to the runtime hangs, ends so.\n\n" +
			"Containers go on running meanwhile, and nobody watches them. Each start inspects all pods anew, and PLEG begins with \"pleg has yet to be successful\". A node whose " +
			"kubelet is up too shortly to renew its lease becomes Unknown (NodeStatusUnknown), not NotReady.",
		Confirm: []string{
			"systemctl status kubelet: since when, with which exit code; systemctl show kubelet -p NRestarts.",
			"journalctl -u kubelet --since -15min | grep -E ' [EF][0-9]{4} |atchdog|process exited': the last words of each life.",
			"journalctl -k --since -1h | grep -iE 'out of memory|oom-kill': was it killed for memory?",
		},
		Fix: []string{
			"Read the last error before the exit and repair what it names; a restart of the unit repeats it.",
			"Killed by the watchdog: the runtime or a mount is the cause; capture goroutines early, since the kill destroys them.",
			"Killed for memory: reserve memory for the system (systemReserved, kubeReserved), find who used it up.",
			"After the repair, when systemd has given up (start-limit-hit): systemctl reset-failed kubelet, then systemctl start kubelet. The first only clears the count.",
		},
		Mistaken: "A kubelet that a person or a tool restarts: systemd logs Stopped and Started then, without \"Scheduled restart job\". RuntimeHung: there the kubelet stays up, unless a watchdog is set for its unit.",
		Sources: []string{
			"kubelet: cmd/kubelet/app/server.go (start-up), pkg/kubelet/watchdog/watchdog_linux.go, pkg/kubelet/kubelet.go (SyncLoopHealthCheck)",
			"systemd: src/core/service.c (Scheduled restart job, restart counter)",
		},
		RootOf:    []string{codeKubeletDown, codeAPIServerUnreachable},
		recognise: recogniseKubeletCrashLooping,
	}
}

// restarts is how often the kubelet came up anew in the window without anybody asking for it.
type restarts struct {
	Count int
	Last  *time.Time
	Line  string // how it is known
}

// kubeletRestarts counts restarts: systemd's own count of those that it scheduled, else deaths that a start follows. Stops
// and starts alone are somebody's wish.
func (f *Facts) kubeletRestarts() restarts {
	var r restarts
	for _, u := range f.unitsOf(signature.UnitRestarted, roleKubelet) {
		if n := int(u.Count) / f.linesOfRestart(); n > r.Count {
			r = restarts{n, u.Last, fmt.Sprintf("systemd restarted %s %s in the last %s", clean(u.ID), units.Times(n), units.Duration(f.journalWindow()))}
		}
	}
	started := f.lastOf(signature.KubeletStarted, signature.SyncLoopStarted)
	if started == nil {
		return r
	}
	if n := f.occasions(endPause, signature.KubeletFatal); n > r.Count {
		r = restarts{n, f.lastOf(signature.KubeletFatal), fmt.Sprintf("the kubelet ended itself %s in the last %s, and was started again", units.Times(n), units.Duration(f.journalWindow()))}
	}
	kills := 0
	var last *time.Time
	for _, u := range f.unitsOf(signature.WatchdogTimeout, roleKubelet) {
		kills += int(u.Count)
		last = u.Last
	}
	if kills > r.Count {
		r = restarts{kills, last, fmt.Sprintf("systemd's watchdog ended the kubelet %s in the last %s", units.Times(kills), units.Duration(f.journalWindow()))}
	}
	return r
}

// linesOfRestart is how many lines systemd writes of one restart: versions 236 to 245 announce it before they count it.
func (f *Facts) linesOfRestart() int {
	if c := f.logged(signature.UnitRestarted); c != nil && containsAny(c.Example, []string{"restartsec=", "hold-off time over"}) {
		return 2
	}
	return 1
}

// restartsByUnit is what systemd's own count says where the log does not: it counts since somebody started the unit, which may be
// weeks ago, so it speaks for a loop only while the unit is about to be started again, or was a moment ago.
func (f *Facts) restartsByUnit() restarts {
	u := f.kubeletUnitSeen()
	if u == nil || u.Restarts < loopRestarts {
		return restarts{}
	}
	again := u.Sub == "auto-restart" || u.Sub == "auto-restart-queued"
	if !again && (u.Active != "active" || u.Since.IsZero() || f.Now.Sub(u.Since) >= loopFresh) {
		return restarts{}
	}
	r := restarts{Count: u.Restarts, Line: "systemd: " + f.unitLine(u)}
	if !u.Since.IsZero() {
		r.Last = &u.Since
	}
	return r
}

func recogniseKubeletCrashLooping(f *Facts) *Cause {
	r, within := f.kubeletRestarts(), "in the last "+units.Duration(f.journalWindow())
	if r.Count < loopRestarts {
		r, within = f.restartsByUnit(), "since somebody started its unit"
	}
	if r.Count < loopRestarts || f.simulated() {
		return nil
	}
	var e Evidence
	e.For = append(e.For, r.Line)
	why := f.whatEndsKubelet(&e)
	if u := f.kubeletUnitSeen(); u != nil && !strings.HasPrefix(r.Line, "systemd: ") {
		addf(&e.For, "systemd: %s", f.unitLine(u))
	}
	severity, step := Critical, Certain
	if why == "" {
		step = Strong
		why = "why is not in the log"
	}
	when := ""
	if r.Last != nil {
		when = ", last at " + f.clock(*r.Last)
	}
	if !f.fresh(r.Last, loopFresh) {
		severity = Warning
		addf(&e.Against, "it has not been restarted for %s and more", units.Duration(loopFresh))
	}
	for _, p := range f.processes(host.RoleKubelet) {
		if a := f.age(p); a >= loopFresh {
			addf(&e.Against, "%s has been running for %s", processLabel(p), units.Duration(a))
			severity = Warning
		} else if a > 0 {
			addf(&e.For, "%s has been running for only %s", processLabel(p), units.Duration(a))
		}
	}
	if ready := f.logged(signature.NodeReady); severity == Critical && ready != nil && ready.First != nil && r.Last != nil && ready.First.After(*r.Last) {
		severity = Warning
		addf(&e.Against, "the node became ready at %s, after the last restart and never before: a kubelet that has not joined yet restarts until it has its settings", f.clock(*ready.First))
	}
	f.missingHost(&e)
	c := newCause(codeKubeletCrashLooping, severity, step, fmt.Sprintf("the kubelet was restarted %s %s%s: %s",
		units.Times(r.Count), within, when, why), e)
	c.Subject = f.kubeletSubject()
	c.NextSteps = f.stepsWhenCrashLooping()
	return c
}

// watchdogEnds reports whether systemd's watchdog ended the kubelet, which means that its loop stood still.
func (f *Facts) watchdogEnds() bool {
	return len(f.unitsOf(signature.WatchdogTimeout, roleKubelet)) > 0
}

// whatEndsKubelet adds what the log says of the kubelet's ends and returns the best of it, empty if it says nothing.
func (f *Facts) whatEndsKubelet(e *Evidence) string {
	why := ""
	note := func(short, format string, args ...any) {
		addf(&e.For, format, args...)
		why = or(why, short)
	}
	if f.oomHits(roleKubelet) {
		note("the kernel killed it for want of memory", "the kernel's OOM killer names the kubelet")
	}
	if f.watchdogEnds() {
		note("systemd's watchdog killed it, because its loop stood still",
			"systemd's watchdog timed out: the kubelet feeds it only while its sync loop runs (WatchdogSec in its unit, 1.32 and later)")
	}
	if c := f.logged(signature.KubeletFatal); c != nil {
		text := f.quote(lastWords(c.Example))
		note("it ends itself with: "+text, "the kubelet's own last words, first of %s: %s", units.Count(int(c.Count), "record"), text)
	}
	if u := f.kubeletUnitSeen(); why == "" && u != nil && u.Result != "" && u.Result != "success" {
		why = "systemd says " + clean(u.Result)
	}
	if len(f.unitsOf(signature.UnitFailed, roleKubelet)) > 0 {
		if c := f.logged(signature.UnitFailed); c != nil && unitInRecord(c.Example) == roleKubelet {
			note("systemd says: "+f.quote(c.Example), "systemd: %s", f.quote(c.Example))
		}
	}
	return why
}

// unitInRecord tells whose unit a record of systemd begins with: kubelet.service: Main process exited ...
func unitInRecord(record string) role {
	name, _, _ := strings.Cut(record, ": ")
	return unitRole(name)
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

func (f *Facts) stepsWhenCrashLooping() []NextStep {
	var s steps
	unit := f.kubeletUnit()
	s.add(TouchesNothing, "systemctl status --no-pager "+unit, "Is it up at this moment, since when, and how did it end last?")
	s.add(TouchesNothing, f.kubeletLog()+" | grep -E ' [EF][0-9]{4} |atchdog|process exited' | tail -n 50", "The last words before each end: the first error of each life is the cause.")
	if f.oomHits(roleKubelet) {
		s.add(TouchesNothing, "journalctl --no-pager -k --since -1h | grep -iE 'oom|out of memory'", "Who used the memory when the kernel chose the kubelet?")
	}
	if f.watchdogEnds() {
		s.add(TouchesNothing, "systemctl show "+unit+" -p WatchdogUSec -p NRestarts", "How long may its loop stand still before systemd kills it?")
		s.add(TouchesNothing, f.kdiagCommand("pleg --deep"), "The loop stands still for a call to the runtime: which one hangs?")
	}
	s.add(TouchesNothing, "kdiag journal --since -1h", "Starts, ends and what happened between them, as a timeline.")
	if !f.watchdogEnds() {
		s.add(TouchesKubelet, "systemctl reset-failed "+unit+"; systemctl start "+unit, "Only after the repair, when systemd has given up starting it: the first clears its count, the second starts it.")
	}
	return s.done()
}
