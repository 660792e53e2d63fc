package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostFiles() Check {
	return Check{
		ID:    "host.files",
		Title: "open files are far from their limits",
		Text:  "Counts the descriptors of the runtime and the kubelet against their soft limit (RLIMIT_NOFILE), and those of the node against fs.file-max. From 80 % on it is a warning, from 90 % critical.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Files] { return n.Files }, func(v0 host.Files) checks.Result { return judgeFiles(f, v0) })
		},
	}
}

func judgeFiles(f *facts.Facts, files host.Files) checks.Result {
	l := f.Limits.Node
	if status := facts.StatusOf(l, facts.Used(files.System)); status != checks.StatusOK {
		return result(status, "the node has %s files open", facts.UsageText(files.System))
	}
	if hoarders := f.Usage.Files; len(hoarders) > 0 {
		p := hoarders[0]
		return result(facts.StatusOf(l, facts.Used(p.Usage)), "%s (pid %d) has %s files open", facts.Clean(p.Name), p.PID, facts.UsageText(p.Usage))
	}
	if len(files.Processes) == 0 {
		return result(checks.StatusUnknown, "no process of the runtime or the kubelet could be read")
	}
	most := files.Processes[0]
	for _, p := range files.Processes {
		if facts.Used(p.Usage) > facts.Used(most.Usage) {
			most = p
		}
	}
	return result(checks.StatusOK, "%s (pid %d) has %s files open, the others fewer of theirs", facts.Clean(most.Name), most.PID, usageOrNone(most.Usage))
}

// usageOrNone is usage where there may be no limit.
func usageOrNone(u host.Usage) string {
	if u.Max == 0 {
		return units.Number(u.Current)
	}
	return facts.UsageText(u)
}
