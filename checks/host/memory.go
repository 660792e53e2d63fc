package host

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Memory is what /proc/meminfo holds, in bytes.
type Memory struct {
	Total, Available, Free uint64
	SwapTotal, SwapFree    uint64
	SlabUnreclaimable      uint64 // kernel memory; leaked cgroups show here
	Shmem                  uint64 // tmpfs and shared memory, whether or not a process has it mapped
}

// ReadMemory reads root/proc/meminfo, whose lines are such as "MemTotal:       16344856 kB".
func ReadMemory(root string) (Memory, error) {
	b, err := readSmall(root, "proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	sizes := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		name, size, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 10, 54)
		sizes[name] = kib << 10
	}
	m := Memory{
		Total: sizes["MemTotal"], Available: sizes["MemAvailable"], Free: sizes["MemFree"],
		SwapTotal: sizes["SwapTotal"], SwapFree: sizes["SwapFree"],
		SlabUnreclaimable: sizes["SUnreclaim"], Shmem: sizes["Shmem"],
	}
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

// Averages are shares of time in percent, 0 to 100, over the last 10, 60 and 300 seconds, and the time lost since boot.
type Averages struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// ReadPressure reads root/proc/pressure. It is an error that there is nothing of any resource.
func ReadPressure(root string) (Pressure, error) {
	var p Pressure
	var failed error
	for name, to := range map[string]**Stall{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		// Booted with psi=0 the files are there, and reading them is EOPNOTSUPP.
		stall, err := readStall(filepath.Join(root, "proc/pressure", name))
		if err != nil {
			failed = fmt.Errorf("reading the pressure on %s: %w", name, err)
			continue
		}
		*to = stall
	}
	if p == (Pressure{}) {
		return p, failed
	}
	return p, nil
}

// readStall reads a file of /proc/pressure, or memory.pressure of a control group.
func readStall(file string) (*Stall, error) {
	b, err := readSmall(file)
	if err != nil {
		return nil, err
	}
	return parseStall(b)
}

// parseStall parses what kernel/sched/psi.c writes:
//
//	some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459
//	full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459
//
// Before Linux 5.13 that of the CPU had no line "full". The total is in microseconds.
func parseStall(b []byte) (*Stall, error) {
	var s Stall
	to := map[string]*Averages{"some": &s.Some, "full": &s.Full}
	for line := range strings.Lines(string(b)) {
		kind, rest, _ := strings.Cut(line, " ")
		a := to[kind]
		if a == nil {
			continue
		}
		delete(to, kind)
		var us int64
		_, err := fmt.Sscanf(rest, "avg10=%f avg60=%f avg300=%f total=%d", &a.Avg10, &a.Avg60, &a.Avg300, &us)
		odd := func(share float64) bool { return !(share >= 0 && share <= 100) } // NaN is
		if err != nil || us < 0 || odd(a.Avg10) || odd(a.Avg60) || odd(a.Avg300) {
			return nil, fmt.Errorf("malformed line %.80q", line)
		}
		a.Total = time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
	}
	if to["some"] != nil {
		return nil, errors.New(`no line "some"`)
	}
	return &s, nil
}
