package facts

import (
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
)

// A Freeze is a control group that is frozen itself, and those with tasks that stand still with it.
type Freeze struct {
	host.FrozenCgroup                     // Tasks are those of all
	Held              []host.FrozenCgroup // perhaps itself
}

// frozenCgroups returns the freezes that matter to the node: those that hold pods, the runtime or the kubelet, by their
// units or in a group of any name. Of a tree only the top is named. Those that hold daemons come first.
func frozenCgroups(f *Facts) []Freeze {
	var out []Freeze
	all := f.Seen.Cgroups.Value.Frozen
	for _, g := range all {
		for _, p := range f.Processes { // without those of another runtime
			if slices.Contains(g.Daemons, p.PID) {
				g.Role = p.Role
			}
		}
		ours := IsOurs(g.Owner) || strings.Contains(g.Path, "kubepods") || UnitRole(g.Unit) != RoleOther
		top, ok := freezerOf(all, g)
		if g.Tasks == 0 || !ours || !ok || isForeign(f, g) || isForeign(f, top) {
			continue
		}
		i := slices.IndexFunc(out, func(z Freeze) bool { return z.Path == top.Path })
		if i < 0 {
			if top.Path == g.Path {
				top.Role = g.Role
			}
			i, top.Tasks = len(out), 0
			out = append(out, Freeze{FrozenCgroup: top})
		}
		out[i].Tasks += g.Tasks
		out[i].Held = append(out[i].Held, g)
	}
	slices.SortStableFunc(out, func(a, b Freeze) int { return first(a.HoldsDaemons(), b.HoldsDaemons()) })
	return out
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
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

// isForeign reports whether a group is of another runtime: its container or pod is in none of the lists (docker's own,
// say, which a person may pause, or a node's that is a container here), or its unit is that of another daemon.
func isForeign(f *Facts, g host.FrozenCgroup) bool {
	if unit := strings.TrimSuffix(g.Unit, ".service"); UnitRole(g.Unit) == RoleRuntime && f.Target.Daemon.PID != 0 {
		known := slices.ContainsFunc(strings.Fields(f.Target.Unit), func(pattern string) bool {
			ok, err := path.Match(strings.Trim(pattern, "'"), unit)
			return ok && err == nil
		})
		return !known
	}
	return isStranger(f, g.Owner)
}

// HoldsDaemons reports whether the runtime, the kubelet, or all pods stand still: the node is then at stake.
func (z Freeze) HoldsDaemons() bool {
	return z.HoldsAllPods() ||
		slices.ContainsFunc(z.Held, func(g host.FrozenCgroup) bool { return CgroupRole(g) != RoleOther })
}

// HoldsAllPods reports whether the group above those of all pods is the frozen one, or lies in it.
func (z Freeze) HoldsAllPods() bool {
	return slices.ContainsFunc(z.Held, func(g host.FrozenCgroup) bool {
		for ; len(g.Path) > 1 && len(g.Path) >= len(z.Path); g.Path = path.Dir(g.Path) {
			if HoldsAllPods(g) {
				return true
			}
		}
		return false
	})
}

// HoldsAllPods reports whether a group is the one above those of all pods; below --cgroup-root it has another name in
// front.
func HoldsAllPods(g host.FrozenCgroup) bool {
	base := path.Base(g.Path)
	return base == "kubepods" || base == "kubepods.slice" || strings.HasSuffix(base, "-kubepods.slice")
}

// CgroupRole is the daemon that this group is of. A group of a shim or a container is a pod's.
func CgroupRole(g host.FrozenCgroup) Role {
	switch {
	case g.ObjectID != "" || g.PodUID != "":
		return RoleOther
	case g.Role == host.RoleRuntime:
		return RoleRuntime
	case g.Role == host.RoleKubelet:
		return RoleKubelet
	}
	return UnitRole(g.Unit)
}
