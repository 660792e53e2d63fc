package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostClock() Check {
	return Check{
		ID:    "host.clock",
		Title: "the clock is kept and does not jump",
		Text: "Compares the wall clock with the monotonic one while kdiag runs, and asks the kernel whether an NTP client keeps it (adjtimex). A jump is a warning, and so is a clock that nobody keeps: it drifts by seconds " +
			"a day, until certificates and tokens do not fit.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Clock] { return n.Clock }, func(v0 host.Clock) checks.Result { return judgeClock(f, v0) })
		},
	}
}

func judgeClock(f *facts.Facts, c host.Clock) checks.Result {
	if by, jumped := f.Usage.ClockJump, f.Usage.ClockJumped; jumped {
		return result(checks.StatusWarning, "it went %s within %s", causes.Forwards(by), units.Duration(c.Over))
	}
	if c == (host.Clock{}) {
		return result(checks.StatusUnknown, "the clock was not read")
	}
	if !c.Synchronised {
		return result(checks.StatusWarning, "the kernel says that no NTP client keeps it; with chrony without rtcsync it says so too")
	}
	return result(checks.StatusOK, "kept by an NTP client, at most %s off by its own estimate", units.Duration(c.MaxError))
}
