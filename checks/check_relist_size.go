package checks

import "github.com/kdiag/kdiag/checks/units"

func relistSize() Check {
	return Check{
		ID:    "relist.size",
		Title: "the lists stay below gRPC's message limit",
		Text: "The kubelet receives at most 16 MiB in one message, and containerd sends at most as much. Over it every relist fails at once, and so does the kubelet's " +
			"garbage collection.",
		read: readRelistSize,
	}
}

func readRelistSize(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	s, known := f.listSize()
	if !known {
		return result(StatusUnknown, "no list arrived")
	}
	if s.Bytes == 0 && s.over() {
		return result(StatusCritical, "%s is over the message limit", s.RPC)
	}
	least := ""
	if s.AtLeast {
		least = "at least "
	}
	status := StatusOK
	switch {
	case s.over() && f.kubeletStreams():
		status = StatusWarning
	case s.over(), f.Limits.SizeCritical > 0 && s.share() >= f.Limits.SizeCritical:
		status = StatusCritical
	case f.Limits.SizeWarning > 0 && s.share() >= f.Limits.SizeWarning:
		status = StatusWarning
	}
	return result(status, "%s is %s%s, %s of %s", s.RPC, least, units.Size(s.Bytes), units.Percent(s.share()), units.Size(s.Limit))
}
