package facts

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
)

// cgroupIDs is how many ids of memory control groups are taken, as far as can be known.
func cgroupIDs(f *Facts) int {
	c := f.Seen.Cgroups.Value
	if c.Version == 1 {
		return c.ByController["memory"] // dying ones too
	}
	return c.Total
}

// jumped is by how much the wall clock left the monotonic one while kdiag looked, when that is worth a word.
func jumped(f *Facts) (time.Duration, bool) {
	by := f.Seen.Clock.Value.Jumped
	return by, by.Abs() >= f.Limits.Node.ClockJump
}

// fileHoarders returns the processes that are near their limit of open files, the nearest first.
func fileHoarders(f *Facts) []host.ProcessFiles {
	var out []host.ProcessFiles
	for _, p := range f.Seen.Files.Value.Processes {
		if Used(p.Usage) >= f.Limits.Node.LimitWarning {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b host.ProcessFiles) int { return cmp.Compare(Used(b.Usage), Used(a.Usage)) })
	return out
}

// inotifyOfRoot is what root's processes hold of the two limits.
func inotifyOfRoot(f *Facts) (host.Usage, host.Usage) {
	n := f.Seen.Inotify.Value
	for _, u := range n.Users {
		if u.UID == 0 {
			return host.Usage{Current: uint64(max(u.Instances, 0)), Max: n.MaxInstances}, host.Usage{Current: uint64(max(u.Watches, 0)), Max: n.MaxWatches}
		}
	}
	return host.Usage{Max: n.MaxInstances}, host.Usage{Max: n.MaxWatches}
}

// A pidLimit is a limit on processes and threads that is nearly used up.
type PIDLimit struct {
	name  string
	Line  string
	Share float64
	There uint64 // processes and threads that count for it
	Pod   bool   // of one pod
	Group host.CgroupUsage
}

// pidLimits returns the limits that are nearly used up, those of the node and its daemons first.
func pidLimits(f *Facts) []PIDLimit {
	var out []PIDLimit
	add := func(p PIDLimit, u host.Usage) {
		if p.Share = Used(u); p.Share >= f.Limits.Node.LimitWarning {
			p.Line, p.There = p.name+": "+UsageText(u), u.Current
			out = append(out, p)
		}
	}
	p := f.Seen.PIDs.Value
	threads := uint64(max(p.Tasks, 0))
	add(PIDLimit{name: "threads of the node are near kernel.pid_max"}, host.Usage{Current: threads, Max: p.PIDMax})
	add(PIDLimit{name: "threads of the node are near kernel.threads-max"}, host.Usage{Current: threads, Max: p.ThreadsMax})
	for _, g := range p.Cgroups {
		name := "processes and threads" + cmp.Or(OwnerSuffix(f, g.Owner), " in "+Clean(g.Path)) + " are near the limit of their control group"
		add(PIDLimit{name: name, Pod: g.PodUID != "" || g.ObjectID != "", Group: g}, g.Usage)
	}
	slices.SortStableFunc(out, func(a, b PIDLimit) int {
		if a.Pod != b.Pod {
			if b.Pod {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Share, a.Share)
	})
	return out
}
