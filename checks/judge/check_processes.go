package judge

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func readProcesses(f *facts.Facts) checks.Result {
	switch {
	case f.Target.Simulated:
		return skipped("the runtime is simulated and has no processes")
	case f.HostMissing != "":
		return unknown("processes were not read: %s", facts.Clean(f.HostMissing))
	case len(f.Processes) == 0:
		return skipped("no process of a runtime was seen on this host")
	}
	out := ok("%s of the runtime, none stopped or stuck", units.Count(len(f.Processes), "process"))
	for _, p := range f.Processes {
		stopped, asleep, age := facts.IsStopped(&p), facts.IsUninterruptible(&p), facts.AgeOf(f, p)
		line := fmt.Sprintf("%s (%s): %s", facts.ProcessLabel(p), p.Role, facts.StateOf(p))
		switch {
		case p.Role == host.RoleRuntime && (stopped || asleep && p.Lasting):
			return critical("%s", line)
		case out.Status != checks.StatusOK:
		case stopped || asleep:
			out = warning("%s", line)
		case p.State != 'Z' && (p.Role == host.RoleOCI || p.Role == host.RoleCNI) && age >= facts.StuckWork:
			out = warning("%s (%s) has been running for %s", facts.ProcessLabel(p), p.Role, units.Duration(age))
		}
	}
	return out
}

// notesOnOthers are what stands still in other runtimes of this host: no problem of the one that was asked.
func notesOnOthers(f *facts.Facts) (notes []string) {
	for _, p := range f.Others {
		line := fmt.Sprintf("of another runtime, not %s: %s", f.Target.Name, facts.ProcessLabel(p))
		age := facts.AgeOf(f, p)
		switch {
		case len(notes) == facts.MostNamed:
		case facts.IsStopped(&p):
			notes = append(notes, line+" is "+facts.StateOf(p))
		case p.Work != "" && age >= facts.LastingWork:
			notes = append(notes, line+" has been running for "+units.Duration(age))
		}
	}
	return notes
}

func judgeTasks(f *facts.Facts, t host.Tasks) checks.Result {
	if i := slices.IndexFunc(t.Blocked, func(b host.BlockedTask) bool { return facts.IsOurs(b.Owner) }); i >= 0 {
		line := causes.TaskName(f, t.Blocked[i]) + " was in uninterruptible sleep in two looks"
		if at := facts.WaitsIn(t.Blocked[i]); at != "" {
			line += ", in " + at
		}
		return warning("%s; look again: a busy disk does so too", line)
	}
	return ok("%s, none of a container or the runtime in uninterruptible sleep in two looks",
		units.Count(t.Threads, "thread"))
}

func judgeZombies(f *facts.Facts, t host.Tasks) checks.Result {
	if len(t.ZombiesByParent) == 0 || t.Zombies == 0 {
		return ok("no zombies")
	}
	p := t.ZombiesByParent[0]
	r := ok("%s, most under %s (pid %d)%s, which does not wait for its children", units.Count(t.Zombies, "zombie"),
		facts.Clean(p.Name), p.PID, facts.OwnerSuffix(f, p.Owner))
	if p.Count >= f.Limits.Node.Zombies {
		r.Status = checks.StatusWarning
	}
	return r
}

func judgeShims(f *facts.Facts, _ host.Tasks) checks.Result {
	shims := units.Count(len(facts.ProcessesOf(f, host.RoleShim)), "shim")
	gap := f.Shims.Gap
	switch {
	case f.HostMissing != "":
		return unknown("processes were not read: %s", facts.Clean(f.HostMissing))
	case len(facts.ProcessesOf(f, host.RoleShim)) == 0:
		return skipped("no shim was seen on this host")
	case !f.Shims.Compared:
		return unknown("%s, none stopped; the lists of the kubelet's runtime, to compare with, did not come whole",
			shims)
	case len(gap.Shimless) > 0:
		return warning("the sandbox of %s is ready, and no shim of it was seen",
			facts.OwnerLabel(f, host.Owner{ObjectID: gap.Shimless[0].ID}))
	}
	return ok("%s, none of this runtime's stopped", shims)
}
