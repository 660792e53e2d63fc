package host

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// userHZ is the unit of start times in /proc/PID/stat, in ticks a second. The kernel fixes it at 100 for user space on
// every architecture that Go runs on, whatever its own HZ.
const userHZ = 100

// A stat is what kdiag keeps of /proc/PID/stat.
type stat struct {
	pid   int
	ppid  int
	comm  string // at most 15 bytes, for kernel threads more
	state byte
	start uint64 // ticks after boot

	kernel  bool // a kernel thread
	threads int  // of the whole process, whichever thread's file it is

	rss uint64 // pages of memory that are resident; 0 where the kernel does not say
}

// Indexes among the fields that follow comm, of which state is field 3 of proc_pid_stat(5).
const (
	flagsField   = 9 - 3
	threadsField = 20 - 3
	startField   = 22 - 3
	rssField     = 24 - 3
)

// kernelThread is PF_KTHREAD of include/linux/sched.h.
const kernelThread = 0x0020_0000

// parseStat parses /proc/PID/stat:
//
//	812 (containerd-shim) S 1 812 700 0 -1 1077952768 ... 0 0 20 0 12 0 4711 ...
//
// The name in parentheses is whatever the process calls itself and may hold spaces and parentheses; it ends at the last
// closing one.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("no command name in parentheses")
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil || pid <= 0 {
		return stat{}, fmt.Errorf("process id %q", b[:open])
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= startField {
		return stat{}, fmt.Errorf("%d fields after the command name, want more than %d", len(fields), startField)
	}
	if len(fields[0]) != 1 || fields[0][0] >= utf8.RuneSelf {
		return stat{}, fmt.Errorf("process state %q", fields[0])
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil || ppid < 0 {
		return stat{}, fmt.Errorf("parent process id %q", fields[1])
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time %q", fields[startField])
	}
	flags, err := strconv.ParseUint(string(fields[flagsField]), 10, 32)
	if err != nil {
		return stat{}, fmt.Errorf("flags %q", fields[flagsField])
	}
	threads, err := strconv.Atoi(string(fields[threadsField]))
	if err != nil || threads < 0 {
		return stat{}, fmt.Errorf("number of threads %q", fields[threadsField])
	}
	var rss uint64
	if len(fields) > rssField {
		rss, _ = strconv.ParseUint(string(fields[rssField]), 10, 64)
	}
	return stat{
		pid: pid, ppid: ppid, comm: string(b[open+1 : end]), state: fields[0][0], start: start,
		kernel: flags&kernelThread != 0, threads: threads, rss: rss,
	}, nil
}

// parseBootTime finds the time of boot in /proc/stat, in the line
//
//	btime 1731200000
//
// and returns the zero time if there is none.
func parseBootTime(b []byte) time.Time {
	for line := range bytes.Lines(b) {
		value, ok := bytes.CutPrefix(line, []byte("btime "))
		if !ok {
			continue
		}
		seconds, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		if err == nil && seconds > 0 {
			return time.Unix(seconds, 0)
		}
	}
	return time.Time{}
}

// startTime converts a start in ticks after boot; it is zero when the time of boot is not known or the ticks are absurd.
func startTime(boot time.Time, ticks uint64) time.Time {
	const century = 100 * 365 * 24 * 3600 * userHZ
	if boot.IsZero() || ticks > century {
		return time.Time{}
	}
	return boot.Add(time.Duration(ticks) * (time.Second / userHZ))
}
