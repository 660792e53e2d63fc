package causes

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletCrashLooping is the code of this cause.
const KubeletCrashLooping = "KubeletCrashLooping"

// restartsByUnit is systemd's own count where the log has too few: it counts since somebody started the unit, which may
// be weeks ago, so it shows a loop only while the unit is about to be started again, or was a moment ago.
func restartsByUnit(f *facts.Facts) facts.Restarts {
	u := f.KubeletState.Unit
	if u == nil || u.Restarts < facts.LoopRestarts {
		return facts.Restarts{}
	}
	young := u.Active == "active" && !u.Since.IsZero() && !facts.LoopOver(f, f.Now.Sub(u.Since))
	if !young && !slices.Contains([]string{"auto-restart", "auto-restart-queued"}, u.Sub) {
		return facts.Restarts{}
	}
	return facts.Restarts{Count: u.Restarts, Last: ifElse(u.Since.IsZero(), nil, &u.Since)}
}

func recogniseKubeletCrashLooping(f *facts.Facts) *Finding {
	r, within := f.Log.Restarts, "in the last "+units.Duration(f.Log.Window)
	if r.Count < facts.LoopRestarts {
		r, within = restartsByUnit(f), "since its unit was started"
	}
	over := func(p host.Process) bool { return facts.LoopOver(f, facts.AgeOf(f, p)) }
	if r.Count < facts.LoopRestarts || f.Target.Simulated ||
		slices.ContainsFunc(facts.ProcessesOf(f, host.RoleKubelet), over) {
		return nil
	}
	var e checks.Evidence
	addIf(r.Line != "", &e.For, "%s", r.Line)
	if u := f.KubeletState.Unit; u != nil {
		Addf(&e.For, "systemd: %s", UnitLine(f, u))
	}
	severity, why := checks.Critical, exitReason(f, &e)
	step := ifElse(why == "", checks.Strong, checks.Certain)
	when := ""
	if r.Last != nil {
		when = ", last at " + facts.ClockText(f, *r.Last)
	}
	if !facts.Fresh(f, r.Last, facts.LoopFresh) {
		severity = checks.Warning
		Addf(&e.Against, "it has not been restarted for %s and more", facts.LoopFresh)
	}
	if severity == checks.Critical && r.Last != nil && facts.ReadySince(f, *r.Last) {
		severity = checks.Warning
		Addf(&e.Against, "the node became ready after the last restart")
	}
	addGaps(f, &e, gapHost)
	summary := textf("the kubelet was restarted %s %s%s: %s", units.Times(r.Count), within, when,
		cmp.Or(why, "the log has no reason"))
	return newFinding(severity, step, summary, e, *facts.KubeletSubject(f)).advise(func(s *Steps, _ string) {
		unit := f.Target.KubeletUnit
		s.Look("systemctl status --no-pager "+unit, "Check whether it is up, since when, and how it ended.")
		s.Look(KubeletLog(f)+" | grep -E ' [EF][0-9]{4} |atchdog|process exited' | tail -n 50",
			"Read the first error after each start: that is the cause.")
		s.Look("kdiag journal --since -1h", "Show starts and exits as a timeline.")
		if f.Log.Watchdog {
			s.Look(facts.KdiagCommand(f, "pleg --deep"), "Find the runtime call that its loop waits for.")
			return
		}
		s.Add(checks.TouchesKubelet, "systemctl reset-failed "+unit+"; systemctl start "+unit, "After the repair.")
	})
}

// exitReason adds the known reasons of the kubelet's exits and returns the newest, empty for none.
func exitReason(f *facts.Facts, e *checks.Evidence) string {
	best, last := "", time.Time{}
	add := func(text string, codes ...string) {
		e.For = append(e.For, text)
		if at := facts.LastOf(f, codes...); best == "" || at != nil && at.After(last) {
			best = text
			last = *cmp.Or(at, &last)
		}
	}
	if oomHits(f, facts.RoleKubelet) {
		add("the OOM killer killed it", signature.OOMKill, signature.UnitOOMKilled)
	}
	if f.Log.Watchdog {
		why := killedLines(f, host.RoleKubelet)
		add(strings.Join(append([]string{"systemd's watchdog killed it, because its sync loop stood still"},
			why[:min(len(why), 1)]...), "; "), signature.WatchdogTimeout)
		e.For = append(e.For, why...)
	}
	if c := facts.Logged(f, signature.KubeletFatal); c != nil {
		text := "it exits with: " + Quote(fatalText(c.Newest()))
		for _, h := range f.Seen.Health.Value.Holders {
			if _, port, _ := net.SplitHostPort(h.Address); strings.Contains(c.Newest(), ":"+port+": bind: ") {
				text += "; " + facts.Clean(h.String())
			}
		}
		add(text, signature.KubeletFatal)
	}
	if c := facts.Logged(f, signature.GoPanicked); c != nil && panicked(f, facts.RoleKubelet) {
		add("it ends with: "+Quote(c.Newest()), signature.GoPanicked)
	}
	if u := f.KubeletState.Unit; best == "" && u != nil && u.Result != "" && u.Result != "success" {
		add("systemd's result is " + facts.Clean(u.Result))
	}
	return best
}

// fatalText is the error of a fatal record, else what follows its header.
func fatalText(record string) string {
	words := facts.ErrorWords(record)
	if _, rest, ok := strings.Cut(words, "] "); ok && words == record {
		return rest
	}
	return words
}

func loggedKubeletCrashLooping(in *Incident) *Finding {
	starts := len(in.each(signature.KubeletStarted)) // one start writes several records, in one burst
	if in.count(signature.KubeletFatal) == 0 && starts < 3 {
		return nil
	}
	f := in.finding(checks.Fair, "The kubelet starts again and again.", signature.KubeletFatal, signature.UnitRestarted)
	if starts < 3 {
		f.Step = checks.Weak
		return f.lacks("more starts")
	}
	return f.supports(textf("it was started %d times around the episode", starts))
}
