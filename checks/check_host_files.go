package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostFiles() Check {
	return Check{
		ID:    "host.files",
		Title: "open files are far from their limits",
		Text:  "Counts the descriptors of the runtime and the kubelet against their soft limit (RLIMIT_NOFILE), and those of the node against fs.file-max. From 80 % on it is a warning, from 90 % critical.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Files] { return n.Files }, f.judgeFiles)
		},
	}
}

func (f *Facts) judgeFiles(files host.Files) Result {
	l := f.nodeLimits()
	if status := l.statusOf(used(files.System)); status != StatusOK {
		return result(status, "the node has %s files open", usage(files.System))
	}
	if hoarders := f.fileHoarders(); len(hoarders) > 0 {
		p := hoarders[0]
		return result(l.statusOf(used(p.Usage)), "%s (pid %d) has %s files open", clean(p.Name), p.PID, usage(p.Usage))
	}
	if len(files.Processes) == 0 {
		return result(StatusUnknown, "no process of the runtime or the kubelet could be read")
	}
	most := files.Processes[0]
	for _, p := range files.Processes {
		if used(p.Usage) > used(most.Usage) {
			most = p
		}
	}
	return result(StatusOK, "%s (pid %d) has %s files open, the others fewer of theirs", clean(most.Name), most.PID, usageOrNone(most.Usage))
}

// usageOrNone is usage where there may be no limit.
func usageOrNone(u host.Usage) string {
	if u.Max == 0 {
		return units.Number(u.Current)
	}
	return usage(u)
}
