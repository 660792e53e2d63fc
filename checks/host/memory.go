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

// Memory is what /proc/meminfo says, in bytes.
type Memory struct {
	Total, Available, Free uint64
	SwapTotal, SwapFree    uint64
	Dirty, Writeback       uint64 // waiting for a disk
	SlabUnreclaimable      uint64 // kernel memory; leaked cgroups show here
	Shmem                  uint64 // tmpfs and shared memory, whether or not a process has it mapped
}

const maxDuration = time.Duration(math.MaxInt64)

// ReadMemory reads root/proc/meminfo.
func ReadMemory(root string) (Memory, error) {
	b, err := readLimited(filepath.Join(root, "proc/meminfo"), 64<<10)
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	m, err := parseMemory(b)
	if err != nil {
		return Memory{}, fmt.Errorf("reading the state of memory: %w", err)
	}
	return m, nil
}

// parseMemory parses /proc/meminfo, of which the lines look like
//
//	MemAvailable:   30144576 kB
//
// and kB are 1024 bytes. MemAvailable is there since Linux 3.14; nothing replaces it.
func parseMemory(b []byte) (Memory, error) {
	var m Memory
	want := map[string]*uint64{
		"MemTotal": &m.Total, "MemAvailable": &m.Available, "MemFree": &m.Free,
		"SwapTotal": &m.SwapTotal, "SwapFree": &m.SwapFree,
		"Dirty": &m.Dirty, "Writeback": &m.Writeback, "SUnreclaim": &m.SlabUnreclaimable, "Shmem": &m.Shmem,
	}
	for line := range strings.Lines(string(b)) {
		key, rest, _ := strings.Cut(line, ":")
		to := want[key]
		if to == nil {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return Memory{}, fmt.Errorf("line %q", key)
		}
		n, err := strconv.ParseUint(fields[0], 10, 54) // in bytes it fits 64 bits
		if err != nil {
			return Memory{}, fmt.Errorf("line %q", key)
		}
		*to = n << 10
		delete(want, key)
	}
	for _, key := range []string{"MemTotal", "MemAvailable"} {
		if want[key] != nil {
			return Memory{}, errors.New("no line " + key)
		}
	}
	return m, nil
}
