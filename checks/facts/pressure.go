package facts

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
)

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
		full = min(stall.Full.Avg10, max(stall.Full.Avg60, stall.Full.Avg10/2)) // a spike of a second is none
	}
	low := m.Total == 0 || p.MemoryLow // without meminfo pressure must do
	switch {
	case low && full >= l.MemoryFullCritical, evicting && full >= l.MemoryFull:
		p.MemorySeverity, p.MemoryShort = checks.Critical, true
	case low && full >= l.MemoryFull, full >= l.MemoryFullCritical, evicting:
		p.MemorySeverity, p.MemoryShort = checks.Warning, true
	}
	unit := f.Target.RuntimeUnit
	p.Throttled = filter(f.Seen.Cgroups.Value.Throttled, func(t host.Throttling) bool {
		if t.Role == host.RoleRuntime && unit != nil && t.Unit != "" && t.Unit != unit.Name {
			return false // another runtime's
		}
		return t.PodUID == "" && t.Periods >= l.ThrottledPeriods && ThrottledShare(t) >= l.Throttled
	})
	slices.SortStableFunc(p.Throttled,
		func(a, b host.Throttling) int { return cmp.Compare(ThrottledShare(b), ThrottledShare(a)) })
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

// LostTime is for how long the threads of a daemon waited for a CPU, those too that wait still.
func LostTime(d host.Delay) time.Duration { return d.Waited + time.Duration(d.Queued)*d.Over }

// ThrottledShare is the share of the CPU controller's periods in which a group was kept from running.
func ThrottledShare(t host.Throttling) float64 { return Share(min(t.Throttled, t.Periods), t.Periods) }

// deriveSystemd works out how systemd behaves.
func deriveSystemd(f *Facts) {
	look, l := f.Seen.Systemd, f.Limits.Node
	s := look.Value
	f.Systemd = Systemd{
		BusSilent: s.Answered && s.BusHung && !s.BusAnswered,
		Driver:    cmp.Or(f.Seen.RuntimeDriver.Value, f.Seen.Settings.Value.CgroupDriver),
		JobsWait:  s.Jobs >= l.WaitingJobs && s.State != "starting" && s.State != "initializing",
		Silent:    !s.Answered && (s.Hung || look.Hung && !look.OK),
		Slow:      s.Answered && s.Took >= l.SlowSystemd,
		UnitsLeak: s.Inactive >= l.LeakedUnits,
	}
}
