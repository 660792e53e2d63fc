package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// A shortage is a file system that is short of space, or of inodes.
type shortage struct {
	space  host.Space
	signal string // the kubelet's eviction signal that it is below; empty for none
	below  string // the threshold as the settings write it
	full   bool   // nothing to speak of is left, or a write was refused
	err    string // what a write got
	// written says that timed writes went through all the same.
	written bool
}

// severity of a full file system that the node needs is critical: nothing can be started there. Below a threshold the kubelet
// evicts pods, which makes room or does not.
func (s shortage) severity() Severity {
	if s.full && needed(s.space.Folders) {
		return Critical
	}
	return Warning
}

// name says which file system it is: of /var/lib/containerd (/dev/sdb on /data).
func (s shortage) name() string {
	folder := s.space.Mount
	if sorted := byRole(s.space.Folders); len(sorted) > 0 {
		folder = sorted[0].Path
	}
	if s.space.Source == "" || s.space.Mount == "" {
		return clean(folder)
	}
	return fmt.Sprintf("%s (%s on %s)", clean(folder), clean(s.space.Source), clean(s.space.Mount))
}

// left says what is left of space or inodes.
func (s shortage) left(inodes bool) string {
	if inodes {
		return fmt.Sprintf("%s of %s inodes are free (%s)", units.Number(s.space.InodesFree), units.Number(s.space.Inodes), rest(s.space.InodesFree, s.space.Inodes))
	}
	return fmt.Sprintf("%s of %s are free (%s)", units.Size(s.space.Free), units.Size(s.space.Size), rest(s.space.Free, s.space.Size))
}

// rest writes which share is left, and none as none.
func rest(free, total uint64) string {
	if s := share(free, total); s == 0 || s >= 0.0005 {
		return units.Percent(s)
	}
	return "under 0.1 %"
}

// shortages returns the file systems that are short of space or of inodes, the full ones first. One that cannot be written
// is never called full: an image that is mounted read-only has nothing free by nature.
func (f *Facts) shortages(inodes bool) []shortage {
	var out []shortage
	for _, s := range f.seen().Spaces.Value {
		s.Folders = f.ofRuntime(s.Folders)
		total, free := s.Size, s.Free
		if inodes {
			total, free = s.Inodes, s.InodesFree
		}
		if s.ReadOnly || s.Hung || s.Err != "" || total == 0 || free > total || inodes && f.lacksSpaceForInodes(s) {
			continue
		}
		short := shortage{space: s, full: f.isFull(inodes, free, total)}
		short.signal, short.below = f.evictionOf(s, inodes, free, total)
		if short.full || short.signal != "" {
			out = append(out, short)
		}
	}
	out = f.addRefused(out, inodes)
	slices.SortStableFunc(out, func(a, b shortage) int {
		if a.severity() != b.severity() {
			return cmp.Compare(a.severity(), b.severity()) // critical comes before warning
		}
		return cmp.Compare(share(a.space.Free, a.space.Size), share(b.space.Free, b.space.Size))
	})
	return out
}

// ofRuntime leaves out the folders of other runtimes than the one that was asked: no kubelet watches that of docker's containerd beside its own.
func (f *Facts) ofRuntime(folders []host.Folder) []host.Folder {
	d := f.daemon()
	asked := func(o host.Folder) bool { return o.PID == d.PID }
	if d.PID == 0 || d.Guessed || !slices.ContainsFunc(f.seen().Folders.Value, asked) {
		return folders
	}
	return slices.DeleteFunc(slices.Clone(folders), func(o host.Folder) bool { return o.PID != 0 && !asked(o) })
}

// lacksSpaceForInodes reports whether a file system that makes its inodes out of free space (XFS) has none left of it: statfs
// shows few free inodes then, and what is short is space.
func (f *Facts) lacksSpaceForInodes(s host.Space) bool {
	return s.Type == "xfs" && f.isFull(false, s.Free, s.Size)
}

// isFull reports whether next to nothing is left.
func (f *Facts) isFull(inodes bool, free, total uint64) bool {
	l := f.nodeLimits()
	least := l.FullBytes
	if inodes {
		least = l.FullInodes
	}
	return free < min(uint64(l.FullShare*float64(total)), least) || free == 0
}

// evictionOf returns the eviction signal of the kubelet that a file system is below, with its threshold. A tmpfs is none of
// those that the kubelet watches, and where no kubelet runs nobody evicts.
func (f *Facts) evictionOf(s host.Space, inodes bool, free, total uint64) (string, string) {
	if f.seen().Settings.Skipped || s.Type == "tmpfs" || s.Type == "ramfs" {
		return "", ""
	}
	word := ".available"
	if inodes {
		word = ".inodesFree"
	}
	for _, folder := range byRole(s.Folders) {
		signal := "nodefs" + word
		switch folder.Role {
		case host.FolderRuntime:
			signal = "imagefs" + word
		case host.FolderKubelet:
		default: // nodefs is the file system of --root-dir alone (RootFsInfo in pkg/kubelet/cadvisor), whatever else lies elsewhere
			continue
		}
		if least, written := f.evictionBelow(signal, total); free < least {
			return signal, written
		}
	}
	return "", ""
}

// evictionBelow returns the amount below which this kubelet evicts pods for a signal, and how it is written; 0 where that is
// turned off. Without its settings the kubelet's defaults stand.
func (f *Facts) evictionBelow(signal string, total uint64) (uint64, string) {
	l, settings := f.nodeLimits(), f.seen().Settings.Value
	if slices.Contains(settings.EvictionOff, signal) {
		return 0, ""
	}
	if written, ok := settings.EvictionHard[signal]; ok || len(settings.EvictionHard) > 0 {
		return amount(written, total), clean(written)
	}
	part := map[string]float64{
		"nodefs.available": l.NodefsAvailable, "imagefs.available": l.ImagefsAvailable,
		"nodefs.inodesFree": l.NodefsInodes, "imagefs.inodesFree": l.ImagefsInodes,
	}[signal]
	if signal == "memory.available" {
		return l.MemoryAvailable, units.Size(l.MemoryAvailable)
	}
	return uint64(part * float64(total)), units.Percent(part)
}

// amount reads a threshold of the kubelet's settings: a percentage of the total, or a quantity such as 100Mi; 0 when it is
// neither.
func amount(written string, total uint64) uint64 {
	factor := 1.0
	s := strings.TrimSpace(written)
	for _, unit := range []struct {
		suffix string
		factor float64
	}{
		{"%", float64(total) / 100},
		{"Ki", 1 << 10},
		{"Mi", 1 << 20},
		{"Gi", 1 << 30},
		{"Ti", 1 << 40},
		{"Pi", 1 << 50},
		{"k", 1e3},
		{"M", 1e6},
		{"G", 1e9},
		{"T", 1e12},
		{"P", 1e15},
	} {
		if number, ok := strings.CutSuffix(s, unit.suffix); ok {
			s, factor = number, unit.factor
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n > 0) || n*factor > 1<<62 {
		return 0
	}
	return uint64(n * factor)
}

// addRefused adds the file systems on which a timed write found no room. Where the inodes are all used it is they that are
// missing, though the kernel has one word for both.
func (f *Facts) addRefused(short []shortage, inodes bool) []shortage {
	at := func(space host.Space) int {
		return slices.IndexFunc(short, func(s shortage) bool { return s.space.Mount == space.Mount })
	}
	for _, w := range f.seen().Writes.Value {
		space := f.spaceOf(w)
		if i := at(space); i >= 0 && w.Err == "" && !w.Hung && len(w.Times) > 0 {
			short[i].written = true
		}
		if !says(w.Err, "no space left on device", "disk quota exceeded") {
			continue
		}
		if inodes != (space.Inodes > 0 && f.isFull(true, space.InodesFree, space.Inodes) && !f.lacksSpaceForInodes(space)) {
			continue
		}
		if i := at(space); i >= 0 {
			short[i].full, short[i].err = true, w.Err
			continue
		}
		short = append(short, shortage{space: space, full: true, err: w.Err})
	}
	return short
}

// spaceOf returns the file system that was written to, as far as it is known.
func (f *Facts) spaceOf(w host.Writes) host.Space {
	for _, s := range f.seen().Spaces.Value {
		if s.Mount == w.Mount && w.Mount != "" || slices.Contains(s.Folders, w.Folder) {
			s.Folders = f.ofRuntime(s.Folders)
			return s
		}
	}
	return host.Space{Folders: f.ofRuntime([]host.Folder{w.Folder}), Mount: w.Mount}
}

// shortCause builds the cause for file systems that are short of something.
func (f *Facts) shortCause(code, noun string, inodes bool) *Cause {
	short := f.shortages(inodes)
	if len(short) == 0 {
		return nil
	}
	var e Evidence
	for _, s := range short[:min(len(short), maxRelated)] {
		s.addEvidence(&e, inodes)
	}
	f.seen().Settings.missing(&e, "the kubelet's eviction thresholds; its defaults are assumed")
	f.seen().Spaces.missing(&e, "space of every file system")
	main := short[0]
	step := Certain
	summary := fmt.Sprintf("the file system of %s is short of %s: %s", main.name(), noun, main.left(inodes))
	switch {
	case main.err != "":
		summary = fmt.Sprintf("a write to the file system of %s is refused: %s", main.name(), clean(main.err))
	case main.full:
		summary = fmt.Sprintf("the file system of %s has no %s left: %s", main.name(), noun, main.left(inodes))
	default:
		step = Strong
		summary += ", and the kubelet evicts pods below " + main.below
	}
	c := newCause(code, main.severity(), step, summary, e)
	c.Subject = new(main.subject())
	for _, s := range short[1:min(len(short), maxRelated+1)] {
		c.Related = append(c.Related, s.subject())
	}
	return c
}

func (s shortage) addEvidence(e *Evidence, inodes bool) {
	total := s.space.Size
	if inodes {
		total = s.space.Inodes
	}
	if total > 0 {
		addf(&e.For, "%s: %s", s.name(), s.left(inodes))
	}
	if s.err != "" {
		addf(&e.For, "a timed write of 4 KiB there got: %s", clean(s.err))
	} else if s.full && s.written && !inodes {
		addf(&e.Against, "timed writes there went through, from what is reserved for root perhaps (ext4 keeps 5 %%)")
	}
	if s.signal != "" {
		addf(&e.For, "below the kubelet's %s<%s: it says DiskPressure, evicts pods, and takes no new ones", s.signal, s.below)
	}
	if len(s.space.Folders) > 0 {
		addf(&e.For, "on it lie %s", foldersLine(s.space.Folders))
	}
}

func (s shortage) subject() Subject {
	return Subject{Kind: "Filesystem", ID: clean(s.space.Source), Name: clean(or(s.space.Mount, s.name()))}
}

// folder is the folder to look below: that which the node needs most.
func (s shortage) folder() string {
	for _, f := range byRole(s.space.Folders) {
		if safePath.MatchString(f.Path) {
			return f.Path
		}
	}
	if safePath.MatchString(s.space.Mount) {
		return s.space.Mount
	}
	return "/var"
}
