package facts

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
)

// deriveUsage works out which limits and counts are near their end.
func deriveUsage(f *Facts) {
	u, n, l := &f.Usage, f.Seen, f.Limits.Node
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

// derivePressure works out the state of memory and CPU.
func derivePressure(f *Facts) {
	p, l := &f.Pressure, f.Limits.Node
	if cpu := f.Seen.Pressure.Value.CPU; cpu != nil {
		p.Crowded = cpu.Some.Avg10 >= l.CPUSome && cpu.Some.Avg60 >= l.CPUSome
	}
	p.Starved = starved(f)
	m := f.Seen.Memory.Value
	least, _ := EvictionBelow(f, "memory.available", m.Total)
	evicting := m.Total > 0 && m.Available < least
	p.MemoryLow = evicting ||
		m.Total > 0 && Share(m.Available, m.Total) < l.MemoryLow && m.Available < l.MemoryLowBytes
	full := 0.0
	if stall := f.Seen.Pressure.Value.Memory; stall != nil {
		full = lasting(stall.Full)
	}
	low := m.Total == 0 || p.MemoryLow // without meminfo pressure must do
	switch {
	case low && full >= l.MemoryFullCritical, evicting && full >= l.MemoryFull:
		p.MemorySeverity = checks.Critical
	case low && full >= l.MemoryFull, full >= l.MemoryFullCritical, evicting:
		p.MemorySeverity = checks.Warning
	}
	p.Throttled = filter(f.Seen.Cgroups.Value.Throttled, func(t host.Throttling) bool {
		return isNodes(f, t.Owner) && t.Periods >= l.ThrottledPeriods && ThrottledShare(t) >= l.Throttled
	})
	if own := f.OwnQuota; own != nil && own.Periods >= l.ThrottledPeriods && ThrottledShare(*own) >= l.ThrottledCritical {
		if p.Own = own; own.Path == SystemSlice && !f.NoSystemd { // the daemons' own units are in it
			p.Own = nil
			p.Throttled = append(filter(p.Throttled, func(t host.Throttling) bool { return t.Path != own.Path }), *own)
		}
	}
	slices.SortStableFunc(p.Throttled,
		func(a, b host.Throttling) int { return cmp.Compare(ThrottledShare(b), ThrottledShare(a)) })
	p.Squeezed = filter(f.Seen.Starvation.Value.MemoryLimits, func(m host.MemoryLimit) bool {
		limit, _ := MemoryLimit(m)
		return isNodes(f, m.Owner) && limit > 0 && Share(m.Current, limit) >= l.LimitCritical &&
			lasting(m.Full) >= l.MemoryFull
	})
	slices.SortStableFunc(p.Squeezed,
		func(a, b host.MemoryLimit) int { return cmp.Compare(b.Full.Avg10, a.Full.Avg10) })
}

// SystemSlice is the control group in which systemd has the services of the node.
const SystemSlice = "/system.slice"

// lasting is a pressure without its spikes: one of a second is none.
func lasting(a host.Averages) float64 { return min(a.Avg10, max(a.Avg60, a.Avg10/2)) }

// isNodes reports whether a control group of a daemon, or one above it, belongs to the node: to no pod, and to no other
// runtime.
func isNodes(f *Facts, o host.Owner) bool {
	unit := f.Target.RuntimeUnit
	other := o.Role == host.RoleRuntime && unit != nil && o.Unit != "" && o.Unit != unit.Name
	return o.PodUID == "" && !other
}

// MemoryLimit is the lower one of the limits of memory of a control group, in bytes, and its file; 0 for none.
func MemoryLimit(m host.MemoryLimit) (limit uint64, file string) {
	if m.High > 0 && (m.Max == 0 || m.High < m.Max) {
		return m.High, "memory.high"
	}
	return m.Max, "memory.max"
}

// IsSqueezed reports whether a process waits for memory at the limit of its control group.
func IsSqueezed(f *Facts, pid int) bool {
	return pid > 0 && slices.ContainsFunc(f.Pressure.Squeezed,
		func(m host.MemoryLimit) bool { return slices.Contains(m.Daemons, pid) })
}

// starved returns the daemons whose threads waited for a CPU for half of the time at least, and for three times as long
// as they ran: a busy node makes threads wait as well, but not those that run now and then.
func starved(f *Facts) []host.Delay {
	return filter(f.Seen.Starvation.Value.Delays, func(d host.Delay) bool {
		lost := LostTime(d)
		return (d.Role == host.RoleKubelet || d.PID == f.Target.Daemon.PID) && d.Over > 0 && lost >= d.Over/2 &&
			lost >= 3*d.Ran
	})
}

// LostTime is the time that the threads of a daemon waited for a CPU, those included that still wait.
func LostTime(d host.Delay) time.Duration { return d.Waited + time.Duration(d.Queued)*d.Over }

// ThrottledShare is the share of the CPU controller's periods in which a group was kept from running.
func ThrottledShare(t host.Throttling) float64 { return Share(min(t.Throttled, t.Periods), t.Periods) }
