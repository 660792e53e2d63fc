package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func clockJumped() Definition {
	return Definition{
		Code:  codeClockJumped,
		Title: "the wall clock was moved, or the machine slept",
		Means: "The wall clock went another way than time: an NTP client stepped it, somebody set it, or the machine was suspended, migrated or restored from a snapshot. The kubelet measures PLEG and its deadlines on the monotonic " +
			"clock, which no step touches; that clock stands still in a suspend, though, and so does everything that runs: afterwards leases are old, connections are dead, and every timer that was due fires at once.\n\n" +
			"What a step breaks is what compares stamps of two machines: certificates and tokens (\"not yet valid\", \"has expired\"), leases, and the reading of logs, whose order is no longer the order of events. " +
			"A clock that no NTP client keeps is no cause by itself.",
		Confirm: []string{
			"journalctl -b | grep -E 'Time has been changed|clock was stepped|time jump|PM: suspend': when, and by how much?",
			"timedatectl; chronyc tracking; adjtimex --print: is the clock kept, and how far off is it?",
			"date -u on the node and on a control plane node, side by side.",
			"All logs of the node have a gap at the same moment: the machine stood still (migration, suspend), not the runtime.",
		},
		Fix: []string{
			"Wait for the kubelet to renew its lease and to relist: after a single jump the node comes back within a minute or two.",
			"Start the NTP client, and see why it was off; after a restore from a snapshot, step the clock once (chronyc makestep).",
			"Certificates that are not yet valid become so when the clock is right; see CertificateExpired for the others.",
			"Machines that are suspended or migrated under load: a matter of the hypervisor's settings.",
		},
		Mistaken: "PLEGUnhealthy and APIServerUnreachable right after a suspend: they end by themselves. CertificateExpired with a clock that is wrong by days: correct the clock first.",
		Sources: []string{
			"clock_gettime(2): CLOCK_MONOTONIC and CLOCK_BOOTTIME; Go: package time, monotonic clocks",
			"systemd: src/core/manager.c (Time has been changed), chrony: System clock was stepped",
		},
		RootOf:    []string{codeCertificateExpired, codeAPIServerUnreachable, codePLEGUnhealthy},
		recognise: recogniseClockJumped,
	}
}

// clockJumpedExplains is true for all that it may be a root of: the causes end together or have another root of their own.
func clockJumpedExplains(*Facts, string) bool { return true }

// jumped is by how much the wall clock left the monotonic one while kdiag looked, when that is worth a word.
func (f *Facts) jumped() (time.Duration, bool) {
	by := f.seen().Clock.Value.Jumped
	return by, by.Abs() >= f.nodeLimits().ClockJump
}

// forwards says which way a clock went.
func forwards(by time.Duration) string {
	if by < 0 {
		return units.Duration(-by) + " back"
	}
	return units.Duration(by) + " ahead"
}

// recogniseClockJumped needs a jump that was seen, or one in the log beside trouble that it may have made: a clock is set at each
// boot, and laptops sleep.
func recogniseClockJumped(f *Facts) *Cause {
	by, now := f.jumped()
	last := f.lastOf(signature.ClockChanged, signature.MachineSuspended)
	if f.simulated() || !now && (last == nil || len(f.incidents()) == 0 || f.logged(signature.MachineBooted) != nil) {
		return nil
	}
	c := f.seen().Clock.Value
	var e Evidence
	step, summary := Fair, ""
	if last != nil {
		summary = "the clock was set or the machine slept, last at " + f.clock(*last) + ", around the time at which PLEG was unhealthy"
		f.heard(&e, signature.ClockChanged)
		f.heard(&e, signature.MachineSuspended)
	}
	if now {
		step = Certain
		summary = fmt.Sprintf("the wall clock went %s within %s while kdiag looked", forwards(by), units.Duration(c.Over))
		addf(&e.For, "%s", summary)
	}
	if f.seen().Clock.OK && !c.Synchronised {
		addf(&e.For, "the kernel says that no NTP client keeps the clock (with chrony without rtcsync it says so too)")
	}
	if f.seen().Clock.OK && c.Suspended >= time.Second && f.logged(signature.MachineSuspended) != nil {
		addf(&e.For, "the machine slept for %s since it booted", units.Duration(c.Suspended))
	}
	if s := f.seen().Server.Value; s.SkewKnown && s.Skew.Abs() >= f.nodeLimits().ClockSkew {
		addf(&e.For, "the API server's clock is %s of this one", forwards(s.Skew))
	}
	f.seen().Clock.missing(&e, "the clock itself")
	out := newCause(codeClockJumped, Warning, step, summary, e)
	out.Subject = &Subject{Kind: "Node", Name: "clock"}
	var s steps
	s.add(TouchesNothing, "date -u; timedatectl", "Is the time right now, and does an NTP client keep it?")
	s.add(TouchesNothing, "journalctl --no-pager --since -1h | grep -E 'Time has been changed|clock was stepped|time jump|PM: suspend|time reset'", "Who moved it, when, and by how much?")
	s.add(TouchesNothing, "chronyc tracking || timedatectl timesync-status", "How far is it off by the NTP client's own word?")
	out.NextSteps = s.done()
	return out
}
