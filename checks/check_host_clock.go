package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostClock() Check {
	return Check{
		ID:    "host.clock",
		Title: "the clock is kept and does not jump",
		Text: "Compares the wall clock with the monotonic one while kdiag runs, and asks the kernel whether an NTP client keeps it (adjtimex). A jump is a warning, and so is a clock that nobody keeps: it drifts by seconds " +
			"a day, until certificates and tokens do not fit.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Clock] { return n.Clock }, f.judgeClock)
		},
	}
}

func (f *Facts) judgeClock(c host.Clock) Result {
	if by, jumped := f.jumped(); jumped {
		return result(StatusWarning, "it went %s within %s", forwards(by), units.Duration(c.Over))
	}
	if c == (host.Clock{}) {
		return result(StatusUnknown, "the clock was not read")
	}
	if !c.Synchronised {
		return result(StatusWarning, "the kernel says that no NTP client keeps it; with chrony without rtcsync it says so too")
	}
	return result(StatusOK, "kept by an NTP client, at most %s off by its own estimate", units.Duration(c.MaxError))
}
