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

func loggedDiskFull(in *Incident) *Finding {
	return in.exhausted("A file system that the runtime or the kubelet writes to is full.", signature.DiskFull)
}

func recogniseDiskFull(f *facts.Facts) *Finding {
	if len(f.Disk.Short)+len(f.Disk.ShortInodes) == 0 {
		return pressed(f, "DiskPressure")
	}
	return shortOf(f, "space", f.Disk.Short, func(s *Steps, folder string) {
		s.Look("ionice -c3 du -xh --max-depth=3 "+folder+" | sort -h | tail -n 20", "Find what takes the space (slow).")
		s.Look("ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F '(deleted)' | head -n 20",
			"List deleted files that are still open.")
		s.Look(facts.CrictlCommand(f, "imagefsinfo"), "Show how much of it are images.")
		isLogs := func(o host.Folder) bool { return o.Role == host.FolderLogs }
		if slices.ContainsFunc(f.Disk.Short[0].Space.Folders, isLogs) {
			s.Add(checks.TouchesLogs, "journalctl --vacuum-size=500M", "Removes the oldest records of the journal.")
		}
	})
}

// shortOf returns the finding for file systems that are short of space or inodes, the worst first; look adds what
// shows who takes it.
func shortOf(f *facts.Facts, noun string, short []facts.Shortage, look func(s *Steps, folder string)) *Finding {
	if len(short) == 0 {
		return nil
	}
	inodes := noun == "inodes"
	var e checks.Evidence
	var subjects []checks.Subject
	for _, s := range short[:min(len(short), facts.MaxRelated)] {
		shortEvidence(s, &e, inodes)
		subjects = append(subjects, s.Subject())
	}
	missing(f.Seen.Settings, &e, "the kubelet's eviction thresholds; assuming its defaults")
	logEvidence(f, &e, signature.DiskFull)
	main := short[0]
	step := ifElse(main.Full || main.Err != "", checks.Certain, checks.Strong)
	what := ifElse(main.Full, "has no "+noun+" left", "is short of "+noun)
	summary := textf("the file system of %s %s: %s", main.Name(), what, main.Left(inodes))
	if main.Default != "" && !main.Full {
		summary = textf("the kubelet evicts at %s<%s, which is configured (its default is %s): %s", main.Signal, main.Below,
			main.Default, main.Left(inodes))
	}
	if main.Err != "" {
		summary = textf("writes to the file system of %s fail: %s", main.Name(), facts.Clean(main.Err))
	}
	return newFinding(main.Severity(), step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		s.lookIf(main.Default != "", "grep -n -A 6 eviction /var/lib/kubelet/config.yaml",
			"Check whether the threshold is meant: a default would not be reached.")
		s.Look("df -h "+main.Folder()+"; df -i "+main.Folder(), "Check how much space and how many inodes are left.")
		whole := ifElse(facts.SafePath.MatchString(main.Space.Mount), main.Space.Mount, main.Folder())
		look(s, whole) // what fills it may lie beside the folder
		s.Look(facts.KdiagCommand(f, "gc-exited"),
			"Show which dead containers can be removed (a plan, nothing is removed).")
		s.cordon()
	})
}

func shortEvidence(s facts.Shortage, e *checks.Evidence, inodes bool) {
	addIf(!inodes && s.Space.Size > 0 || inodes && s.Space.Inodes > 0, &e.For, "%s: %s", s.Name(), s.Left(inodes))
	if s.Err != "" {
		Addf(&e.For, "a timed write of 4 KiB there failed: %s", facts.Clean(s.Err))
	} else if s.Full && s.Written && !inodes {
		Addf(&e.Against, "timed writes there succeeded, perhaps in the space reserved for root (5 %% on ext4)")
	}
	addIf(s.Signal != "", &e.For, "below the kubelet's %s<%s: DiskPressure, pods are evicted", s.Signal, s.Below)
	addIf(len(s.Space.Folders) > 0, &e.For, "folders on it: %s", facts.FoldersLine(s.Space.Folders))
}
