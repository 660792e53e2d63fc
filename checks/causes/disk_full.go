package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// DiskFull is the code of this cause.
const DiskFull = "DiskFull"

var diskFull = Definition{
	Code:      DiskFull,
	Claims:    []string{"host.space"},
	Recognise: recogniseDiskFull,
	FromLog:   loggedDiskFull,
}

func recogniseDiskFull(f *facts.Facts) *Finding {
	return shortOf(f, "space", f.Disk.Short, func(s *Steps, folder string) {
		s.Look("ionice -c3 du -xh --max-depth=3 "+folder+" | sort -h | tail -n 20", "What is it? It takes minutes.")
		s.Look("ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F '(deleted)' | head -n 20", "Files that were deleted and "+
			"are still open take space until their process ends or closes them.")
		s.Look(facts.CrictlCommand(f, "imagefsinfo"), "How much of it are images?")
		isLogs := func(o host.Folder) bool { return o.Role == host.FolderLogs }
		if slices.ContainsFunc(f.Disk.Short[0].Space.Folders, isLogs) {
			s.Add(checks.TouchesExited, "journalctl --vacuum-size=500M", "Removes the oldest records of the journal.")
		}
	})
}

func loggedDiskFull(in *Incident) *LogFinding {
	return in.limitFinding("DiskFull", signature.DiskFull, 0.75,
		"A file system that the runtime or the kubelet writes to is full.",
		"A file system was full; the log does not show that the runtime or the kubelet uses it.")
}
