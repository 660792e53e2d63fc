package host

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

const maxDuration = time.Duration(math.MaxInt64)

// Memory is what /proc/meminfo holds, in bytes.
type Memory struct {
	Total, Available, Free uint64
	SwapTotal, SwapFree    uint64
	Dirty, Writeback       uint64 // waiting for a disk
	SlabUnreclaimable      uint64 // kernel memory; leaked cgroups show here
	Shmem                  uint64 // tmpfs and shared memory, whether or not a process has it mapped
}

// ReadMemory reads root/proc/meminfo.
func ReadMemory(root string) (Memory, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	m, err := proc.Meminfo()
	if err == nil && (m.MemTotalBytes == nil || m.MemAvailableBytes == nil) { // MemAvailable is there since Linux 3.14
		err = errors.New("no line MemTotal or MemAvailable")
	}
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	value := func(p *uint64) uint64 {
		if p == nil {
			return 0
		}
		return *p
	}
	return Memory{
		Total: *m.MemTotalBytes, Available: *m.MemAvailableBytes, Free: value(m.MemFreeBytes),
		SwapTotal: value(m.SwapTotalBytes), SwapFree: value(m.SwapFreeBytes),
		Dirty: value(m.DirtyBytes), Writeback: value(m.WritebackBytes),
		SlabUnreclaimable: value(m.SUnreclaimBytes), Shmem: value(m.ShmemBytes),
	}, nil
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
	var first error
	for _, r := range []struct {
		name string
		to   **Stall
	}{{"cpu", &p.CPU}, {"memory", &p.Memory}, {"io", &p.IO}} {
		// Booted with psi=0 the files are there, and reading them is EOPNOTSUPP.
		stall, err := readStall(filepath.Join(root, "proc/pressure", r.name))
		if err == nil {
			*r.to = stall
		} else if first == nil {
			first = fmt.Errorf("reading the pressure on %s: %w", r.name, err)
		}
	}
	if p == (Pressure{}) {
		return p, first
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

// parseStall parses what kernel/sched/psi.c writes. procfs reads the files of /proc/pressure only, and not those of
// control groups:
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
		var us uint64
		_, err := fmt.Sscanf(rest, "avg10=%f avg60=%f avg300=%f total=%d", &a.Avg10, &a.Avg60, &a.Avg300, &us)
		if err != nil || us > uint64(maxDuration/time.Microsecond) {
			return nil, fmt.Errorf("malformed line %.80q", line)
		}
		for _, share := range []float64{a.Avg10, a.Avg60, a.Avg300} {
			if !(share >= 0 && share <= 100) { // NaN is neither
				return nil, fmt.Errorf("malformed line %.80q", line)
			}
		}
		a.Total = time.Duration(us) * time.Microsecond
	}
	if to["some"] != nil {
		return nil, errors.New(`no line "some"`)
	}
	return &s, nil
}
