package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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

// A Row is one process in the table of all. Its Role is empty for a process without one.
type Row struct {
	Process
	RSS    int    // resident memory, bytes
	Cgroup string // its path; empty when not known
	// Args are the arguments of daemons, shims and the kubelet. Those of others stay on the node: a container's may
	// hold secrets.
	Args []string
}

// Table returns all processes, those with a role first. Cgroups and arguments, whose reads can block, are read for as
// many as gatherTimeout allows; the error names where the reader was abandoned.
func (p Population) Table(ctx context.Context) ([]Row, error) {
	if p.all == nil {
		return nil, p.gap()
	}
	order := p.byWorth()
	order = order[:min(len(order), maxEntries)]
	found, err := gather(ctx, "reading the table of processes", order, func(at *position, st stat) (r Row, ok bool) {
		if st.kernel {
			return r, false
		}
		for _, m := range p.cgroups(at, st.pid) {
			if len(m.cgroup) > len(r.Cgroup) { // some hierarchies of cgroup v1 have nothing but the root
				r.Cgroup = m.cgroup
			}
		}
		daemons := []Role{RoleRuntime, RoleShim, RoleKubelet}
		if st.state != 'D' && slices.Contains(daemons, p.roles[st.pid].Role) {
			at.enter("cmdline of process %d (%s)", st.pid, st.comm)
			r.Args = nulSeparated(p.dir(st.pid), "cmdline")
		}
		return r, true
	})
	rows := make([]Row, 0, len(order))
	for _, st := range order {
		r, known := found[st], p.roles[st.pid]
		if now, err := readStat(p.dir(st.pid)); err == nil && now.start == st.start {
			st = now
		}
		r.Process, r.RSS = p.describe(st, known.Role, known.ObjectID), st.rss
		rows = append(rows, r)
	}
	return rows, err
}

// A Thread is one thread of a process at one moment.
type Thread struct {
	State byte     // as in /proc/PID/stat: R S D T t Z I
	Wchan string   // kernel function that it waits in; empty when not known or not waiting
	Stack []string // kernel functions, innermost first; nil when it may not be read
}

// ReadThreads reads where up to maxThreads threads of a process are in the kernel. The stacks need root. With an error
// there may be a part of them.
func ReadThreads(ctx context.Context, root string, pid int) ([]Thread, error) {
	dirs := Population{root: root}.threads(pid)
	found, err := gather(ctx, "reading kernel stacks", dirs, func(at *position, dir string) (Thread, bool) {
		st, err := readStat(dir)
		at.enter("%s/stack", dir)
		text, _ := readSmall(dir, "stack")
		return Thread{st.state, wchan(dir), parseStack(text)}, err == nil
	})
	var list []Thread
	for _, dir := range dirs {
		if t, ok := found[dir]; ok {
			list = append(list, t)
		}
	}
	return list, err
}

// Vitals identify a process, and say how it handles signals.
type Vitals struct {
	Name    string    // comm
	Program string    // base name of the file that it runs
	State   byte      // as in Process
	Started time.Time // as in Process; zero when not known
	// The signals that it catches, that its first thread blocks, and that it has not received yet; bit N-1 is signal N.
	Caught, Blocked, Pending uint64
}

// ReadVitals reads the vitals of a process. Nothing of it waits for the process.
func ReadVitals(root string, pid int) (Vitals, error) {
	p := Population{root: root, boot: bootTime(root)}
	st, err := readStat(p.dir(pid))
	if err != nil {
		return Vitals{}, fmt.Errorf("process %d has ended", pid)
	}
	v := Vitals{Name: st.comm, State: st.state, Started: p.started(st.start)}
	program, err := os.Readlink(filepath.Join(p.dir(pid), "exe"))
	if err != nil {
		return v, fmt.Errorf("the program of process %d may not be read by this user", pid)
	}
	v.Program = filepath.Base(strings.TrimSuffix(program, " (deleted)")) // of an update
	text, _ := readSmall(p.dir(pid), "status")
	var failed error
	signals := func(key string) uint64 { // SigBlk:	fffffffe3bfa3a00
		n, err := strconv.ParseUint(strings.Join(fieldsAfter(text, key), ""), 16, 64)
		failed = errors.Join(failed, err)
		return n
	}
	v.Pending, v.Blocked, v.Caught = signals("ShdPnd:"), signals("SigBlk:"), signals("SigCgt:")
	if failed != nil {
		return v, fmt.Errorf("the signals of process %d cannot be read", pid)
	}
	return v, nil
}

// wchan returns the kernel function that a process or thread waits in; empty for one that runs or may not be looked at.
func wchan(dir string) string {
	text, _ := readSmall(dir, "wchan")
	if text = strings.TrimSpace(text); text != "0" {
		return text
	}
	return ""
}

// status returns the fields after a key in the status file of a process or thread.
func status(dir, key string) []string {
	text, _ := readSmall(dir, "status")
	return fieldsAfter(text, key+":")
}
