package host

import "path/filepath"

// A MemoryLimit is the memory of a control group of version 2 that has a limit: a daemon's, or one above it. One of a
// daemon in which the kernel has killed for memory is listed without a limit too.
type MemoryLimit struct {
	Path    string
	Dir     string // the folder of its files on the host
	Usage          // in bytes; Max is memory.max
	High    uint64 // memory.high, in bytes, above which the kernel holds up those who allocate; 0 for no limit
	Kills   uint64 // processes in it and below that were OOM-killed since the group was made (memory.events)
	Full    Averages
	Daemons []int // runtimes and kubelets in it and below, by process id
	Owner
}

// memoryLimits reads the limits of memory of the control groups that the daemons are in, and of those above them.
func (p Population) memoryLimits(at *position, all hierarchies) (list []MemoryLimit) {
	h, err := all.of("memory")
	if err != nil || !h.unified {
		return nil
	}
	for _, g := range p.daemonGroups(at, h, "memory") {
		m := MemoryLimit{Path: g.path, Dir: g.dir, Daemons: g.daemons, Owner: OwnerOfCgroup(g.path)}
		m.Role = g.role
		m.Max, _ = readUint(h.root, g.dir, "memory.max")
		m.High, _ = readUint(h.root, g.dir, "memory.high")
		events, _ := readSmall(h.root, g.dir, "memory.events")
		m.Kills, _ = numberAfter(events, "oom_kill")
		if m.Max == 0 && m.High == 0 && (m.Kills == 0 || m.Role == "") {
			continue
		}
		m.Current, _ = readUint(h.root, g.dir, "memory.current")
		if s, err := readStall(filepath.Join(h.root, g.dir, "memory.pressure")); err == nil {
			m.Full = s.Full
		}
		list = append(list, m)
	}
	return list
}
