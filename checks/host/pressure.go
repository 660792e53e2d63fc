package host

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Pressure is what the kernel says of time lost waiting for a resource (PSI, /proc/pressure). A resource that this kernel
// does not account for is nil: PSI needs CONFIG_PSI, and psi=1 where the distribution turned it off.
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
		b, err := readLimited(filepath.Join(root, "proc/pressure", r.name), 4<<10)
		if err == nil {
			*r.to, err = parseStall(b)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("reading the pressure on %s: %w", r.name, err)
		}
	}
	if p == (Pressure{}) {
		return p, first
	}
	return p, nil
}

// parseStall parses a file of /proc/pressure, as kernel/sched/psi.c writes it:
//
//	some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459
//	full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459
//
// Before Linux 5.13 that of the CPU had no line "full".
func parseStall(b []byte) (*Stall, error) {
	var s Stall
	var some bool
	for line := range strings.Lines(string(b)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		to := &s.Some
		switch kind {
		case "some":
			some = true
		case "full":
			to = &s.Full
		default:
			continue
		}
		var err error
		if *to, err = parseAverages(rest); err != nil {
			return nil, err
		}
	}
	if !some {
		return nil, fmt.Errorf("no line %q", "some")
	}
	return &s, nil
}

func parseAverages(line string) (Averages, error) {
	var a Averages
	var seen int
	for field := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(field, "=")
		to := map[string]*float64{"avg10": &a.Avg10, "avg60": &a.Avg60, "avg300": &a.Avg300}[key]
		switch {
		case to != nil:
			share, err := strconv.ParseFloat(value, 64)
			if err != nil || !(share >= 0 && share <= 100) { // NaN is neither
				return Averages{}, fmt.Errorf("share %q", field)
			}
			*to = share
		case key == "total": // microseconds
			us, err := strconv.ParseUint(value, 10, 64)
			if err != nil || us > uint64(maxDuration/time.Microsecond) {
				return Averages{}, fmt.Errorf("time %q", field)
			}
			a.Total = time.Duration(us) * time.Microsecond
		default:
			continue
		}
		seen++
	}
	if seen < 4 {
		return Averages{}, fmt.Errorf("%d numbers, want 4", seen)
	}
	return a, nil
}
