package facts

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
)

// deriveUsage works out which limits and counts are near their end.
func deriveUsage(f *Facts) {
	u, n, l := &f.Usage, f.Seen, f.Limits.Node
	u.CgroupIDs = n.Cgroups.Value.Total
	if n.Cgroups.Value.Version == 1 {
		u.CgroupIDs = n.Cgroups.Value.ByController["memory"] // dying ones too
	}
	u.ClockJump = n.Clock.Value.Jumped
	u.ClockJumped = u.ClockJump.Abs() >= l.ClockJump
	u.Files = filter(n.Files.Value.Processes, func(p host.ProcessFiles) bool { return Used(p.Usage) >= l.LimitWarning })
	slices.SortStableFunc(u.Files,
		func(a, b host.ProcessFiles) int { return cmp.Compare(Used(b.Usage), Used(a.Usage)) })
	i := n.Inotify.Value
	u.InotifyInstances.Max, u.InotifyWatches.Max = i.MaxInstances, i.MaxWatches
	if at := slices.IndexFunc(i.Users, func(u host.InotifyUser) bool { return u.UID == 0 }); at >= 0 {
		u.InotifyInstances.Current = uint64(max(i.Users[at].Instances, 0))
		u.InotifyWatches.Current = uint64(max(i.Users[at].Watches, 0))
	}
	u.PIDs = pidLimits(f)
}

// A PIDLimit is a limit on processes and threads that is nearly used up.
type PIDLimit struct {
	Line  string
	Share float64
	There uint64 // processes and threads that count for it
	Pod   bool   // of one pod
	Group host.CgroupUsage
}

// pidLimits returns the limits that are nearly used up, those of the node and its daemons first.
func pidLimits(f *Facts) []PIDLimit {
	var out []PIDLimit
	add := func(what string, u host.Usage, g host.CgroupUsage) {
		if share := Used(u); share >= f.Limits.Node.LimitWarning {
			out = append(out,
				PIDLimit{what + ": " + UsageText(u), share, u.Current, g.PodUID != "" || g.ObjectID != "", g})
		}
	}
	p := f.Seen.PIDs.Value
	threads := uint64(max(p.Tasks, 0))
	add("threads are near kernel.pid_max", host.Usage{Current: threads, Max: p.PIDMax}, host.CgroupUsage{})
	add("threads are near kernel.threads-max", host.Usage{Current: threads, Max: p.ThreadsMax},
		host.CgroupUsage{})
	for _, g := range p.Cgroups {
		add("processes and threads"+cmp.Or(OwnerSuffix(f, g.Owner), " in "+Clean(g.Path))+
			" are near the limit of their control group", g.Usage, g)
	}
	slices.SortStableFunc(out, func(a, b PIDLimit) int {
		return cmp.Or(first(!a.Pod, !b.Pod), cmp.Compare(b.Share, a.Share))
	})
	return out
}
