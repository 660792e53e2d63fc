package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

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
	d.Frozen = slices.ContainsFunc(f.Seen.Tasks.Value.Blocked, WaitsForThaw)
	for _, s := range f.Seen.Spaces.Value { // the kernel remounts one after an error
		if s.ReadOnly && hold(s.Folders, host.FolderRuntime, host.FolderState, host.FolderKubelet) {
			d.ReadOnly = append(d.ReadOnly, s)
			d.Failing = append(d.Failing,
				fmt.Sprintf("the file system of %s is mounted read-only: nothing can be written",
					Shortage{Space: s}.Name()))
		}
	}
	for _, disk := range shutDown(f) {
		d.Failing = append(d.Failing, fmt.Sprintf("the kernel shut down the file system of %s (%s): nothing can be written",
			Clean(disk.Folders[0].Path), Clean(disk.Name)))
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

// A WriteLatency is the duration of timed writes in one folder.
type WriteLatency struct {
	Writes      host.Writes
	median, max time.Duration
}

// latencies returns the timed writes that were made, the slowest folder first. One that did not end where the runtime
// waits for a listener of fanotify most likely waited there too, and shows nothing about the disk.
func latencies(f *Facts) []WriteLatency {
	var out []WriteLatency
	held := slices.ContainsFunc(f.Tasks.Intercepted,
		func(t host.BlockedTask) bool { return t.Role == host.RoleRuntime })
	for _, w := range f.Seen.Writes.Value {
		w.Hung = w.Hung && !held
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

// Await is the mean time of a request, of reads or writes, whichever is longer.
func Await(d host.Disk) time.Duration { return max(d.ReadAwait, d.WriteAwait) }

// Rate writes bytes per second without the unit of time.
func Rate(bytes float64) string { return units.Size(uint64(min(max(bytes, 0), 1<<50))) }

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

// A Shortage is a file system that is short of space, or of inodes.
type Shortage struct {
	Space   host.Space
	Signal  string // the kubelet's eviction signal that it is below; empty for none
	Below   string // the threshold as the settings write it
	Default string // the kubelet's default, where what is left would be enough for that; else empty
	Full    bool   // next to nothing is left, or a write was refused
	Err     string // what a write got
	Written bool   // timed writes went through all the same
}

// Severity of a full file system that the node needs is critical: nothing can be started there. Below a threshold the
// kubelet evicts pods, which makes room or does not.
func (s Shortage) Severity() checks.Severity {
	if s.Full && Needed(s.Space.Folders) {
		return checks.Critical
	}
	return checks.Warning
}

// Name names the file system: /var/lib/containerd (/dev/sdb on /data).
func (s Shortage) Name() string {
	folder := s.Space.Mount
	if sorted := byRole(s.Space.Folders); len(sorted) > 0 {
		folder = sorted[0].Path
	}
	if s.Space.Source == "" || s.Space.Mount == "" {
		return Clean(folder)
	}
	return fmt.Sprintf("%s (%s on %s)", Clean(folder), Clean(s.Space.Source), Clean(s.Space.Mount))
}

// Left writes the space or inodes that are left.
func (s Shortage) Left(inodes bool) string {
	if inodes {
		return fmt.Sprintf("%s of %s inodes are free (%s)", units.Number(s.Space.InodesFree),
			units.Number(s.Space.Inodes), units.Percent(Share(s.Space.InodesFree, s.Space.Inodes)))
	}
	return fmt.Sprintf("%s of %s are free (%s)", units.Size(s.Space.Free), units.Size(s.Space.Size),
		units.Percent(Share(s.Space.Free, s.Space.Size)))
}

// Subject names the file system as a culprit.
func (s Shortage) Subject() checks.Subject {
	return checks.Subject{Kind: "Filesystem", ID: Clean(s.Space.Source), Name: Clean(cmp.Or(s.Space.Mount, s.Name()))}
}

// Folder is the folder to look below: that which the node needs most.
func (s Shortage) Folder() string {
	for _, f := range append(byRole(s.Space.Folders), host.Folder{Path: s.Space.Mount}) {
		if SafePath.MatchString(f.Path) {
			return f.Path
		}
	}
	return "/var"
}

// shortages returns the file systems that are short of space or of inodes, the full ones first. One that cannot be
// written is never called full: an image that is mounted read-only has nothing free by nature.
func shortages(f *Facts, inodes bool) []Shortage {
	var out []Shortage
	for _, s := range f.Seen.Spaces.Value {
		total, free := s.Size, s.Free
		if inodes {
			total, free = s.Inodes, s.InodesFree
		}
		if s.ReadOnly || s.Hung || s.Err != "" || total == 0 || free > total || inodes && lacksSpaceForInodes(f, s) {
			continue
		}
		short := Shortage{Space: s, Full: isFull(f, inodes, free, total)}
		short.Signal, short.Below = evictionOf(f, s, inodes, free, total)
		if part := defaultPart(f, short.Signal); short.Signal != "" && free >= uint64(part*float64(total)) {
			short.Default = units.Percent(part)
		}
		if short.Full || short.Signal != "" {
			out = append(out, short)
		}
	}
	out = noteWrites(f, out, inodes)
	slices.SortStableFunc(out, func(a, b Shortage) int {
		return cmp.Or(cmp.Compare(a.Severity(), b.Severity()), // critical comes before warning
			cmp.Compare(Share(a.Space.Free, a.Space.Size), Share(b.Space.Free, b.Space.Size)))
	})
	return out
}

// lacksSpaceForInodes reports whether a file system that makes its inodes out of free space (XFS) has none left of
// it: statfs shows few free inodes then, and what is short is space.
func lacksSpaceForInodes(f *Facts, s host.Space) bool {
	return s.Type == "xfs" && isFull(f, false, s.Free, s.Size)
}

// isFull reports whether next to nothing is left.
func isFull(f *Facts, inodes bool, free, total uint64) bool {
	l := f.Limits.Node
	least := l.FullBytes
	if inodes {
		least = l.FullInodes
	}
	return free < min(uint64(l.FullShare*float64(total)), least) || free == 0
}

// evictionOf returns the eviction signal of the kubelet that a file system is below, with its threshold. The kubelet
// watches no tmpfs, and without a kubelet there is no eviction. nodefs is the file system of --root-dir alone
// (RootFsInfo in pkg/kubelet/cadvisor), whatever else lies elsewhere.
func evictionOf(f *Facts, s host.Space, inodes bool, free, total uint64) (signal, threshold string) {
	if f.Seen.Settings.Skipped || s.Type == "tmpfs" {
		return "", ""
	}
	word := ".available"
	if inodes {
		word = ".inodesFree"
	}
	signals := map[string]string{host.FolderRuntime: "imagefs", host.FolderKubelet: "nodefs"}
	for _, folder := range byRole(s.Folders) {
		fs, watched := signals[folder.Role]
		if least, written := EvictionBelow(f, fs+word, total); watched && free < least {
			return fs + word, written
		}
	}
	return "", ""
}

// EvictionBelow returns the amount below which this kubelet evicts pods for a signal, and how it is written; 0 where
// that is turned off. Without its settings the kubelet's defaults stand.
func EvictionBelow(f *Facts, signal string, total uint64) (uint64, string) {
	l, settings := f.Limits.Node, f.Seen.Settings.Value
	if slices.Contains(settings.EvictionOff, signal) {
		return 0, ""
	}
	if len(settings.EvictionHard) > 0 {
		written := settings.EvictionHard[signal]
		return Amount(written, total), Clean(written)
	}
	if signal == "memory.available" {
		return l.MemoryAvailable, units.Size(l.MemoryAvailable)
	}
	part := defaultPart(f, signal)
	return uint64(part * float64(total)), units.Percent(part)
}

// defaultPart returns the share of a file system below which a kubelet evicts pods by its defaults.
func defaultPart(f *Facts, signal string) float64 {
	l := f.Limits.Node
	return map[string]float64{
		"nodefs.available": l.NodefsAvailable, "imagefs.available": l.ImagefsAvailable,
		"nodefs.inodesFree": l.NodefsInodes, "imagefs.inodesFree": l.ImagefsInodes,
	}[signal]
}

// Amount reads a threshold of the kubelet's settings as the kubelet does: a percentage of the total, or a quantity
// such as 100Mi; 0 when it is neither.
func Amount(written string, total uint64) uint64 {
	number, percent := strings.CutSuffix(written, "%")
	q, err := resource.ParseQuantity(number)
	n := q.AsApproximateFloat64()
	if percent {
		n *= float64(total) / 100
	}
	if err != nil || n < 0 || n > 1<<62 {
		return 0
	}
	return uint64(n)
}

// noteWrites notes what timed writes show of the file systems that are short. One that refuses a write though space
// and inodes are left lacks space: a quota, the blocks that are reserved for root, or btrfs's metadata.
func noteWrites(f *Facts, short []Shortage, inodes bool) []Shortage {
	for _, w := range f.Seen.Writes.Value {
		space := SpaceOf(f, w)
		i := slices.IndexFunc(short, func(s Shortage) bool { return s.Space.Mount == space.Mount })
		refused := Says(w.Err, "no space left on device", "disk quota exceeded")
		switch {
		case i >= 0 && refused:
			short[i].Full, short[i].Err = true, w.Err
		case i >= 0 && w.Err == "" && !w.Hung && len(w.Times) > 0:
			short[i].Written = true
		case refused && !inodes && (space.Inodes == 0 || !isFull(f, true, space.InodesFree, space.Inodes)):
			short = append(short, Shortage{Space: space, Full: true, Err: w.Err})
		}
	}
	return short
}

// SpaceOf returns the file system that was written to, as far as it is known.
func SpaceOf(f *Facts, w host.Writes) host.Space {
	for _, s := range f.Seen.Spaces.Value {
		if s.Mount == w.Mount && w.Mount != "" || slices.Contains(s.Folders, w.Folder) {
			return s
		}
	}
	return host.Space{Folders: []host.Folder{w.Folder}, Mount: w.Mount}
}
