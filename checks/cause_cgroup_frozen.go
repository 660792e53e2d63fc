package checks

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// safeCgroup matches the paths of control groups that may stand in a command, in single quotes: systemd escapes with backslashes,
// containerd puts colons between.
var safeCgroup = regexp.MustCompile(`^/[A-Za-z0-9._:@\\/-]+$`)

func cgroupFrozen() Definition {
	return Definition{
		Code:  codeCgroupFrozen,
		Title: "a control group that the node needs is frozen",
		Means: "The freezer keeps all tasks of a control group from running; they cannot even be killed until it is thawed (on cgroup v1; v2 lets SIGKILL through). CRI has no call to pause a container, so a frozen " +
			"group of a pod is nobody's wish: runc freezes for a moment to change devices or to kill, and leaves the group frozen when it fails or is killed between. Or somebody ran docker pause, ctr tasks pause or systemctl freeze.\n\n" +
			"Stops, execs and probes of that container wait without end, a runc init that was frozen never starts, and the status of the container may hang. When the group is that of the runtime or the kubelet, everything waits.",
		Confirm: []string{
			"cgroup v2: grep -l 'frozen 1' $(find /sys/fs/cgroup -path '*kubepods*' -name cgroup.events).",
			"cgroup v1: grep -l FROZEN $(find /sys/fs/cgroup/freezer -name freezer.state).",
			"cat /proc/PID/wchan of a task in it: __refrigerator on v1, do_freezer_trap on v2. Since Linux 6.1 one that slept when v1 froze it stays where it slept, and is shown in state D.",
		},
		Fix: []string{
			"Thaw it: echo 0 > cgroup.freeze on v2, echo THAWED > freezer.state on v1. The tasks go on where they were.",
			"docker unpause, ctr -n k8s.io tasks resume or systemctl thaw where one of them froze it.",
			"It comes back: a runc up to 1.0 on cgroup v1; upgrade it.",
		},
		Mistaken: "TaskStuck: a frozen task may be shown in state D. A checkpoint (the kubelet's checkpoint API) freezes its container for the seconds that it takes. Frozen groups of users' sessions, and of docker's own containers, are no trouble of the node.",
		Sources: []string{
			"kubernetes/kubernetes#104280 (runc leaves a cgroup frozen), opencontainers/runc: libcontainer/cgroups/fs/freezer.go",
			"Linux: Documentation/admin-guide/cgroup-v2.rst (cgroup.freeze, cgroup.events), cgroup-v1/freezer-subsystem.rst",
		},
		RootOf:    []string{codeTaskStuck, codeShimStuck, codeRuntimeHung, codeListHang, codeInspectHang, codeKubeletStalled},
		recognise: recogniseCgroupFrozen,
	}
}

// A freeze is a control group that is frozen itself, and those with tasks that stand still with it.
type freeze struct {
	host.FrozenCgroup                     // Tasks are those of all
	held              []host.FrozenCgroup // perhaps itself
}

// frozenCgroups returns the freezes that matter to the node: those that hold pods, or the units of runtime and kubelet. Of a tree only
// the top is named, which a pod's group may lie far below. Those that hold daemons come first.
func (f *Facts) frozenCgroups() []freeze {
	var out []freeze
	all := f.seen().Cgroups.Value.Frozen
	for _, g := range all {
		if g.Tasks == 0 || f.isForeign(g) || !isOurs(g.Owner) && !strings.Contains(g.Path, "kubepods") && unitRole(g.Unit) == roleOther {
			continue
		}
		top, ok := freezerOf(all, g)
		if !ok || f.isForeign(top) {
			continue
		}
		i := slices.IndexFunc(out, func(z freeze) bool { return z.Path == top.Path })
		if i < 0 {
			i, top.Tasks = len(out), 0
			out = append(out, freeze{FrozenCgroup: top})
		}
		out[i].Tasks += g.Tasks
		out[i].held = append(out[i].held, g)
	}
	weight := func(z freeze) int {
		if z.holdsDaemons() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b freeze) int { return cmp.Compare(weight(a), weight(b)) })
	return out
}

// freezerOf returns the highest group that is frozen itself and holds another, or is it.
func freezerOf(all []host.FrozenCgroup, g host.FrozenCgroup) (top host.FrozenCgroup, ok bool) {
	for _, above := range all {
		holds := above.Path == g.Path || strings.HasPrefix(g.Path, strings.TrimSuffix(above.Path, "/")+"/")
		if above.Self && holds && (!ok || len(above.Path) < len(top.Path)) {
			top, ok = above, true
		}
	}
	return top, ok
}

// isForeign reports whether a group is that of a container that the runtime does not list and that is in no pod: docker's own, say, which
// somebody may pause.
func (f *Facts) isForeign(g host.FrozenCgroup) bool {
	if g.ObjectID == "" || g.PodUID != "" || strings.Contains(g.Path, "kubepods") || f.Measurement == nil || !f.bothLists() {
		return false
	}
	return f.owned(g.Owner).Pod == ""
}

// holdsDaemons reports whether the runtime, the kubelet, or all pods stand still: the node is then at stake.
func (z freeze) holdsDaemons() bool {
	return z.holdsAllPods() || slices.ContainsFunc(z.held, func(g host.FrozenCgroup) bool { return cgroupRole(g) != roleOther })
}

// holdsAllPods reports whether the group above those of all pods is the frozen one, or lies in it.
func (z freeze) holdsAllPods() bool {
	return slices.ContainsFunc(z.held, func(g host.FrozenCgroup) bool {
		for ; len(g.Path) > 1 && len(g.Path) >= len(z.Path); g.Path = path.Dir(g.Path) {
			if holdsAllPods(g) {
				return true
			}
		}
		return false
	})
}

// holdsAllPods reports whether a group is the one above those of all pods; below --cgroup-root it has another name in front.
func holdsAllPods(g host.FrozenCgroup) bool {
	base := path.Base(g.Path)
	return base == "kubepods" || base == "kubepods.slice" || strings.HasSuffix(base, "-kubepods.slice")
}

// cgroupRole tells whether a group is the runtime's or the kubelet's own. That of a shim or a container is a pod's.
func cgroupRole(g host.FrozenCgroup) role {
	switch {
	case g.ObjectID != "" || g.PodUID != "":
		return roleOther
	case g.Role == host.RoleRuntime:
		return roleRuntime
	case g.Role == host.RoleKubelet:
		return roleKubelet
	}
	return unitRole(g.Unit)
}

// frozenName names whose group it is.
func (f *Facts) frozenName(g host.FrozenCgroup) string {
	return or(f.ownerLabel(g.Owner), clean(g.Path))
}

func recogniseCgroupFrozen(f *Facts) *Cause {
	frozen := f.frozenCgroups()
	if len(frozen) == 0 {
		return nil
	}
	var e Evidence
	severity := Warning
	for _, z := range frozen {
		addf(&e.For, "%s is frozen, with %s in it; CRI has no call that does so", clean(z.Path), units.Count(z.Tasks, "task"))
		if z.Freezing {
			addf(&e.For, "not all its tasks have stopped yet: one in uninterruptible sleep holds that up")
		}
		if z.holdsDaemons() {
			severity = Critical
		}
		for _, g := range z.held[:min(len(z.held), maxRelated)] {
			if g.Path != z.Path {
				addf(&e.For, "with it stands still %s", f.frozenName(g))
			}
		}
		for _, g := range z.held {
			if i, hangs := f.hungObjectOf(g.Owner); hangs {
				severity = Critical
				addf(&e.For, "the status of %s hangs with it", label(i))
				break
			}
		}
	}
	e.For = head(e.For, maxRelated)
	f.seen().Cgroups.missing(&e, "other control groups")
	summary := fmt.Sprintf("the control group of %s is frozen: its %s %s not run", f.frozenName(frozen[0].FrozenCgroup), units.Count(frozen[0].Tasks, "task"), verb(frozen[0].Tasks, "does", "do"))
	if n := len(frozen) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "group"))
	}
	c := newCause(codeCgroupFrozen, severity, Certain, summary, e)
	for i, g := range frozen[:min(len(frozen), maxRelated+1)] {
		s := f.owned(g.Owner)
		s.Kind, s.ID = "Cgroup", clean(g.Path)
		if i == 0 {
			c.Subject = &s
		} else {
			c.Related = append(c.Related, s)
		}
	}
	c.NextSteps = f.stepsWhenFrozen(frozen)
	return c
}

func (f *Facts) stepsWhenFrozen(frozen []freeze) []NextStep {
	var s steps
	file, frozenWord := "cgroup.freeze", "0"
	mount := "/sys/fs/cgroup"
	if f.seen().Cgroups.Value.Version == 1 {
		file, frozenWord, mount = "freezer.state", "THAWED", "/sys/fs/cgroup/freezer"
	}
	for _, g := range frozen[:min(len(frozen), topHeaps)] {
		if !safeCgroup.MatchString(g.Path) || strings.Contains(g.Path, "..") {
			continue
		}
		s.add(TouchesNothing, fmt.Sprintf("cat '%s%s/%s'", mount, g.Path, file), "Is it still frozen? A checkpoint or a change of devices freezes for moments.")
		touches := TouchesPod
		if g.holdsDaemons() {
			touches = TouchesRuntime
		}
		s.add(touches, fmt.Sprintf("echo %s > '%s%s/%s'", frozenWord, mount, g.Path, file), "Thaws it; its tasks go on where they were, and nothing is lost.")
	}
	s.add(TouchesNothing, "journalctl --no-pager --since -1h | grep -iE 'freez|frozen|paus' | tail -n 20", "Who froze it, and when?")
	return s.done()
}

// cgroupFrozenExplains reports whether a frozen group is why something else hangs: the same pod, or the daemon itself.
func cgroupFrozenExplains(f *Facts, consequence string) bool {
	frozen := f.frozenCgroups()
	some := func(want func(host.FrozenCgroup) bool) bool {
		return slices.ContainsFunc(frozen, func(z freeze) bool { return slices.ContainsFunc(z.held, want) })
	}
	switch consequence {
	case codeRuntimeHung:
		return some(func(g host.FrozenCgroup) bool { return cgroupRole(g) == roleRuntime })
	case codeKubeletStalled:
		return some(func(g host.FrozenCgroup) bool { return cgroupRole(g) == roleKubelet })
	case codeInspectHang, codeListHang:
		return slices.ContainsFunc(frozen, freeze.holdsAllPods) || some(func(g host.FrozenCgroup) bool { _, ok := f.hungObjectOf(g.Owner); return ok })
	case codeTaskStuck:
		return some(func(g host.FrozenCgroup) bool {
			return slices.ContainsFunc(f.stuckTasks(), func(t host.BlockedTask) bool { return t.ObjectID != "" && t.ObjectID == g.ObjectID })
		})
	case codeShimStuck:
		return some(func(g host.FrozenCgroup) bool { return slices.Contains(f.stuckShimIDs(), g.ObjectID) })
	}
	return false
}
