package checks

import "github.com/kdiag/kdiag/checks/host"

func hostWrites() Check {
	return Check{
		ID:    "host.writes",
		Title: "a small write reaches the runtime's disk quickly",
		Text: "Times writes of 4 KiB with fsync into a file without a name in the runtime's folder, in a child process. That is what each change of the runtime's database waits for: 1 to 10 ms on a healthy disk; a median of " +
			"100 ms is a warning, of one second critical.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[[]host.Writes] { return n.Writes }, func([]host.Writes) Result { return f.judgeWrites() })
		},
	}
}

func (f *Facts) judgeWrites() Result {
	all := f.latencies()
	if len(all) == 0 {
		return result(StatusUnknown, "no write was timed")
	}
	status, line := StatusOK, all[0].line()
	for _, l := range all {
		severity, slow := l.severity(f.nodeLimits())
		switch {
		case slow && severity == Critical, says(l.writes.Err, "no space left", "quota"):
			return result(StatusCritical, "%s", l.line())
		case slow && status != StatusWarning:
			status, line = StatusWarning, l.line()
		case l.writes.Err != "" && status == StatusOK:
			status, line = StatusUnknown, l.line()
		}
	}
	return result(status, "%s", line)
}
