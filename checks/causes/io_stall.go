package causes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// IOStall is the code of this cause.
const IOStall = "IOStall"

var ioStall = Definition{
	Code:   IOStall,
	Claims: []string{"host.writes"},
	Roots: []Root{
		{Code: MemoryPressure, When: memoryIsLow},
	},
	Recognise: recogniseIOStall,
	FromLog: fromRecords(hostTier, 0.7, "A disk fails or its file system is damaged: whatever touches it waits.",
		signature.BlockIOError, signature.FilesystemError),
}

// stalledByPressure reports whether pressure and a slow disk of the node's agree, where no writes were timed to
// decide it.
func stalledByPressure(f *facts.Facts) bool {
	l := f.Limits.Node
	io := f.Seen.Pressure.Value.IO
	if io == nil || facts.QuickWrites(f) || io.Full.Avg10 < l.IOFull || io.Full.Avg60 < l.IOFull {
		return false
	}
	slow := f.Disk.Slow
	return len(slow) > 0 && facts.Needed(slow[0].Folders)
}

func recogniseIOStall(f *facts.Facts) *Finding {
	l := f.Limits.Node
	failing, all := f.Disk.Failing, f.Disk.Writes
	var e checks.Evidence
	var severity checks.Severity
	step, summary := checks.Strong, ""
	for _, w := range all {
		s, slow := w.Severity(l)
		if !slow {
			continue
		}
		severity = facts.Worse(severity, s)
		Addf(&e.For, "%s", w.Line())
		if summary == "" {
			how := " is too slow: "
			if w.Writes.Hung && len(w.Writes.Times) == 0 {
				how = " takes no writes: "
			}
			summary = diskUnder(f, w.Writes.Folder) + how + w.Line()
		}
	}
	if len(failing) > 0 {
		severity, step, summary = checks.Critical, checks.Certain, failing[0]
		for _, s := range f.Disk.ReadOnly {
			Addf(&e.For, "%s is mounted read-only; on it lie %s", facts.Clean(s.Mount), facts.FoldersLine(s.Folders))
		}
	}
	if severity == "" {
		if !stalledByPressure(f) {
			return nil
		}
		severity, step = checks.Warning, checks.Fair
		summary = fmt.Sprintf("requests to disk %s take %s, and tasks wait for them",
			facts.Clean(f.Disk.Slow[0].Name), units.Duration(facts.Await(f.Disk.Slow[0])))
	}
	stallEvidence(f, &e)
	if writers := f.Disk.Writers; len(writers) > 0 && len(failing) == 0 {
		summary += fmt.Sprintf("; most is written by %s, %s/s", facts.WriterLabel(f, writers[0]),
			facts.Rate(writers[0].BytesPerSecond))
	}
	c := newFinding(severity, step, summary, e)
	c.Subject, c.Related = stallSubjects(f)
	c.Advise = func(string) []checks.NextStep { return stepsWhenStalled(f, len(failing) > 0) }
	return c
}

// diskUnder names the disk on which a folder lies, as far as it is known.
func diskUnder(f *facts.Facts, folder host.Folder) string {
	for _, d := range f.Disk.Slow {
		if slices.Contains(d.Folders, folder) {
			return "disk " + facts.Clean(d.Name)
		}
	}
	return "the disk"
}

// stallEvidence adds what speaks for and against a stalled disk besides the writes.
func stallEvidence(f *facts.Facts, e *checks.Evidence) {
	l, n := f.Limits.Node, f.Seen
	switch io := n.Pressure.Value.IO; {
	case io == nil:
		missing(n.Pressure, e, "pressure of disks (/proc/pressure/io)")
	case io.Full.Avg10 >= l.IOFull:
		Addf(&e.For, "everything that wanted to run waited for disks in %s (PSI io full)", facts.PressureText(io.Full))
	case io.Some.Avg10 < 1 && len(f.Disk.Failing) == 0:
		Addf(&e.Against, "hardly anything waits for a disk: %s (PSI io some)", facts.PressureText(io.Some))
	}
	for _, d := range head2(f.Disk.Slow) {
		Addf(&e.For, "%s", facts.DiskLine(d))
	}
	for _, w := range f.Disk.Writers {
		Addf(&e.For, "%s writes %s/s", facts.WriterLabel(f, w), facts.Rate(w.BytesPerSecond))
	}
	t := n.Tasks.Value
	blocked := slices.DeleteFunc(slices.Clone(t.Blocked),
		func(b host.BlockedTask) bool { return strings.HasPrefix(b.Name, host.ChildArgument) })
	if t.BlockedMoments+len(blocked) > 0 {
		Addf(&e.For, "%s in uninterruptible sleep for a moment, %s for longer", units.Count(t.BlockedMoments, "task"),
			units.Number(len(blocked)))
	}
	for _, code := range []string{signature.BlockIOError, signature.FilesystemError, signature.NameReserved} {
		logEvidence(f, e, code)
	}
	missing(n.Writes, e, "timed writes into the runtime's folder")
	missing(n.Disks, e, "time of requests by disk (/proc/diskstats)")
}

// head2 returns the first two disks.
func head2(disks []host.Disk) []host.Disk { return disks[:min(len(disks), 2)] }

// stallSubjects names the disk or file system, then who writes.
func stallSubjects(f *facts.Facts) (*checks.Subject, []checks.Subject) {
	var out []checks.Subject
	for _, s := range f.Disk.ReadOnly {
		out = append(out, facts.Shortage{Space: s}.Subject())
	}
	for _, w := range f.Disk.Writes {
		if _, slow := w.Severity(f.Limits.Node); slow && len(out) == 0 {
			out = append(out, facts.Shortage{Space: facts.SpaceOf(f, w.Writes)}.Subject())
		}
	}
	for _, d := range head2(f.Disk.Slow) {
		out = append(out, checks.Subject{Kind: "Disk", Name: facts.Clean(d.Name)})
	}
	for _, w := range f.Disk.Writers {
		out = append(out, facts.InPod(f, checks.Subject{
			Kind: "Process", ID: strconv.Itoa(w.PID),
			Name: facts.Clean(w.Name),
		}, w.PodUID))
	}
	if len(out) == 0 {
		return &checks.Subject{Kind: "Node", Name: "disks"}, nil
	}
	return &out[0], out[1:]
}

func stepsWhenStalled(f *facts.Facts, failing bool) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing, "grep . /proc/pressure/io; iostat -x 1 5",
		"Does it go on, and at which device? Read w_await and f_await, not %util.")
	s.Add(checks.TouchesNothing,
		"journalctl --no-pager -k --since -1h | grep -iE 'I/O error|read-only|blocked for more than|reset controller'", "Does the disk fail, or is it only slow?")
	s.Add(checks.TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'",
		"Who waits for it now? The same tasks each time are stuck, others each time are queued.")
	if failing {
		s.Add(checks.TouchesNothing, "grep -E ' ro[, ]' /proc/mounts",
			"Which file systems are read-only? The kernel remounts one after errors.")
		if memory, disk := readOnlyMemory(f); memory != "" {
			s.Add(checks.TouchesRuntime, "mount -o remount,rw "+memory,
				"A tmpfs has no disk that could be damaged: somebody made it read-only, and what runs goes on "+
					"when it is not.")
			if !disk {
				return s.Done()
			}
		}
		addNode(&s, "After the data is safe: the file system is checked at boot. Replace the disk if it fails again.")
		return s.Done()
	}
	for _, l := range f.Disk.Writes {
		if mount := l.Writes.Mount; l.Writes.Hung && facts.SafePath.MatchString(mount) {
			s.Add(checks.TouchesRuntime, "fsfreeze -u "+mount,
				"Only if those who wait do so in percpu_rwsem_wait: a backup or a snapshot froze the file system "+
					"and did not thaw it. They go on, and nothing is lost.")
		}
	}
	for _, w := range f.Disk.Writers {
		if w.PID > 1 {
			s.Add(checks.TouchesNothing, fmt.Sprintf("cat /proc/%d/io /proc/%d/cgroup", w.PID, w.PID),
				"What does "+facts.WriterLabel(f, w)+" write, and for whom?")
			addDeletePodByUID(f, &s, w.PodUID,
				"Stops the heaviest writer, if its work can wait. Its replacement may write as much on another node.")
		}
	}
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`,
		"Each new pod pulls and unpacks images on the same disk.")
	return s.Done()
}

// readOnlyMemory returns the mount point of a tmpfs that is read-only, and whether anything else takes no writes.
func readOnlyMemory(f *facts.Facts) (mount string, others bool) {
	tmpfs := 0
	for _, s := range f.Disk.ReadOnly {
		if s.Type == "tmpfs" && facts.SafePath.MatchString(s.Mount) {
			mount = s.Mount
			tmpfs++
		}
	}
	return mount, len(f.Disk.Failing) > tmpfs
}
