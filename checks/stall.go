package checks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// A latency is what timed writes in one folder took.
type latency struct {
	writes      host.Writes
	median, max time.Duration
}

// latencies returns the timed writes that were made, the slowest folder first.
func (f *Facts) latencies() []latency {
	var out []latency
	for _, w := range f.seen().Writes.Value {
		if len(w.Times) == 0 && !w.Hung && w.Err == "" {
			continue
		}
		l := latency{writes: w}
		if len(w.Times) > 0 {
			sorted := slices.Sorted(slices.Values(w.Times))
			l.median, l.max = sorted[len(sorted)/2], sorted[len(sorted)-1]
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b latency) int {
		if a.writes.Hung != b.writes.Hung {
			if a.writes.Hung {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.median, a.median)
	})
	return out
}

// line says how the writes went.
func (l latency) line() string {
	where := clean(l.writes.Folder.Path)
	switch {
	case l.writes.Hung && len(l.writes.Times) == 0:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s has not ended after %s", where, units.Duration(l.writes.Waiting))
	case l.writes.Hung:
		return fmt.Sprintf("%s of 4 KiB with fsync into %s took %s (median), and the next has not ended after %s",
			units.Count(len(l.writes.Times), "write"), where, units.Duration(l.median), units.Duration(l.writes.Waiting))
	case len(l.writes.Times) == 0:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s failed: %s", where, clean(l.writes.Err))
	}
	return fmt.Sprintf("%s of 4 KiB with fsync into %s took %s (median), at most %s",
		units.Count(len(l.writes.Times), "write"), where, units.Duration(l.median), units.Duration(l.max))
}

// severity ranks the writes; false when they are quick, or when they were refused for want of room, which is no stall.
func (l latency) severity(limits NodeLimits) (Severity, bool) {
	switch {
	case l.writes.Hung, says(l.writes.Err, "input/output error", "read-only file system"):
		return Critical, true
	case l.median >= limits.SlowWriteCritical:
		return Critical, true
	case l.median >= limits.SlowWrite, l.max >= limits.SlowestWrite:
		return Warning, true
	}
	return "", false
}

// quickWrites reports whether writes were timed, all came back, and none was slow.
func (f *Facts) quickWrites() bool {
	all := f.latencies()
	return len(all) > 0 && !slices.ContainsFunc(all, func(l latency) bool {
		_, slow := l.severity(f.nodeLimits())
		return slow || len(l.writes.Times) == 0
	})
}

// readOnly returns the file systems of runtime, kubelet or logs that cannot be written: the kernel remounts one after an error. On
// a system whose root is an image, what the node needs lies elsewhere.
func (f *Facts) readOnly() []host.Space {
	var out []host.Space
	for _, s := range f.seen().Spaces.Value {
		if s.ReadOnly && hold(s.Folders, host.FolderRuntime, host.FolderState, host.FolderKubelet) {
			out = append(out, s)
		}
	}
	return out
}

// slowDisks returns the disks whose requests take long, those first that the node needs and the slowest first.
func (f *Facts) slowDisks() []host.Disk {
	var out []host.Disk
	for _, d := range f.seen().Disks.Value {
		if await(d) >= f.nodeLimits().SlowDisk {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Disk) int {
		if needed(a.Folders) != needed(b.Folders) {
			if needed(a.Folders) {
				return -1
			}
			return 1
		}
		return cmp.Compare(await(b), await(a))
	})
	return out
}

func await(d host.Disk) time.Duration { return max(d.ReadAwait, d.WriteAwait) }

// diskLine says what a disk does.
func diskLine(d host.Disk) string {
	line := fmt.Sprintf("%s: a read takes %s and a write %s in the mean, busy for %s of %s, %s in flight, %s/s written and %s/s read",
		clean(d.Name), units.Duration(d.ReadAwait), units.Duration(d.WriteAwait), units.Percent(min(d.Utilisation, 1)), units.Duration(d.Over), units.Count(d.InFlight, "request"),
		rate(d.WriteBytesPerSecond), rate(d.ReadBytesPerSecond))
	if len(d.Folders) > 0 {
		line += "; on it lie " + foldersLine(d.Folders)
	}
	return line
}

// rate writes bytes per second without the unit of time.
func rate(bytes float64) string { return units.Size(uint64(min(max(bytes, 0), 1<<50))) }

// muchWritten is the rate from which a process is worth naming: an SSD takes a hundred times as much, a throttled disk a few times.
const muchWritten = 1 << 20

// topWriters returns the processes that write most, at most three.
func (f *Facts) topWriters() []host.Writer {
	var out []host.Writer
	for _, w := range f.seen().Writers.Value {
		if w.BytesPerSecond >= muchWritten {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Writer) int { return cmp.Compare(b.BytesPerSecond, a.BytesPerSecond) })
	return out[:min(len(out), topHeaps)]
}

// writerLabel names a process that writes, and whose it is.
func (f *Facts) writerLabel(w host.Writer) string {
	return fmt.Sprintf("%s (pid %d)", clean(w.Name), w.PID) + f.of(host.Owner{PodUID: w.PodUID, ObjectID: w.ObjectID})
}
