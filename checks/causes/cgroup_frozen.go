package causes

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// safeCgroup matches the paths of control groups that may stand in a command, in single quotes: systemd escapes with
// backslashes, containerd puts colons between.
var safeCgroup = lazyregexp.New(`^/[A-Za-z0-9._:@\\/-]+$`)

// CgroupFrozen is the code of this cause.
const CgroupFrozen = "CgroupFrozen"

func recogniseCgroupFrozen(f *facts.Facts) *Finding {
	frozen := f.Tasks.Frozen
	if len(frozen) == 0 {
		return nil
	}
	name := func(g host.FrozenCgroup) string { return cmp.Or(facts.OwnerLabel(f, g.Owner), facts.Clean(g.Path)) }
	var e checks.Evidence
	var subjects []checks.Subject
	critical, step := false, checks.Certain
	for _, z := range frozen {
		Addf(&e.For, "%s is frozen, with %s in it", facts.Clean(z.Path), units.Count(z.Tasks, "task"))
		addIf(z.Freezing, &e.For, "not all its tasks are frozen yet: one in uninterruptible sleep prevents it")
		critical = critical || z.HoldsDaemons()
		for _, g := range z.Held {
			i, hangs := facts.HungObjectOf(f, g.Owner)
			critical = critical || hangs
			addIf(hangs, &e.For, "it holds %v, whose status hangs", i)
			addIf(!hangs && g.Path != z.Path, &e.For, "it holds %s", name(g))
		}
		s := facts.OwnedBy(f, z.Owner)
		if s.Pod == "" && s.PodUID == "" && !z.HoldsDaemons() && !facts.IsListed(f, z.ObjectID) {
			step = checks.Weak
			Addf(&e.Missing, "whether it is this runtime's: the lists do not show it")
		}
		s.Kind, s.ID = "Cgroup", z.Path
		subjects = append(subjects, s)
	}
	e.For = facts.Head(e.For, facts.MaxRelated)
	summary := textf("the control group of %s is frozen", name(frozen[0].FrozenCgroup)) +
		andMore(len(frozen)-1, "group")
	return newFinding(criticalIf(critical), step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		v1 := f.Seen.Cgroups.Value.Version == 1
		file := ifElse(v1, "/sys/fs/cgroup/freezer%s/freezer.state", "/sys/fs/cgroup%s/cgroup.freeze")
		thawed := ifElse(v1, "THAWED", "0")
		for _, g := range top(frozen) {
			if !safeDir(g.Path) {
				continue
			}
			touches, path := ifElse(g.HoldsDaemons(), checks.TouchesProcess, checks.TouchesPod), textf(file, g.Path)
			s.Look("cat '"+path+"'", "Check that it is still frozen: a checkpoint freezes for moments")
			s.Add(touches, textf("echo %s > '%s'", thawed, path), "Thaw it; its tasks resume (harmless)")
		}
		s.Look("journalctl --no-pager --since -1h | grep -iE 'freez|frozen|paus' | tail -n 20", "Find out who froze it")
	})
}
