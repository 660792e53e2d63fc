package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// hostResourceChecks are the checks of memory, CPU, disks and mounts.
func hostResourceChecks() []Check {
	return []Check{
		{
			ID:    "host.pressure",
			Title: "nothing waits long for CPU, memory or disks",
			Text: "Reads /proc/pressure (PSI): the share of the last ten seconds in which tasks waited. io full from 20, memory full from 5 and cpu some from 60 are worth a look; by themselves they " +
				"are no cause, since an idle node with one busy process has them as well. Needs a kernel with PSI.",
			read: reading(func(n *facts.Node) facts.Reading[host.Pressure] { return n.Pressure }, judgePressure),
		},
		{
			ID:    "host.memory",
			Title: "memory is available",
			Text:  "Reads MemAvailable of /proc/meminfo against a tenth of all, or 4 GiB if that is less, and against the kubelet's memory.available (100Mi unless set). The kubelet counts by its root control group, which differs by what can be reclaimed.",
			read:  reading(func(n *facts.Node) facts.Reading[host.Memory] { return n.Memory }, judgeMemory),
		},
		{
			ID:    "host.space",
			Title: "file systems of runtime, kubelet and logs have space",
			Text: "Asks each of them (statfs) how much is free, against the kubelet's eviction thresholds (nodefs 10 %, imagefs 15 % unless set). Less than 1 % and less than 1 GiB is full. One that does not answer, or is read-only " +
				"under the runtime or the kubelet, is critical.",
			read: reading(func(n *facts.Node) facts.Reading[[]host.Space] { return n.Spaces }, judgeSpace),
		},
		{
			ID:    "host.inodes",
			Title: "file systems of runtime, kubelet and logs have inodes",
			Text:  "As host.space, for the number of files that can still be made (5 % is the kubelet's threshold). A file system without a fixed number has enough.",
			read:  reading(func(n *facts.Node) facts.Reading[[]host.Space] { return n.Spaces }, judgeInodes),
		},
		{
			ID:    "host.writes",
			Title: "a small write reaches the runtime's disk quickly",
			Text: "Times writes of 4 KiB with fsync into a file without a name in the runtime's folder, in a child process. That is what each change of the runtime's database waits for: 1 to 10 ms on a healthy disk; a median of " +
				"100 ms is a warning, of one second critical.",
			read: reading(func(n *facts.Node) facts.Reading[[]host.Writes] { return n.Writes }, judgeWrites),
		},
		{
			ID:    "host.disks",
			Title: "requests to the disks are answered quickly",
			Text: "Looks at /proc/diskstats twice: the mean time of a request, how busy each disk is and what is in flight. A disk of the node's whose requests take 100 ms is a warning. One that is busy all the time and answers " +
				"quickly is well: modern disks work in parallel.",
			read: reading(func(n *facts.Node) facts.Reading[[]host.Disk] { return n.Disks }, judgeDisks),
		},
		{
			ID:    "host.mounts",
			Title: "every mount answers, and there are not too many",
			Text: "Counts the host's mounts, and asks those below the kubelet's folder and all that come over the network or from a FUSE process for an answer, each in a child process that can be left behind. " +
				"One that hangs takes with it whoever touches it.",
			read: reading(func(n *facts.Node) facts.Reading[host.MountTable] { return n.Mounts }, judgeMounts),
		},
	}
}

func judgePressure(f *facts.Facts, p host.Pressure) checks.Result {
	l := f.Limits.Node
	var lines []string
	status := checks.StatusOK
	add := func(what string, value, limit float64) {
		lines = append(lines, fmt.Sprintf("%s %.0f%%", what, value))
		if value >= limit {
			status = checks.StatusWarning
		}
	}
	if p.CPU != nil {
		add("cpu some", p.CPU.Some.Avg10, l.CPUSome)
	}
	if p.Memory != nil {
		add("memory full", p.Memory.Full.Avg10, l.MemoryFull)
	}
	if p.IO != nil {
		add("io full", p.IO.Full.Avg10, l.IOFull)
	}
	if len(lines) == 0 {
		return result(checks.StatusSkipped, "this kernel does not account for pressure (PSI)")
	}
	return result(status, "of the last 10 s: %s", strings.Join(lines, ", "))
}

func judgeMemory(f *facts.Facts, m host.Memory) checks.Result {
	if m.Total == 0 {
		return result(checks.StatusUnknown, "/proc/meminfo does not say how much there is")
	}
	line := units.Size(m.Available) + " of " + units.Size(m.Total) + " available"
	if m.SwapTotal > 0 {
		line += ", " + units.Size(m.SwapTotal-min(m.SwapFree, m.SwapTotal)) + " of " + units.Size(m.SwapTotal) + " swap used"
	}
	if f.Pressure.MemoryLow {
		return result(checks.StatusWarning, "%s", line)
	}
	return result(checks.StatusOK, "%s", line)
}

func judgeSpace(_ *facts.Facts, all []host.Space) checks.Result  { return judgeSpaces(all, false) }
func judgeInodes(_ *facts.Facts, all []host.Space) checks.Result { return judgeSpaces(all, true) }

// judgeSpaces is ok only when each file system that matters has answered.
func judgeSpaces(spaces []host.Space, inodes bool) checks.Result {
	least, tight, counted := 1.0, host.Space{}, 0
	for _, s := range spaces {
		if s.Err != "" || s.Hung {
			return result(checks.StatusUnknown, "the file system of %s was not read: %s", facts.Shortage{Space: s}.Name(), cmp.Or(facts.Clean(s.Err), "it did not answer"))
		}
		left, total := facts.Share(s.Free, s.Size), s.Size
		if inodes {
			left, total = facts.Share(s.InodesFree, s.Inodes), s.Inodes
		}
		if s.ReadOnly || total == 0 {
			continue
		}
		if counted++; left <= least {
			least, tight = left, s
		}
	}
	switch {
	case counted > 0:
		return result(checks.StatusOK, "%s, the least is %s free on %s", units.Plural(counted, "1 file system", units.Number(counted)+" file systems"), units.Percent(least), facts.Clean(tight.Mount))
	case inodes && len(spaces) > 0:
		return result(checks.StatusSkipped, "no file system that can be written has a fixed number of inodes")
	}
	return result(checks.StatusUnknown, "none of %s brought figures", units.Count(len(spaces), "file system"))
}

func judgeWrites(f *facts.Facts, _ []host.Writes) checks.Result {
	all := f.Disk.Writes
	if len(all) == 0 {
		return result(checks.StatusUnknown, "no write was timed")
	}
	if i := slices.IndexFunc(all, func(l facts.WriteLatency) bool { return l.Writes.Err != "" }); i >= 0 {
		return result(checks.StatusUnknown, "%s", all[i].Line())
	}
	return result(checks.StatusOK, "%s", all[0].Line())
}

func judgeDisks(f *facts.Facts, disks []host.Disk) checks.Result {
	if len(disks) == 0 {
		return result(checks.StatusUnknown, "no disk was seen")
	}
	if slow := f.Disk.Slow; len(slow) > 0 {
		status := checks.StatusOK
		if facts.Needed(slow[0].Folders) {
			status = checks.StatusWarning
		}
		return result(status, "%s", facts.DiskLine(slow[0]))
	}
	slowest := disks[0]
	for _, d := range disks {
		if facts.Await(d) > facts.Await(slowest) {
			slowest = d
		}
	}
	return result(checks.StatusOK, "%s, the slowest is %s with %s for a request", units.Count(len(disks), "disk"), facts.Clean(slowest.Name), units.Duration(facts.Await(slowest)))
}

func judgeMounts(_ *facts.Facts, t host.MountTable) checks.Result {
	switch {
	case t.Total == 0:
		return result(checks.StatusUnknown, "no mount was seen")
	case t.Left > 0:
		return result(checks.StatusUnknown, "%s of %s not asked, the others answered", units.Number(t.Left), units.Count(t.Total, "mount"))
	}
	if len(t.Probed) == 0 {
		return result(checks.StatusOK, "%s, none of a pod or over the network", units.Count(t.Total, "mount"))
	}
	return result(checks.StatusOK, "%s, %s asked and answered", units.Count(t.Total, "mount"), units.Number(len(t.Probed)))
}
