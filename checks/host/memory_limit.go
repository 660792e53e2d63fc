package host

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A MemoryLimit is the memory of a control group of version 2 that has a limit: a daemon's, or one above it. One of a
// daemon in which the kernel has killed for memory is listed without a limit too.
type MemoryLimit struct {
	Path  string
	Dir   string // the folder of its files on the host
	Usage        // in bytes; Max is memory.max
	High  uint64 // memory.high, in bytes, above which the kernel holds up those who allocate; 0 for no limit
	Kills uint64 // processes in it and below that were OOM-killed since the group was made (memory.events)
	// Older is set for a group with kills that was there before its daemon was: another process in it is older, such as
	// a shim. The group of a unit without Delegate is made anew at each start, and its kills are none of the daemon.
	Older   bool `json:",omitempty"`
	Full    Averages
	Daemons []int // runtimes and kubelets in it and below, by process id
	Owner
}

// memoryLimits reads the limits of memory of the control groups that the daemons are in, and of those above them. While
// no runtime runs, the group of a shim is read as the runtime's, in which systemd starts it again.
func (p Population) memoryLimits(at *position, all hierarchies) (list []MemoryLimit) {
	h, err := all.of("memory")
	if err != nil || !h.unified {
		return nil
	}
	groups := p.daemonGroups(at, h, "memory")
	if shims := p.of(RoleShim); len(shims) > 0 && len(p.of(RoleRuntime)) == 0 {
		cgroup := h.cgroupOf(p.cgroups(at, shims[0].PID), "memory")
		if dir, err := h.folder(cgroup); err == nil && OwnerOfCgroup(cgroup).Unit != "" {
			groups = append(groups, daemonGroup{group{path: cgroup, dir: dir}, RoleRuntime, nil})
		}
	}
	for _, g := range groups {
		m := MemoryLimit{Path: g.path, Dir: g.dir, Daemons: g.daemons, Owner: OwnerOfCgroup(g.path)}
		m.Role = g.role
		m.Max, _ = readUint(h.root, g.dir, "memory.max")
		m.High, _ = readUint(h.root, g.dir, "memory.high")
		events, _ := readSmall(h.root, g.dir, "memory.events")
		m.Kills, _ = numberAfter(events, "oom_kill")
		if m.Max == 0 && m.High == 0 && (m.Kills == 0 || m.Role == "") {
			continue
		}
		m.Older = m.Kills > 0 && m.Role != "" && p.outlived(h, g)
		m.Current, _ = readUint(h.root, g.dir, "memory.current")
		if s, err := readStall(filepath.Join(h.root, g.dir, "memory.pressure")); err == nil {
			m.Full = s.Full
		}
		list = append(list, m)
	}
	return list
}

// outlived reports whether a process in a group is older than all daemons in it.
func (p Population) outlived(h *hierarchy, g daemonGroup) bool {
	pids, _ := readSmall(h.root, g.dir, "cgroup.procs")
	return slices.ContainsFunc(strings.Fields(pids), func(field string) bool {
		pid, _ := strconv.Atoi(field)
		st, ok := p.all[pid]
		older := func(daemon int) bool { return st.start < p.all[daemon].start }
		return ok && !slices.ContainsFunc(g.daemons, func(daemon int) bool { return !older(daemon) })
	})
}
