package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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
