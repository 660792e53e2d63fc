package host

import (
	"errors"
	"fmt"
	"path/filepath"
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
