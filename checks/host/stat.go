package host

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

const (
	// userHZ is the unit of start times in /proc/PID/stat, in ticks a second: 100 on every architecture of Go.
	userHZ = 100
	// kernelThread is PF_KTHREAD of include/linux/sched.h.
	kernelThread = 0x0020_0000
)

// A stat holds fields of /proc/PID/stat.
type stat struct {
	pid, ppid int
	comm      string // at most 15 bytes, for kernel threads more
	state     byte
	start     uint64 // ticks after boot
	kernel    bool   // a kernel thread
	threads   int    // of the whole process, whichever thread's file was read
	rss       int    // resident memory in bytes
}

// readStat reads stat of a process or a thread by its folder, in less than half of the time that procfs takes.
func readStat(dir string) (stat, error) {
	text, err := readSmall(dir, "stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// parseStat parses a stat file (proc_pid_stat(5)). A comm may hold spaces and parentheses.
func parseStat(text string) (stat, error) {
	const state, ppid, flags, threads, start, rss = 0, 1, 6, 17, 19, 21 // counted from behind comm
	before, rest, _ := strings.Cut(text, " (")
	end := strings.LastIndex(rest, ") ")
	f := strings.Fields(rest[end+1:])
	if end < 0 || len(f) <= rss || len(f[state]) != 1 {
		return stat{}, errors.New("malformed stat")
	}
	var failed error
	number := func(s string) int {
		n, err := strconv.ParseUint(s, 10, 48)
		failed = errors.Join(failed, err)
		return int(n)
	}
	st := stat{
		pid: number(before), ppid: number(f[ppid]), state: f[state][0],
		comm:  strings.Clone(rest[:end]), // a part of text would keep all of it
		start: uint64(number(f[start])), kernel: number(f[flags])&kernelThread != 0, threads: number(f[threads]),
		rss: number(f[rss]) * os.Getpagesize(),
	}
	return st, failed
}
