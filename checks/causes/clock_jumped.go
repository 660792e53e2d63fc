package causes

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// ClockJumped is the code of this cause.
const ClockJumped = "ClockJumped"

// recogniseClockJumped needs a jump that was seen, or one in the log beside trouble that it may have made: a clock is
// set at each boot, and laptops sleep.
func recogniseClockJumped(f *facts.Facts) *Finding {
	c, last := f.Seen.Clock.Value, facts.LastOf(f, signature.ClockChanged, signature.MachineSuspended)
	inLog := last != nil && len(f.Log.Incidents) > 0 && facts.Logged(f, signature.MachineBooted) == nil
	jumped := c.Jumped.Abs() >= f.Limits.Node.ClockJump
	if f.Target.Simulated || !jumped && !inLog {
		return nil
	}
	forwards := func(by time.Duration) string {
		return units.Duration(by.Abs()) + ifElse(by < 0, " back", " ahead")
	}
	var e checks.Evidence
	step, summary := checks.Fair, ""
	if last != nil {
		summary = "the clock was set or the machine was suspended around PLEG's trouble, last at " +
			facts.ClockText(f, *last)
		logEvidence(f, &e, signature.ClockChanged, signature.MachineSuspended)
	}
	if jumped {
		step = checks.Certain
		summary = textf("the wall clock jumped %s within %s during the check", forwards(c.Jumped), c.Over)
		Addf(&e.For, "%s", summary)
	}
	addIf(f.Seen.Clock.OK && !c.Synchronised, &e.For,
		"clock not NTP-synchronised (false alarm possible: chrony without rtcsync)")
	if s := f.Seen.Server.Value; s.SkewKnown && s.Skew.Abs() >= f.Limits.Node.ClockSkew {
		Addf(&e.For, "the API server's clock is %s of this one", forwards(s.Skew))
	}
	missing(f.Seen.Clock, &e, "the clock itself")
	return newFinding(checks.Warning, step, summary, e, ofNode("clock")).advise(func(s *Steps, _ string) {
		s.Look("date -u; timedatectl", "Check the time, and whether NTP synchronises it.")
		s.Look("journalctl --no-pager --since -1h | grep -E 'Time has been changed|clock was stepped|time jump|PM: "+
			"suspend|time reset'", "Find out what moved it, when, and by how much.")
		s.Look("chronyc tracking || timedatectl timesync-status", "Read how far it is off.")
	})
}

// loggedClockJumped is for a machine that was suspended, which loses its connections. A step of the wall clock alone
// does not make PLEG unhealthy: the kubelet measures the age on the monotonic clock.
func loggedClockJumped(in *Incident) *Finding {
	for _, b := range in.each(signature.MachineSuspended) {
		if in.Start != nil && !b.First().Before(*in.begin()) && !b.First().After(*in.Start) {
			return in.finding(checks.Certain, "The machine was suspended while PLEG became unhealthy.", b.Code)
		}
	}
	return in.harmless("The wall clock was set; that alone does not make PLEG unhealthy.", signature.ClockChanged)
}
