package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Memory holds values of /proc/meminfo, in bytes.
type Memory struct {
	Total, Available  uint64
	SlabUnreclaimable uint64 // kernel memory; leaked cgroups show here
	Shmem             uint64 // tmpfs and shared memory, whether or not a process has it mapped
}

// ReadMemory reads root/proc/meminfo.
func ReadMemory(root string) (Memory, error) {
	text, err := readSmall(root, "proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	size := func(name string) uint64 {
		kib, _ := numberAfter(text, name)
		return kib << 10
	}
	m := Memory{size("MemTotal:"), size("MemAvailable:"), size("SUnreclaim:"), size("Shmem:")}
	if m.Total == 0 || m.Available == 0 {
		return Memory{}, errors.New("reading the state of memory: no line MemTotal or MemAvailable")
	}
	return m, nil
}

// Pressure is the time lost waiting for a resource (PSI, /proc/pressure). A resource that this kernel does not
// account for is nil: PSI needs CONFIG_PSI, and psi=1 where the distribution turned it off.
type Pressure struct {
	CPU, Memory, IO *Stall
}

// A Stall is the pressure on one resource.
type Stall struct {
	Some Averages // at least one task waited
	Full Averages // all tasks that were not idle waited; of the CPU only meaningful below the root cgroup
}

// Averages are shares of time in percent, 0 to 100, over the last 10, 60 and 300 seconds.
type Averages struct{ Avg10, Avg60, Avg300 float64 }

// ReadPressure reads root/proc/pressure. It is an error that there is nothing of any resource.
func ReadPressure(root string) (Pressure, error) {
	var p Pressure
	var failed error
	for name, to := range map[string]**Stall{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		// Booted with psi=0 the files are there, and reading them is EOPNOTSUPP.
		var err error
		if *to, err = readStall(filepath.Join(root, "proc/pressure", name)); err != nil {
			failed = fmt.Errorf("reading the pressure on %s: %w", name, err)
		}
	}
	if p == (Pressure{}) {
		return p, failed
	}
	return p, nil
}

// readStall reads a file of /proc/pressure, or memory.pressure of a control group.
func readStall(file string) (*Stall, error) {
	text, err := readSmall(file)
	if err != nil {
		return nil, err
	}
	return parseStall(text)
}

// parseStall parses what kernel/sched/psi.c writes:
//
//	some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459
//	full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459
//
// Before Linux 5.13 that of the CPU had no line "full".
func parseStall(text string) (*Stall, error) {
	var s Stall
	for kind, a := range map[string]*Averages{"some": &s.Some, "full": &s.Full} {
		line := strings.Join(fieldsAfter(text, kind), " ")
		if line == "" && kind == "full" {
			continue
		}
		_, err := fmt.Sscanf(line, "avg10=%f avg60=%f avg300=%f ", &a.Avg10, &a.Avg60, &a.Avg300)
		if err != nil || !(a.Avg10 >= 0 && a.Avg10 <= 100) { // NaN is malformed too
			return nil, fmt.Errorf("malformed line %s %.80q", kind, line)
		}
	}
	return &s, nil
}

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
