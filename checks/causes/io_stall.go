package causes

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// IOStall is the code of this cause.
const IOStall = "IOStall"

func loggedIOStall(in *Incident) *Finding {
	return in.failedDisk("A disk fails or its file system is damaged: whatever touches it waits.", signature.BlockIOError,
		signature.FilesystemError)
}

func recogniseIOStall(f *facts.Facts) *Finding {
	l, d := f.Limits.Node, f.Disk
	var e checks.Evidence
	var severity checks.Severity
	var subjects []checks.Subject
	step, summary := checks.Strong, ""
	writer := func(w host.Writer) string {
		return processOwned(f, w.PID, w.Name, host.Owner{PodUID: w.PodUID, ObjectID: w.ObjectID})
	}
	for _, s := range d.ReadOnly {
		subjects = append(subjects, facts.Shortage{Space: s}.Subject())
	}
	for _, w := range d.Writes {
		s, slow := w.Severity(l)
		if !slow {
			continue
		}
		severity = facts.Worse(severity, s)
		Addf(&e.For, "%s", w.Line())
		summary = cmp.Or(summary, "the disk is too slow: "+w.Line())
		if len(subjects) == 0 {
			subjects = append(subjects, facts.Shortage{Space: facts.SpaceOf(f, w.Writes)}.Subject())
		}
	}
	if len(d.Failing) > 0 {
		severity, step, summary = checks.Critical, checks.Certain, d.Failing[0]
		e.For = append(e.For, d.Failing...)
	}
	if limits := d.Throttled; len(limits) > 0 && len(d.Failing) == 0 {
		stand := slices.ContainsFunc(limits, facts.WritesStand)
		severity, step = facts.Worse(severity, criticalIf(stand)), ifElse(stand, checks.Certain, step)
		summary = limitLine(f, limits[0])
		for _, w := range limits {
			Addf(&e.For, "%s", limitLine(f, w))
			unit := unitOfGroup(w.Path)
			subjects = append(subjects, ifElse(facts.Safe(unit), checks.Subject{Kind: "Unit", Name: unit},
				checks.Subject{Kind: "Cgroup", Name: facts.Clean(w.Path)}))
		}
		addTasks(f, &e, func(t host.BlockedTask) bool { return t.Role == limits[0].Role })
	}
	if d.Frozen {
		addTasks(f, &e, facts.WaitsForThaw)
		severity, step = checks.Critical, checks.Certain
		held := frozenDaemon(f)
		summary = "a file system that " + ifElse(held.Role == host.RoleKubelet, "the kubelet", f.Target.Name) +
			" writes to is frozen (fsfreeze)"
		for _, disk := range top(facts.FrozenDisks(held)) {
			Addf(&e.For, "%s", frozenLine(disk))
			subjects = append(subjects, checks.Subject{Kind: "Filesystem", ID: disk.Source, Name: disk.Mount})
		}
		if len(subjects) == 0 {
			for _, space := range thawable(f) {
				subjects = append(subjects, facts.Shortage{Space: space}.Subject())
			}
		}
	}
	if severity == "" {
		// Pressure and a slow disk of the node's must agree where no writes were timed to decide it.
		io := f.Seen.Pressure.Value.IO
		if io == nil || quickWrites(f) || io.Full.Avg10 < l.IOFull || io.Full.Avg60 < l.IOFull ||
			len(d.Slow) == 0 || !facts.Needed(d.Slow[0].Folders) {
			return nil
		}
		severity, step = checks.Warning, checks.Fair
		summary = textf("requests to disk %s take %s", facts.Clean(d.Slow[0].Name), facts.Await(d.Slow[0]))
	}
	writers := ifElse(d.Frozen, nil, d.Writers) // who writes does not make the others wait for the end of a freeze
	if len(writers) > 0 && len(d.Failing)+len(d.Throttled) == 0 {
		summary += "; the heaviest writer is " + writer(writers[0])
	}
	stallEvidence(f, &e)
	holds := stackEvidence(f, &e, "", waitingFor("fsync", "disk", "bolt", "umount"))
	for _, slow := range d.Slow[:min(len(d.Slow), 2)] {
		Addf(&e.For, "%s", DiskLine(slow))
		subjects = append(subjects, checks.Subject{Kind: "Disk", Name: slow.Name})
	}
	for _, w := range writers {
		Addf(&e.For, "%s writes %s/s", writer(w), facts.Rate(w.BytesPerSecond))
		subjects = append(subjects, processSubject(f, w.PID, w.Name, w.PodUID))
	}
	if len(subjects) == 0 {
		subjects = append(subjects, ofNode("disks"))
	}
	step = raised(step, len(holds) > 0)
	return newFinding(severity, step, summary, e, subjects...).advise(func(s *Steps, _ string) { adviseIOStall(f, s) })
}

// frozenDaemon returns the first task of the runtime or the kubelet that waits for the end of fsfreeze.
func frozenDaemon(f *facts.Facts) host.BlockedTask {
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if facts.WaitsForThaw(t) {
			return t
		}
	}
	return host.BlockedTask{}
}

// thawable returns the file systems of the runtime's folders that may be frozen, or of the kubelet's where it waits:
// systemd and kdiag itself would hang on the root.
func thawable(f *facts.Facts) []host.Space {
	kubelets := frozenDaemon(f).Role == host.RoleKubelet
	return slices.DeleteFunc(slices.Clone(f.Seen.Spaces.Value), func(s host.Space) bool {
		ofKubelet := slices.ContainsFunc(s.Folders, func(o host.Folder) bool {
			return o.Role == host.FolderKubelet || o.Role == host.FolderLogs
		})
		return s.Mount == "/" || s.Type == "tmpfs" || !facts.SafePath.MatchString(s.Mount) || kubelets && !ofKubelet
	})
}

func adviseIOStall(f *facts.Facts, s *Steps) {
	hung := func(l facts.WriteLatency) bool { return l.Writes.Hung }
	disks := facts.FrozenDisks(frozenDaemon(f))
	s.thaw(disks)
	if f.Disk.Frozen {
		s.lookBlocked()
	}
	if f.Disk.Frozen && len(disks) == 0 || slices.ContainsFunc(f.Disk.Writes, hung) {
		for _, space := range thawable(f) {
			s.Add(checks.TouchesMount, "fsfreeze -u "+space.Mount, "Thaw the file system; it helps only if it is frozen")
		}
	}
	if f.Disk.Frozen {
		return
	}
	s.Look("grep . /proc/pressure/io; iostat -x 1 5", "Check if the pressure continues: w_await and f_await, not %util.")
	s.Look("journalctl --no-pager -k --since -1h | grep -iE 'I/O error|read-only|blocked for|reset controller'",
		"Check if the disk fails or is only slow.")
	s.lookBlocked()
	if len(f.Disk.Failing) > 0 {
		s.Look("grep -E ' ro[, ]' /proc/mounts", "List what is read-only; the kernel remounts so after errors.")
		tmpfs := 0
		for _, r := range f.Disk.ReadOnly {
			if r.Type == "tmpfs" && facts.SafePath.MatchString(r.Mount) {
				tmpfs++ // it has no disk that could be damaged
				s.Add(checks.TouchesMount, "mount -o remount,rw "+r.Mount,
					"Makes this tmpfs writable again; it has no disk that could be damaged.")
			}
		}
		s.addNodeIf(len(f.Disk.Failing) > tmpfs,
			"Reboot once the data is safe; replace the disk if it fails again.")
		return
	}
	for _, w := range f.Disk.Throttled {
		s.lookIf(safeDir(w.Dir), textf("grep -s . '%s'/io.max '%[1]s'/blkio.throttle.write*", w.Dir),
			"Show the limit.")
		if unit := unitOfGroup(w.Path); facts.Safe(unit) {
			s.Add(checks.TouchesLimit,
				"systemctl set-property --runtime "+unit+" IOWriteIOPSMax= IOWriteBandwidthMax=", untilBoot)
		}
	}
	for _, w := range f.Disk.Writers {
		if w.PID > 1 {
			s.Look(textf("cat /proc/%d/io /proc/%[1]d/cgroup", w.PID), "Check what it writes, and for whom.")
			addDeletePod(f, s, podOf(f, w.PodUID), "Stops the heaviest writer, if its work can wait.")
		}
	}
	s.cordon()
}

// limitLine is the sentence about a limit of writes.
func limitLine(f *facts.Facts, w host.WriteLimit) string {
	disk := cmp.Or(facts.Clean(w.Disk), "device "+facts.Clean(w.Device))
	for _, d := range f.Seen.Disks.Value {
		if d.Name == w.Disk && len(d.Folders) > 0 {
			disk += " (" + facts.FoldersLine(d.Folders) + ")"
		}
	}
	rate := units.Size(w.Bytes) + "/s"
	if w.IOPS > 0 {
		rate = units.Count(int(min(w.IOPS, 1<<31)), "write") + "/s"
	}
	return textf("the %s is throttled by its control group %s: %s to %s", w.Role, facts.Clean(w.Path), rate, disk)
}

// stallEvidence adds the evidence for and against a stalled disk besides the writes.
func stallEvidence(f *facts.Facts, e *checks.Evidence) {
	switch io := f.Seen.Pressure.Value.IO; {
	case io == nil:
		missing(f.Seen.Pressure, e, "pressure of disks (/proc/pressure/io)")
	case io.Full.Avg10 >= f.Limits.Node.IOFull:
		Addf(&e.For, "all tasks waited for disks in %s (PSI io full)", pressureText(io.Full))
	case io.Some.Avg10 < 1 && len(f.Disk.Failing) == 0:
		Addf(&e.Against, "almost nothing waits for a disk: %s (PSI io some)", pressureText(io.Some))
	}
	logEvidence(f, e, signature.BlockIOError, signature.FilesystemError, signature.NameReserved)
	missing(f.Seen.Writes, e, "timed writes into the runtime's folder")
	missing(f.Seen.Disks, e, "time of requests by disk (/proc/diskstats)")
}

// quickWrites reports whether writes were timed, all came back, and none was slow.
func quickWrites(f *facts.Facts) bool {
	all := f.Disk.Writes
	return len(all) > 0 && !slices.ContainsFunc(all, func(l facts.WriteLatency) bool {
		_, slow := l.Severity(f.Limits.Node)
		return slow || len(l.Writes.Times) == 0
	})
}

// DiskLine is the sentence about a disk.
func DiskLine(d host.Disk) string {
	return textf("%s: mean read %s, mean write %s, busy %s of %s, %s in flight, %s/s written, %s/s read",
		facts.Clean(d.Name), d.ReadAwait, d.WriteAwait, units.Percent(min(d.Utilisation, 1)), d.Over,
		units.Count(d.InFlight, "request"), facts.Rate(d.WriteBytesPerSecond), facts.Rate(d.ReadBytesPerSecond)) +
		after("; folders on it: ", facts.FoldersLine(d.Folders))
}
