package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// muchWritten is the rate from which a process is worth naming: an SSD takes a hundred times as much, a throttled
// disk a few times.
const muchWritten = 1 << 20 // bytes a second

// A control group that may write no more than this holds a runtime up. A pod start takes dozens of commits of two
// fsyncs each: with 100 writes a second that is a second and more. An image layer of 60 MB takes a minute at 1 MiB/s.
const (
	fewWrites = 100     // a second
	fewBytes  = 1 << 20 // a second
	// With a tenth of that no pod starts within the minutes that the kubelet waits.
	hardlyAny = 10
)

// WritesStand reports whether the runtime or the kubelet may write so little that no pod starts.
func WritesStand(w host.WriteLimit) bool {
	return w.IOPS > 0 && w.IOPS <= fewWrites/hardlyAny || w.Bytes > 0 && w.Bytes <= fewBytes/hardlyAny
}

// deriveDisk works out the state of disks, file systems and mounts.
func deriveDisk(f *Facts) {
	d := &f.Disk
	d.DeadMounts = deadMounts(f)
	d.SilentMounts = silentMounts(f)
	d.Short, d.ShortInodes = shortages(f, false), shortages(f, true)
	d.Writes = latencies(f)
	for _, s := range f.Seen.Spaces.Value { // the kernel remounts one after an error
		if s.ReadOnly && hold(s.Folders, host.FolderRuntime, host.FolderState, host.FolderKubelet) {
			d.ReadOnly = append(d.ReadOnly, s)
			d.Failing = append(d.Failing,
				fmt.Sprintf("the file system of %s is mounted read-only: nothing can be written",
					Shortage{Space: s}.Name()))
		}
	}
	for _, l := range d.Writes {
		if l.refused() {
			d.Failing = append(d.Failing, l.Line())
		}
	}
	d.Throttled = filter(f.Seen.Starvation.Value.WriteLimits, func(w host.WriteLimit) bool {
		return (w.Role == host.RoleKubelet || w.PID == f.Target.Daemon.PID) &&
			(w.IOPS > 0 && w.IOPS <= fewWrites || w.Bytes > 0 && w.Bytes <= fewBytes)
	})
	d.Slow = filter(f.Seen.Disks.Value, func(k host.Disk) bool { return Await(k) >= f.Limits.Node.SlowDisk })
	slices.SortStableFunc(d.Slow, func(a, b host.Disk) int {
		return cmp.Or(first(Needed(a.Folders), Needed(b.Folders)), cmp.Compare(Await(b), Await(a)))
	})
	d.Writers = filter(f.Seen.Writers.Value, func(w host.Writer) bool { return w.BytesPerSecond >= muchWritten })
	slices.SortStableFunc(d.Writers,
		func(a, b host.Writer) int { return cmp.Compare(b.BytesPerSecond, a.BytesPerSecond) })
	d.Writers = d.Writers[:min(len(d.Writers), MostNamed)]
}

// A WriteLatency is what timed writes in one folder took.
type WriteLatency struct {
	Writes      host.Writes
	median, max time.Duration
}

// latencies returns the timed writes that were made, the slowest folder first.
func latencies(f *Facts) []WriteLatency {
	var out []WriteLatency
	for _, w := range f.Seen.Writes.Value {
		l := WriteLatency{Writes: w}
		if times := slices.Sorted(slices.Values(w.Times)); len(times) > 0 {
			l.median, l.max = times[len(times)/2], times[len(times)-1]
		}
		if len(w.Times) > 0 || w.Hung || w.Err != "" {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b WriteLatency) int {
		return cmp.Or(first(a.Writes.Hung, b.Writes.Hung), cmp.Compare(b.median, a.median))
	})
	return out
}

// refused reports whether the disk or the file system takes no writes at all.
func (l WriteLatency) refused() bool {
	return Says(l.Writes.Err, "input/output error", "read-only file system")
}

// Line is the sentence about the writes.
func (l WriteLatency) Line() string {
	where, waiting := Clean(l.Writes.Folder.Path), units.Duration(l.Writes.Waiting)
	switch {
	case len(l.Writes.Times) == 0 && l.Writes.Hung:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s has not ended after %s", where, waiting)
	case len(l.Writes.Times) == 0:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s failed: %s", where, Clean(l.Writes.Err))
	}
	line := fmt.Sprintf("%s of 4 KiB with fsync into %s took %s (median)", units.Count(len(l.Writes.Times), "write"),
		where, units.Duration(l.median))
	if l.Writes.Hung {
		return line + ", and the next has not ended after " + waiting
	}
	return line + ", at most " + units.Duration(l.max)
}

// Severity ranks the writes; false when they are quick, or when they were refused for want of room, which is no stall.
func (l WriteLatency) Severity(limits checks.NodeLimits) (checks.Severity, bool) {
	switch {
	case l.Writes.Hung, l.refused(), l.median >= limits.SlowWriteCritical:
		return checks.Critical, true
	case l.median >= limits.SlowWrite, l.max >= limits.SlowestWrite:
		return checks.Warning, true
	}
	return "", false
}

// QuickWrites reports whether writes were timed, all came back, and none was slow.
func QuickWrites(f *Facts) bool {
	all := f.Disk.Writes
	return len(all) > 0 && !slices.ContainsFunc(all, func(l WriteLatency) bool {
		_, slow := l.Severity(f.Limits.Node)
		return slow || len(l.Writes.Times) == 0
	})
}

// Await is the mean time of a request, of reads or writes, whichever is longer.
func Await(d host.Disk) time.Duration { return max(d.ReadAwait, d.WriteAwait) }

// DiskLine is the sentence about a disk.
func DiskLine(d host.Disk) string {
	line := fmt.Sprintf("%s: mean read %s, mean write %s, busy %s of %s, %s in flight, %s/s written, %s/s read",
		Clean(d.Name), units.Duration(d.ReadAwait), units.Duration(d.WriteAwait),
		units.Percent(min(d.Utilisation, 1)), units.Duration(d.Over), units.Count(d.InFlight, "request"),
		Rate(d.WriteBytesPerSecond), Rate(d.ReadBytesPerSecond))
	if len(d.Folders) > 0 {
		line += "; folders on it: " + FoldersLine(d.Folders)
	}
	return line
}

// Rate writes bytes per second without the unit of time.
func Rate(bytes float64) string { return units.Size(uint64(min(max(bytes, 0), 1<<50))) }

// WriterLabel names a process that writes, and its owner.
func WriterLabel(f *Facts, w host.Writer) string {
	return fmt.Sprintf("%s (pid %d)", Clean(w.Name), w.PID) +
		OwnerSuffix(f, host.Owner{PodUID: w.PodUID, ObjectID: w.ObjectID})
}

// deadMounts returns the mounts that hang or have no server: hung ones first, then those of pods.
func deadMounts(f *Facts) []host.Mount {
	out := filter(f.Seen.Mounts.Value.Probed, func(m host.Mount) bool {
		return m.Hung ||
			Says(m.Err, "stale file handle", "stale nfs file handle", "transport endpoint is not connected",
				"host is down", "input/output error")
	})
	slices.SortStableFunc(out, func(a, b host.Mount) int {
		return cmp.Or(first(a.Hung, b.Hung), first(a.PodUID != "", b.PodUID != ""))
	})
	return out
}

// silentMounts returns the dead mounts, and the node's own folders on file systems that did not answer.
func silentMounts(f *Facts) []host.Mount {
	out := slices.Clone(f.Disk.DeadMounts)
	for _, s := range f.Seen.Spaces.Value {
		if !s.Hung || slices.ContainsFunc(out, func(m host.Mount) bool { return m.Point == s.Mount }) {
			continue
		}
		m := host.Mount{Point: s.Mount, Type: s.Type, Source: s.Source, Asked: true, Hung: true, Waiting: s.Waiting}
		if m.Point == "" && len(s.Folders) > 0 {
			m.Point = byRole(s.Folders)[0].Path
		}
		out = append(out, m)
	}
	return out
}
