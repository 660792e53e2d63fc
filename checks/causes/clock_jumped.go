package causes

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// ClockJumped is the code of this cause.
const ClockJumped = "ClockJumped"

var clockJumped = Definition{
	Code:      ClockJumped,
	Claims:    []string{"host.clock"},
	Recognise: recogniseClockJumped,
	FromLog:   loggedClockJumped,
}

// forwards says which way a clock went.
func forwards(by time.Duration) string {
	if by < 0 {
		return units.Duration(-by) + " back"
	}
	return units.Duration(by) + " ahead"
}

// recogniseClockJumped needs a jump that was seen, or one in the log beside trouble that it may have made: a clock is
// set at each boot, and laptops sleep.
func recogniseClockJumped(f *facts.Facts) *Finding {
	by, now := f.Usage.ClockJump, f.Usage.ClockJumped
	last := facts.LastOf(f, signature.ClockChanged, signature.MachineSuspended)
	if f.Target.Simulated || !now && (last == nil || len(f.Log.Incidents) == 0 ||
		facts.Logged(f, signature.MachineBooted) != nil) {
		return nil
	}
	c := f.Seen.Clock.Value
	var e checks.Evidence
	step, summary := checks.Fair, ""
	if last != nil {
		summary = "the clock was set or the machine slept, last at " + facts.ClockText(f, *last) +
			", around the time at which PLEG was unhealthy"
		logEvidence(f, &e, signature.ClockChanged)
		logEvidence(f, &e, signature.MachineSuspended)
	}
	if now {
		step = checks.Certain
		summary = fmt.Sprintf("the wall clock went %s within %s while kdiag looked", forwards(by),
			units.Duration(c.Over))
		Addf(&e.For, "%s", summary)
	}
	if f.Seen.Clock.OK && !c.Synchronised {
		Addf(&e.For, "the kernel says that no NTP client keeps the clock (with chrony without rtcsync it says so too)")
	}
	if f.Seen.Clock.OK && c.Suspended >= time.Second && facts.Logged(f, signature.MachineSuspended) != nil {
		Addf(&e.For, "the machine slept for %s since it booted", units.Duration(c.Suspended))
	}
	if s := f.Seen.Server.Value; s.SkewKnown && s.Skew.Abs() >= f.Limits.Node.ClockSkew {
		Addf(&e.For, "the API server's clock is %s of this one", forwards(s.Skew))
	}
	missing(f.Seen.Clock, &e, "the clock itself")
	out := newFinding(checks.Warning, step, summary, e)
	out.Subject = &checks.Subject{Kind: "Node", Name: "clock"}
	out.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, "date -u; timedatectl", "Is the time right now, and does an NTP client keep it?")
		s.Add(checks.TouchesNothing,
			"journalctl --no-pager --since -1h | grep -E 'Time has been changed|clock was stepped|time jump|PM: "+
				"suspend|time reset'", "Who moved it, when, and by how much?")
		s.Add(checks.TouchesNothing, "chronyc tracking || timedatectl timesync-status",
			"How far is it off by the NTP client's own word?")
		return s.Done()
	}
	return out
}

// loggedClockJumped is for a machine that was suspended, which loses its connections. A step of the wall clock alone
// does not make PLEG unhealthy: the kubelet measures the age on the monotonic clock.
func loggedClockJumped(in *Incident) *LogFinding {
	for _, b := range in.each(signature.MachineSuspended) {
		if in.Start != nil && !b.First().Before(*in.begin()) && !b.First().After(*in.Start) {
			return in.finding(hostTier, 0.6, "The machine was suspended while PLEG became unhealthy.", b.Code)
		}
	}
	return fromRecords(SymptomTier, 0.2, "The wall clock was set; that alone does not make PLEG unhealthy.",
		signature.ClockChanged)(in)
}
