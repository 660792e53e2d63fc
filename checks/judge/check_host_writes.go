package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func hostWrites() Check {
	return Check{
		ID:    "host.writes",
		Title: "a small write reaches the runtime's disk quickly",
		Text: "Times writes of 4 KiB with fsync into a file without a name in the runtime's folder, in a child process. That is what each change of the runtime's database waits for: 1 to 10 ms on a healthy disk; a median of " +
			"100 ms is a warning, of one second critical.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[[]host.Writes] { return n.Writes }, func([]host.Writes) checks.Result { return judgeWrites(f) })
		},
	}
}

func judgeWrites(f *facts.Facts) checks.Result {
	all := f.Disk.Writes
	if len(all) == 0 {
		return result(checks.StatusUnknown, "no write was timed")
	}
	status, line := checks.StatusOK, all[0].Line()
	for _, l := range all {
		severity, slow := l.Severity(f.Limits.Node)
		switch {
		case slow && severity == checks.Critical, facts.Says(l.Writes.Err, "no space left", "quota"):
			return result(checks.StatusCritical, "%s", l.Line())
		case slow && status != checks.StatusWarning:
			status, line = checks.StatusWarning, l.Line()
		case l.Writes.Err != "" && status == checks.StatusOK:
			status, line = checks.StatusUnknown, l.Line()
		}
	}
	return result(status, "%s", line)
}
