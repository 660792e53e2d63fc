package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	// maxThreadReads bounds the threads that are looked at one by one, at about 15 microseconds each.
	maxThreadReads = 50_000
	// maxSuspects bounds the threads in uninterruptible sleep that are looked at again. A dead file server under a busy
	// node has hundreds; more say no more.
	maxSuspects = 2000
	// maxBlocked bounds the lasting ones that are kept.
	maxBlocked = 100
)

// ReadTasks looks at all processes, and twice at the threads in uninterruptible sleep. One that has not been switched to
// in between is blocked, as the kernel's own watch for hung tasks has it (kernel/hung_task.c); where the number of
// switches cannot be read, the same place has to do.
//
// Whether a thread sleeps so only its own file says, and in a daemon written in Go it is hardly ever the main one. So
// the threads are looked at one by one: first those of processes with a role, then those of containers, then the
// others, up to 512 of a process and 50,000 in all. A process of one thread costs nothing more. Unread says how many
// processes were left out.
//
// No command line of a process in uninterruptible sleep is read, nor anything else that waits for its memory map. What
// else can block, stacks and cgroups, is read last; when that does not end, all the rest is there, with an error.
func ReadTasks(ctx context.Context, people Population, between time.Duration) (Tasks, error) {
	err := people.gap()
	if people.all == nil {
		return Tasks{}, fmt.Errorf("looking at tasks: %w", err)
	}
	w := &watch{people: people, left: maxThreadReads}
	began := time.Now()
	suspects := w.suspects(ctx)
	tasks := people.summary()
	tasks.Unread = w.unread
	if len(suspects) > 0 {
		if e := pause(ctx, between-time.Since(began)); e != nil {
			return tasks, errors.Join(err, fmt.Errorf("looking at blocked tasks again: %w", e))
		}
	}
	blocked := w.lasting(suspects)
	tasks.BlockedMoments = len(suspects) - len(blocked)
	tasks.Blocked = blocked[:min(len(blocked), maxBlocked)]
	tasks.BlockedMore = len(blocked) - len(tasks.Blocked) + w.more
	return tasks, errors.Join(err, people.explain(ctx, &tasks), ctx.Err())
}

// A suspect is a thread that was in uninterruptible sleep in the first look.
type suspect struct {
	BlockedTask
	start    uint64
	switches uint64
	counted  bool // switches are known
}

// A watch looks for threads in uninterruptible sleep.
type watch struct {
	people Population
	left   int // thread files that may yet be read
	unread int
	more   int // suspects beyond maxSuspects
}

func (w *watch) suspects(ctx context.Context) []suspect {
	var list []suspect
	add := func(process, thread stat) {
		if len(list) == maxSuspects {
			w.more++
			return
		}
		s := suspect{start: thread.start, BlockedTask: BlockedTask{
			PID: process.pid, TID: thread.pid, Name: thread.comm, Kernel: process.kernel,
			Started: startTime(w.people.scan.boot, thread.start),
		}}
		s.Wchan, s.switches, s.counted = w.where(s.PID, s.TID)
		list = append(list, s)
	}
	for _, st := range w.people.byWorth() {
		if st.threads <= 1 {
			if st.state == 'D' {
				add(st, st)
			}
			continue
		}
		if ctx.Err() != nil || w.left <= 0 {
			w.unread++
			if st.state == 'D' {
				add(st, st)
			}
			continue
		}
		for _, thread := range w.threads(st) {
			if thread.state == 'D' {
				add(st, thread)
			}
		}
	}
	return list
}

// threads reads the threads of a process, as many as may be read.
func (w *watch) threads(process stat) []stat {
	task := strconv.Itoa(process.pid) + "/task"
	dir, err := os.Open(filepath.Join(w.people.scan.proc, task))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.unread++
		}
		return nil
	}
	defer dir.Close()
	limit := min(maxThreads, w.left)
	names, _ := dir.Readdirnames(limit)
	w.left -= len(names)
	if len(names) == limit && process.threads > limit {
		w.unread++
	}
	slices.Sort(names)
	var list []stat
	for _, name := range names {
		if st, err := parseStat(w.people.scan.read(filepath.Join(task, name, "stat"), 4<<10)); err == nil {
			list = append(list, st)
		}
	}
	return list
}

// where says what a thread waits in, and how often it has been switched away from until now.
func (w *watch) where(pid, tid int) (wchan string, switches uint64, counted bool) {
	dir := taskDirOf(pid, tid)
	status := w.people.scan.read(filepath.Join(dir, "status"), 16<<10)
	switches, counted = parseSwitches(status)
	return w.people.scan.wchan(dir), switches, counted
}

func taskDirOf(pid, tid int) string {
	return filepath.Join(strconv.Itoa(pid), "task", strconv.Itoa(tid))
}

// lasting takes the second look and keeps the suspects that have not run since the first.
func (w *watch) lasting(suspects []suspect) []BlockedTask {
	var list []BlockedTask
	for _, first := range suspects {
		st, err := parseStat(w.people.scan.read(filepath.Join(taskDirOf(first.PID, first.TID), "stat"), 4<<10))
		if err != nil || st.state != 'D' || st.start != first.start {
			continue
		}
		second := first
		second.Wchan, second.switches, second.counted = w.where(first.PID, first.TID)
		if stayed(first, second) {
			list = append(list, first.BlockedTask)
		}
	}
	return list
}

// explain adds owners and stacks, as far as they can be read.
func (p Population) explain(ctx context.Context, tasks *Tasks) error {
	type thread struct{ pid, tid int }
	var threads []thread
	var pids []int
	for _, task := range tasks.Blocked {
		threads = append(threads, thread{task.PID, task.TID})
		pids = append(pids, task.PID)
	}
	for _, parent := range tasks.ZombiesByParent {
		pids = append(pids, parent.PID)
	}
	// A stack waits for an exec of its process to end (lock_trace in fs/proc/base.c).
	stacks, noStacks := gather(ctx, threads, func(at *position, t thread) []string {
		at.enter(fmt.Sprintf("the stack of task %d of process %d (%s)", t.tid, t.pid, p.all[t.pid].comm))
		return parseStack(p.scan.read(filepath.Join(taskDirOf(t.pid, t.tid), "stack"), 4<<10))
	})
	owners, noOwners := p.owners(ctx, pids)
	for i := range tasks.Blocked {
		task := &tasks.Blocked[i]
		task.Owner, task.Stack = owners[task.PID], stacks[thread{task.PID, task.TID}]
	}
	for i := range tasks.ZombiesByParent {
		tasks.ZombiesByParent[i].Owner = owners[tasks.ZombiesByParent[i].PID]
	}
	return errors.Join(noStacks, noOwners)
}
