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

// failing says which file systems take no writes: read-only, or with errors of the disk.
func failing(f *Facts) []string {
	var lines []string
	for _, s := range f.Disk.ReadOnly {
		lines = append(lines, fmt.Sprintf("the file system of %s cannot be written: it is mounted read-only", Shortage{Space: s}.Name()))
	}
	for _, l := range f.Disk.Writes {
		if Says(l.Writes.Err, "input/output error", "read-only file system") {
			lines = append(lines, l.Line())
		}
	}
	return lines
}

// A latency is what timed writes in one folder took.
type WriteLatency struct {
	Writes      host.Writes
	median, max time.Duration
}

// latencies returns the timed writes that were made, the slowest folder first.
func latencies(f *Facts) []WriteLatency {
	var out []WriteLatency
	for _, w := range f.Seen.Writes.Value {
		if len(w.Times) == 0 && !w.Hung && w.Err == "" {
			continue
		}
		l := WriteLatency{Writes: w}
		if len(w.Times) > 0 {
			sorted := slices.Sorted(slices.Values(w.Times))
			l.median, l.max = sorted[len(sorted)/2], sorted[len(sorted)-1]
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b WriteLatency) int {
		if a.Writes.Hung != b.Writes.Hung {
			if a.Writes.Hung {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.median, a.median)
	})
	return out
}

// Line says how the writes went.
func (l WriteLatency) Line() string {
	where := Clean(l.Writes.Folder.Path)
	switch {
	case l.Writes.Hung && len(l.Writes.Times) == 0:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s has not ended after %s", where, units.Duration(l.Writes.Waiting))
	case l.Writes.Hung:
		return fmt.Sprintf("%s of 4 KiB with fsync into %s took %s (median), and the next has not ended after %s",
			units.Count(len(l.Writes.Times), "write"), where, units.Duration(l.median), units.Duration(l.Writes.Waiting))
	case len(l.Writes.Times) == 0:
		return fmt.Sprintf("a write of 4 KiB with fsync into %s failed: %s", where, Clean(l.Writes.Err))
	}
	return fmt.Sprintf("%s of 4 KiB with fsync into %s took %s (median), at most %s",
		units.Count(len(l.Writes.Times), "write"), where, units.Duration(l.median), units.Duration(l.max))
}

// Severity ranks the writes; false when they are quick, or when they were refused for want of room, which is no stall.
func (l WriteLatency) Severity(limits checks.NodeLimits) (checks.Severity, bool) {
	switch {
	case l.Writes.Hung, Says(l.Writes.Err, "input/output error", "read-only file system"):
		return checks.Critical, true
	case l.median >= limits.SlowWriteCritical:
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

// readOnly returns the file systems of runtime, kubelet or logs that cannot be written: the kernel remounts one after an error. On
// a system whose root is an image, what the node needs lies elsewhere.
func readOnly(f *Facts) []host.Space {
	var out []host.Space
	for _, s := range f.Seen.Spaces.Value {
		if s.ReadOnly && hold(s.Folders, host.FolderRuntime, host.FolderState, host.FolderKubelet) {
			out = append(out, s)
		}
	}
	return out
}

// slowDisks returns the disks whose requests take long, those first that the node needs and the slowest first.
func slowDisks(f *Facts) []host.Disk {
	var out []host.Disk
	for _, d := range f.Seen.Disks.Value {
		if Await(d) >= f.Limits.Node.SlowDisk {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Disk) int {
		if Needed(a.Folders) != Needed(b.Folders) {
			if Needed(a.Folders) {
				return -1
			}
			return 1
		}
		return cmp.Compare(Await(b), Await(a))
	})
	return out
}

func Await(d host.Disk) time.Duration { return max(d.ReadAwait, d.WriteAwait) }

// DiskLine says what a disk does.
func DiskLine(d host.Disk) string {
	line := fmt.Sprintf("%s: a read takes %s and a write %s in the mean, busy for %s of %s, %s in flight, %s/s written and %s/s read",
		Clean(d.Name), units.Duration(d.ReadAwait), units.Duration(d.WriteAwait), units.Percent(min(d.Utilisation, 1)), units.Duration(d.Over), units.Count(d.InFlight, "request"),
		Rate(d.WriteBytesPerSecond), Rate(d.ReadBytesPerSecond))
	if len(d.Folders) > 0 {
		line += "; on it lie " + FoldersLine(d.Folders)
	}
	return line
}

// Rate writes bytes per second without the unit of time.
func Rate(bytes float64) string { return units.Size(uint64(min(max(bytes, 0), 1<<50))) }

// muchWritten is the rate from which a process is worth naming: an SSD takes a hundred times as much, a throttled disk a few times.
const muchWritten = 1 << 20

// topWriters returns the processes that write most, at most three.
func topWriters(f *Facts) []host.Writer {
	var out []host.Writer
	for _, w := range f.Seen.Writers.Value {
		if w.BytesPerSecond >= muchWritten {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Writer) int { return cmp.Compare(b.BytesPerSecond, a.BytesPerSecond) })
	return out[:min(len(out), MostNamed)]
}

// WriterLabel names a process that writes, and whose it is.
func WriterLabel(f *Facts, w host.Writer) string {
	return fmt.Sprintf("%s (pid %d)", Clean(w.Name), w.PID) + OwnerSuffix(f, host.Owner{PodUID: w.PodUID, ObjectID: w.ObjectID})
}
