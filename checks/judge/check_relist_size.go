package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

func relistSize() Check {
	return Check{
		ID:    "relist.size",
		Title: "the lists stay below gRPC's message limit",
		Text: "The kubelet receives at most 16 MiB in one message, and containerd sends at most as much. Over it every relist fails at once, and so does the kubelet's " +
			"garbage collection.",
		read: readRelistSize,
	}
}

func readRelistSize(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	s, known := f.Lists.Size, f.Lists.SizeKnown
	if !known {
		return result(checks.StatusUnknown, "no list arrived")
	}
	if s.Bytes == 0 && s.Over() {
		return result(checks.StatusCritical, "%s is over the message limit", s.RPC)
	}
	least := ""
	if s.AtLeast {
		least = "at least "
	}
	status := checks.StatusOK
	switch {
	case s.Over() && f.Lists.Streamed:
		status = checks.StatusWarning
	case s.Over(), f.Limits.SizeCritical > 0 && s.Share() >= f.Limits.SizeCritical:
		status = checks.StatusCritical
	case f.Limits.SizeWarning > 0 && s.Share() >= f.Limits.SizeWarning:
		status = checks.StatusWarning
	}
	return result(status, "%s is %s%s, %s of %s", s.RPC, least, units.Size(s.Bytes), units.Percent(s.Share()), units.Size(s.Limit))
}
