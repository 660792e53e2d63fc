package causes

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// safeCgroup matches the paths of control groups that may stand in a command, in single quotes: systemd escapes with backslashes,
// containerd puts colons between.
var safeCgroup = regexp.MustCompile(`^/[A-Za-z0-9._:@\\/-]+$`)

// CgroupFrozen is the code of this cause.
const CgroupFrozen = "CgroupFrozen"

var cgroupFrozen = Definition{
	Code:      CgroupFrozen,
	Claims:    []string{"host.freezer"},
	Recognise: RecogniseCgroupFrozen,
}

// frozenName names whose group it is.
func frozenName(f *facts.Facts, g host.FrozenCgroup) string {
	return cmp.Or(facts.OwnerLabel(f, g.Owner), facts.Clean(g.Path))
}

func RecogniseCgroupFrozen(f *facts.Facts) *Finding {
	frozen := f.Tasks.Frozen
	if len(frozen) == 0 {
		return nil
	}
	var e checks.Evidence
	severity := checks.Warning
	for _, z := range frozen {
		Addf(&e.For, "%s is frozen, with %s in it; CRI has no call that does so", facts.Clean(z.Path), units.Count(z.Tasks, "task"))
		if z.Freezing {
			Addf(&e.For, "not all its tasks have stopped yet: one in uninterruptible sleep holds that up")
		}
		if z.HoldsDaemons() {
			severity = checks.Critical
		}
		for _, g := range z.Held[:min(len(z.Held), facts.MaxRelated)] {
			if g.Path != z.Path {
				Addf(&e.For, "with it stands still %s", frozenName(f, g))
			}
		}
		for _, g := range z.Held {
			if i, hangs := facts.HungObjectOf(f, g.Owner); hangs {
				severity = checks.Critical
				Addf(&e.For, "the status of %s hangs with it", facts.Label(i))
				break
			}
		}
	}
	e.For = facts.Head(e.For, facts.MaxRelated)
	missing(f.Seen.Cgroups, &e, "other control groups")
	summary := fmt.Sprintf("the control group of %s is frozen: its %s %s not run", frozenName(f, frozen[0].FrozenCgroup), units.Count(frozen[0].Tasks, "task"), units.Plural(frozen[0].Tasks, "does", "do"))
	if n := len(frozen) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "group"))
	}
	c := newFinding(severity, checks.Certain, summary, e)
	for i, g := range frozen[:min(len(frozen), facts.MaxRelated+1)] {
		s := facts.OwnedBy(f, g.Owner)
		s.Kind, s.ID = "Cgroup", facts.Clean(g.Path)
		if i == 0 {
			c.Subject = &s
		} else {
			c.Related = append(c.Related, s)
		}
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenFrozen(f, frozen) }
	return c
}

func stepsWhenFrozen(f *facts.Facts, frozen []facts.Freeze) []checks.NextStep {
	var s Steps
	file, frozenWord := "cgroup.freeze", "0"
	mount := "/sys/fs/cgroup"
	if f.Seen.Cgroups.Value.Version == 1 {
		file, frozenWord, mount = "freezer.state", "THAWED", "/sys/fs/cgroup/freezer"
	}
	for _, g := range frozen[:min(len(frozen), facts.MostNamed)] {
		if !safeCgroup.MatchString(g.Path) || strings.Contains(g.Path, "..") {
			continue
		}
		s.Add(checks.TouchesNothing, fmt.Sprintf("cat '%s%s/%s'", mount, g.Path, file), "Is it still frozen? A checkpoint or a change of devices freezes for moments.")
		touches := checks.TouchesPod
		if g.HoldsDaemons() {
			touches = checks.TouchesRuntime
		}
		s.Add(touches, fmt.Sprintf("echo %s > '%s%s/%s'", frozenWord, mount, g.Path, file), "Thaws it; its tasks go on where they were, and nothing is lost.")
	}
	s.Add(checks.TouchesNothing, "journalctl --no-pager --since -1h | grep -iE 'freez|frozen|paus' | tail -n 20", "Who froze it, and when?")
	return s.Done()
}
