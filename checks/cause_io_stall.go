package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func ioStall() Definition {
	return Definition{
		Code:  codeIOStall,
		Title: "a disk that the node needs is saturated, throttled or failing, or a file system is read-only",
		Means: "Writes come back late or with an error. Each change in the runtime is a commit to a database, and each commit waits for fsync twice; a pod start makes dozens. On a disk that takes 100 ms for one the start " +
			"takes seconds, at 1 s it does not get done in the kubelet's two minutes: \"failed to reserve container name\", \"context deadline exceeded\", tasks that exit and are not cleaned up. " +
			"Unmounting an overlay writes out what is dirty, so shims hang in umount and hold the status lock of their container: InspectHang, ListHang, PLEG.\n\n" +
			"Cloud disks are throttled by their size and by burst credits: the figures of the machine look idle and every request waits. A disk that fails is read-only after a while; " +
			"the node may stay Ready then (kubernetes/kubernetes#101655). A read-only /run keeps the runtime from starting anything in the same way, with no disk behind it: somebody remounted it.\n\n" +
			"kdiag times writes of its own in the runtime's folder. Pressure (PSI io) or a busy disk alone is no cause: one copy of files on an idle node gives both.",
		Confirm: []string{
			"grep . /proc/pressure/io: full avg10 over 20 says that all who wanted to run waited for disks a fifth of the time.",
			"iostat -x 1: w_await and f_await of the device in milliseconds; %util says little, since modern disks work in parallel.",
			"The cloud's graphs of the volume: IOPS, throughput and burst balance at their limits.",
			"journalctl -k | grep -iE 'I/O error|remounting filesystem read-only|blocked for more than'",
			"A goroutine dump of containerd: many in bbolt's beginRWTx or in fsync (containerd/containerd#8698, #8980).",
		},
		Fix: []string{
			"Find who writes, and stop or throttle it: image pulls, a log shipper with a backlog, a database without limits, a core dump.",
			"Wait: a burst ends, and the queue drains by itself. A restart of the runtime adds reads to a disk that has none to spare.",
			"More IOPS or throughput for the volume; a disk of its own for /var/lib/containerd and for logs; serializeImagePulls or a limit on parallel pulls.",
			"A disk with errors, or a file system that is read-only: cordon, drain what can be drained, repair or replace the disk. A remount hides damage.",
		},
		Mistaken: "FilesystemHung: there one mount never answers and others are quick. RuntimeHung: a deadlock has no pressure and quick writes. KernelHung: hung task reports come of a stalled disk as well and end with it.",
		Sources: []string{
			"kernel: Documentation/accounting/psi.rst, Documentation/admin-guide/iostats.rst",
			"containerd/containerd#5325, #4604, #8698, #8980, #9770 (slow disks), Azure/AKS#1373",
			"kubernetes/kubernetes#64108, #101655 (a read-only disk under a Ready node)",
		},
		RootOf: []string{
			codeRuntimeDown, codeRuntimeHung, codeRuntimeSlow, codeRuntimeNotReady, codeListHang, codeInspectHang, codeImageServiceHung, codeCNIHung,
			codeRelistOverloaded, codePLEGUnhealthy, codeFilesystemHung, codeTaskStuck, codeShimStuck, codeKubeletStalled, codeSystemdWedged, codeKernelHung,
		},
		recognise: recogniseIOStall,
	}
}

// ioStallExplains reports whether the disk is why: a dead mount is the better reason for what hangs in it, and a disk that is slow
// and goes on explains slowness rather than calls that never come.
func ioStallExplains(f *Facts, consequence string) bool {
	switch consequence {
	case codeRuntimeSlow, codeRelistOverloaded, codePLEGUnhealthy:
		return true
	case codeRuntimeDown, codeRuntimeNotReady:
		return len(f.failing()) > 0
	}
	standing := len(f.failing()) > 0 || slices.ContainsFunc(f.latencies(), func(w latency) bool {
		severity, _ := w.severity(f.nodeLimits())
		return severity == Critical
	})
	return standing && len(f.deadMounts()) == 0
}

// failing says which file systems take no writes: read-only, or with errors of the disk.
func (f *Facts) failing() []string {
	var lines []string
	for _, s := range f.readOnly() {
		lines = append(lines, fmt.Sprintf("the file system of %s cannot be written: it is mounted read-only", shortage{space: s}.name()))
	}
	for _, l := range f.latencies() {
		if says(l.writes.Err, "input/output error", "read-only file system") {
			lines = append(lines, l.line())
		}
	}
	return lines
}

// stalledByPressure reports whether pressure and a slow disk of the node's agree, where no writes were timed to decide it.
func (f *Facts) stalledByPressure() bool {
	l := f.nodeLimits()
	io := f.seen().Pressure.Value.IO
	if io == nil || f.quickWrites() || io.Full.Avg10 < l.IOFull || io.Full.Avg60 < l.IOFull {
		return false
	}
	slow := f.slowDisks()
	return len(slow) > 0 && needed(slow[0].Folders)
}

func recogniseIOStall(f *Facts) *Cause {
	l := f.nodeLimits()
	failing, all := f.failing(), f.latencies()
	var e Evidence
	var severity Severity
	step, summary := Strong, ""
	for _, w := range all {
		s, slow := w.severity(l)
		if !slow {
			continue
		}
		severity = worse(severity, s)
		addf(&e.For, "%s", w.line())
		if summary == "" {
			how := " is too slow: "
			if w.writes.Hung && len(w.writes.Times) == 0 {
				how = " takes no writes: "
			}
			summary = f.diskUnder(w.writes.Folder) + how + w.line()
		}
	}
	if len(failing) > 0 {
		severity, step, summary = Critical, Certain, failing[0]
		for _, s := range f.readOnly() {
			addf(&e.For, "%s is mounted read-only; on it lie %s", clean(s.Mount), foldersLine(s.Folders))
		}
	}
	if severity == "" {
		if !f.stalledByPressure() {
			return nil
		}
		severity, step = Warning, Fair
		summary = fmt.Sprintf("requests to disk %s take %s, and tasks wait for them", clean(f.slowDisks()[0].Name), units.Duration(await(f.slowDisks()[0])))
	}
	f.stallEvidence(&e)
	if writers := f.topWriters(); len(writers) > 0 && len(failing) == 0 {
		summary += fmt.Sprintf("; most is written by %s, %s/s", f.writerLabel(writers[0]), rate(writers[0].BytesPerSecond))
	}
	c := newCause(codeIOStall, severity, step, summary, e)
	c.Subject, c.Related = f.stallSubjects()
	c.NextSteps = f.stepsWhenStalled(len(failing) > 0)
	return c
}

// diskUnder names the disk on which a folder lies, as far as it is known.
func (f *Facts) diskUnder(folder host.Folder) string {
	for _, d := range f.slowDisks() {
		if slices.Contains(d.Folders, folder) {
			return "disk " + clean(d.Name)
		}
	}
	return "the disk"
}

// stallEvidence adds what speaks for and against a stalled disk besides the writes.
func (f *Facts) stallEvidence(e *Evidence) {
	l, n := f.nodeLimits(), f.seen()
	switch io := n.Pressure.Value.IO; {
	case io == nil:
		n.Pressure.missing(e, "pressure of disks (/proc/pressure/io)")
	case io.Full.Avg10 >= l.IOFull:
		addf(&e.For, "everything that wanted to run waited for disks in %s (PSI io full)", pressure(io.Full))
	case io.Some.Avg10 < 1 && len(f.failing()) == 0:
		addf(&e.Against, "hardly anything waits for a disk: %s (PSI io some)", pressure(io.Some))
	}
	for _, d := range head2(f.slowDisks()) {
		addf(&e.For, "%s", diskLine(d))
	}
	for _, w := range f.topWriters() {
		addf(&e.For, "%s writes %s/s", f.writerLabel(w), rate(w.BytesPerSecond))
	}
	t := n.Tasks.Value
	blocked := slices.DeleteFunc(slices.Clone(t.Blocked), func(b host.BlockedTask) bool { return strings.HasPrefix(b.Name, host.ChildArgument) })
	if t.BlockedMoments+len(blocked) > 0 {
		addf(&e.For, "%s in uninterruptible sleep for a moment, %s for longer", units.Count(t.BlockedMoments, "task"), units.Number(len(blocked)))
	}
	for _, code := range []string{signature.BlockIOError, signature.FilesystemError, signature.NameReserved} {
		f.heard(e, code)
	}
	n.Writes.missing(e, "timed writes into the runtime's folder")
	n.Disks.missing(e, "time of requests by disk (/proc/diskstats)")
}

// head2 returns the first two disks.
func head2(disks []host.Disk) []host.Disk { return disks[:min(len(disks), 2)] }

// stallSubjects names the disk or file system, then who writes.
func (f *Facts) stallSubjects() (*Subject, []Subject) {
	var out []Subject
	for _, s := range f.readOnly() {
		out = append(out, shortage{space: s}.subject())
	}
	for _, w := range f.latencies() {
		if _, slow := w.severity(f.nodeLimits()); slow && len(out) == 0 {
			out = append(out, shortage{space: f.spaceOf(w.writes)}.subject())
		}
	}
	for _, d := range head2(f.slowDisks()) {
		out = append(out, Subject{Kind: "Disk", Name: clean(d.Name)})
	}
	for _, w := range f.topWriters() {
		out = append(out, f.inPod(Subject{Kind: "Process", ID: strconv.Itoa(w.PID), Name: clean(w.Name)}, w.PodUID))
	}
	if len(out) == 0 {
		return &Subject{Kind: "Node", Name: "disks"}, nil
	}
	return &out[0], out[1:]
}

func (f *Facts) stepsWhenStalled(failing bool) []NextStep {
	var s steps
	s.add(TouchesNothing, "grep . /proc/pressure/io; iostat -x 1 5", "Does it go on, and at which device? Read w_await and f_await, not %util.")
	s.add(TouchesNothing, "journalctl --no-pager -k --since -1h | grep -iE 'I/O error|read-only|blocked for more than|reset controller'", "Does the disk fail, or is it only slow?")
	s.add(TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'", "Who waits for it now? The same tasks each time are stuck, others each time are queued.")
	if failing {
		s.add(TouchesNothing, "grep -E ' ro[, ]' /proc/mounts", "Which file systems are read-only? The kernel remounts one after errors.")
		if memory, disk := f.readOnlyMemory(); memory != "" {
			s.add(TouchesRuntime, "mount -o remount,rw "+memory, "A tmpfs has no disk that could be damaged: somebody made it read-only, and what runs goes on when it is not.")
			if !disk {
				return s.done()
			}
		}
		addNode(&s, "After the data is safe: the file system is checked at boot. Replace the disk if it fails again.")
		return s.done()
	}
	for _, l := range f.latencies() {
		if mount := l.writes.Mount; l.writes.Hung && safePath.MatchString(mount) {
			s.add(TouchesRuntime, "fsfreeze -u "+mount, "Only if those who wait do so in percpu_rwsem_wait: a backup or a snapshot froze the file system and did not thaw it. They go on, and nothing is lost.")
		}
	}
	for _, w := range f.topWriters() {
		if w.PID > 1 {
			s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/io /proc/%d/cgroup", w.PID, w.PID), "What does "+f.writerLabel(w)+" write, and for whom?")
			f.addDeletePodByUID(&s, w.PodUID, "Stops the heaviest writer, if its work can wait. Its replacement may write as much on another node.")
		}
	}
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod pulls and unpacks images on the same disk.")
	return s.done()
}

// readOnlyMemory returns the mount point of a tmpfs that is read-only, and whether anything else takes no writes.
func (f *Facts) readOnlyMemory() (mount string, others bool) {
	tmpfs := 0
	for _, s := range f.readOnly() {
		if s.Type == "tmpfs" && safePath.MatchString(s.Mount) {
			mount = s.Mount
			tmpfs++
		}
	}
	return mount, len(f.failing()) > tmpfs
}
