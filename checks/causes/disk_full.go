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
	FromLog: exhausted(0.75, "A file system that the runtime or the kubelet writes to is full.",
		signature.DiskFull),
}

func recogniseDiskFull(f *facts.Facts) *Finding {
	c := shortFinding(f, "space", false)
	if c == nil {
		return nil
	}
	logEvidence(f, &c.Evidence, signature.DiskFull)
	main := f.Disk.Short[0]
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		folder := main.Folder()
		s.Add(checks.TouchesNothing, "df -h "+folder+"; df -i "+folder, "How much is left, and is it space or inodes?")
		s.Add(checks.TouchesNothing, "ionice -c3 du -xh --max-depth=3 "+folder+" | sort -h | tail -n 20",
			"What takes the space? It reads every directory: minutes on a large disk.")
		s.Add(checks.TouchesNothing, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F '(deleted)' | head -n 20",
			"Files that were deleted and are still open take space until their process lets go.")
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "imagefsinfo"), "How much of it are images?")
		s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "gc-exited"),
			"The plan for dead containers beyond the newest: what may go, and why.")
		if slices.ContainsFunc(main.Space.Folders, func(o host.Folder) bool { return o.Role == host.FolderLogs }) {
			s.Add(checks.TouchesExited, "journalctl --vacuum-size=500M",
				"Removes old records of the journal, the oldest first. Save what the diagnosis needs.")
		}
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`,
			"No new pod should be placed here while there is no room.")
		return s.Done()
	}
	return c
}
