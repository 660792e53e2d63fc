package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

const (
	// maxThreadReads bounds the threads that are read one by one, at about 20 microseconds each.
	maxThreadReads = 50_000
	// maxSuspects bounds the threads in uninterruptible sleep that are read again. A dead file server under a busy
	// node has hundreds.
	maxSuspects = 2000
	maxMaps     = 4 // processes whose memory map is tried
	mapTimeout  = 300 * time.Millisecond
	maxBlocked  = 100 // lasting ones that are kept
	maxParents  = 10  // of zombies, that are named
	maxFrames   = 32  // of a stack, innermost first
	maxStopped  = 50  // daemons and shims that are named
)

// Tasks sums up the host's processes.
type Tasks struct {
	Processes, Threads int
	Blocked            []BlockedTask // lasting; those of the runtime, the kubelet, shims and containers first
	Zombies            int
	ZombiesByParent    []ZombieParent // most first, bounded
	Stopped            []Process      // runtime, kubelet, shims in state T
	// Watchers are looked for where a blocked task waits for the answer of one; bounded.
	Watchers []Watcher `json:",omitempty"`
	// FIFOs are what threads of the node's daemons wait to open; bounded.
	FIFOs []FIFOWait `json:",omitempty"`
	// Outputs are threads that wait to write to a log that nobody reads; bounded.
	Outputs []OutputWait `json:",omitempty"`
	// Living holds the containers and sandboxes in whose control groups a process lives; nil when not all were read.
	Living map[string]bool
}

// A BlockedTask is a thread in uninterruptible sleep in two reads some time apart, in the same place.
type BlockedTask struct {
	PID, TID int
	Name     string
	Wchan    string   // kernel function that it waits in
	Stack    []string // functions, innermost first, without addresses; nil when it may not be read
	Started  time.Time
	// MapLocked is set when its command line cannot be read: who looks at the memory map of the process waits with it.
	MapLocked bool
	// Waited is how long it was seen to wait for a Watcher; 0 for any other wait.
	Waited time.Duration `json:",omitempty"`
	// Disks are the file systems of which one is frozen, where it waits for the end of that.
	Disks []TaskDisk `json:",omitempty"`
	// Path is what a thread of the node's daemons waits for autofs to mount; empty where it is not known.
	Path string `json:",omitempty"`
	Owner
}

// A ZombieParent is a process that does not wait for its children.
type ZombieParent struct {
	PID   int
	Name  string
	Count int
	Owner
}

// ReadTasks reads all processes, and twice the threads in uninterruptible sleep. One that has not been switched
// to in between is blocked, as the kernel's own watch for hung tasks has it (kernel/hung_task.c).
//
// Only the thread's own file shows whether it sleeps so, and in a daemon written in Go it is hardly ever the main
// one. So the threads are read one by one: first those of processes with a role, then those of containers, then the
// others, up to maxThreads of a process and maxThreadReads in all. A process of one thread costs nothing more.
//
// Stacks and cgroups, which can block, are read last; when that does not end, all the rest is there, with an error.
func ReadTasks(ctx context.Context, processes Population, between time.Duration) (Tasks, error) {
	err := processes.gap()
	if processes.all == nil {
		return Tasks{}, fmt.Errorf("reading tasks: %w", err)
	}
	began := time.Now()
	tasks := processes.summary()
	asleep, opening, writing := processes.suspects(ctx, maxThreadReads)
	if len(asleep)+len(opening)+len(writing) > 0 {
		if e := pause(ctx, between-time.Since(began)); e != nil {
			return tasks, errors.Join(err, fmt.Errorf("reading blocked tasks again: %w", e))
		}
	}
	asleep = slices.DeleteFunc(asleep, func(s suspect) bool { return !s.stayed() }) // a busy disk, and no hang
	asleep = asleep[:min(len(asleep), maxBlocked)]
	for _, s := range keepWatching(ctx, asleep) {
		tasks.Blocked = append(tasks.Blocked, s.BlockedTask)
	}
	err = errors.Join(err, processes.explain(ctx, &tasks))
	fifos, e := processes.fifos(ctx, opening)
	tasks.FIFOs, err = fifos, errors.Join(err, e)
	outputs, e := processes.outputs(ctx, writing)
	tasks.Outputs, err = outputs, errors.Join(err, e)
	watchers, e := processes.watchers(ctx, tasks.Blocked)
	tasks.Watchers = watchers
	err = errors.Join(err, e, ctx.Err())
	if err == nil {
		tasks.Living = processes.living(ctx)
	}
	return tasks, err
}

// living returns the containers and sandboxes that have a process other than a zombie.
func (p Population) living(ctx context.Context) map[string]bool {
	const what = "reading the control groups of processes"
	found, err := gather(ctx, what, p.alive(), func(at *position, pid int) (string, bool) {
		id := ownerOfCgroups(p.cgroups(at, pid)).ObjectID
		return id, id != ""
	})
	if err != nil {
		return nil
	}
	alive := map[string]bool{}
	for _, id := range found {
		alive[id] = true
	}
	return alive
}

// summary counts processes and threads, and finds zombies and stopped daemons.
func (p Population) summary() Tasks {
	t := Tasks{Processes: len(p.all)}
	parents := map[int]int{}
	for _, st := range p.all {
		t.Threads += max(st.threads, 1)
		// While threads of it live, no parent can wait for a process whose main thread has ended.
		if st.state == 'Z' && st.threads <= 1 {
			t.Zombies++
			parents[st.ppid]++
		}
	}
	for _, process := range p.of(RoleRuntime, RoleKubelet, RoleShim) {
		if process.State == 'T' && len(t.Stopped) < maxStopped {
			t.Stopped = append(t.Stopped, process)
		}
	}
	for pid, count := range parents {
		t.ZombiesByParent = append(t.ZombiesByParent, ZombieParent{PID: pid, Name: p.all[pid].comm, Count: count})
	}
	t.ZombiesByParent = top(t.ZombiesByParent, maxParents, func(a, b ZombieParent) int {
		return cmp.Or(b.Count-a.Count, a.PID-b.PID)
	})
	return t
}

// A suspect is a thread that was in uninterruptible sleep in the first read.
type suspect struct {
	BlockedTask
	dir      string // of the thread
	start    uint64
	state    byte
	switches string // how often it has been switched away from
}

// suspects reads up to limit threads, and returns those in uninterruptible sleep, and those of the node's daemons that
// open a FIFO, or write to what is full.
func (p Population) suspects(ctx context.Context, limit int) (list, opening, writing []suspect) {
	for _, st := range p.byWorth() {
		daemon := mayOpen(p.roles[st.pid])
		threads := []string{filepath.Join(p.dir(st.pid), "task", strconv.Itoa(st.pid))}
		switch {
		case strings.HasPrefix(st.comm, childPrefix): // kdiag's own, which shows the same for its mount
			continue
		case st.threads > 1 && ctx.Err() == nil && limit > 0:
			threads = p.threads(st.pid)
			limit -= len(threads)
		case st.state != 'D' && !daemon:
			continue
		}
		for _, dir := range threads {
			t, err := readStat(dir)
			full := len(list)+len(opening)+len(writing) == maxSuspects
			if err != nil || t.state != 'D' && !(daemon && t.state == 'S') || full {
				continue
			}
			wait, found := wchan(dir), &list
			switch {
			case t.state == 'D':
			case wait == opensFIFO:
				found = &opening
			case slices.Contains(fullOutput, wait):
				found = &writing
			default:
				continue
			}
			s := suspect{dir: dir, start: t.start, state: t.state, switches: switches(dir)}
			s.BlockedTask = BlockedTask{PID: st.pid, TID: t.pid, Name: t.comm, Wchan: wait, Started: p.started(t.start)}
			*found = append(*found, s)
		}
	}
	return list, opening, writing
}

// switches returns how often a thread has been switched away from, as two numbers.
func switches(dir string) string {
	return fmt.Sprint(status(dir, "voluntary_ctxt_switches"), status(dir, "nonvoluntary_ctxt_switches"))
}

// stayed reads a thread for the second time, and reports whether the thread has slept ever since the first.
func (s suspect) stayed() bool {
	st, err := readStat(s.dir)
	return err == nil && st.state == s.state && st.start == s.start && switches(s.dir) == s.switches
}

// explain adds owners and stacks, as far as they can be read.
func (p Population) explain(ctx context.Context, tasks *Tasks) error {
	pids := map[*Owner]int{}
	for i := range tasks.Blocked {
		pids[&tasks.Blocked[i].Owner] = tasks.Blocked[i].PID
	}
	for i := range tasks.ZombiesByParent {
		pids[&tasks.ZombiesByParent[i].Owner] = tasks.ZombiesByParent[i].PID
	}
	dirs := make([]string, len(tasks.Blocked))
	for i, t := range tasks.Blocked {
		dirs[i] = filepath.Join(p.dir(t.PID), "task", strconv.Itoa(t.TID))
	}
	// A stack waits for an exec of its process to end (lock_trace in fs/proc/base.c).
	stacks, err := gather(ctx, "reading kernel stacks", dirs, func(at *position, dir string) ([]string, bool) {
		at.enter("%s/stack", dir)
		text, err := readSmall(dir, "stack")
		return parseStack(text), err == nil
	})
	for i, dir := range dirs {
		tasks.Blocked[i].Stack = stacks[dir]
	}
	p.explainFrozen(ctx, tasks.Blocked)
	p.explainAutofs(ctx, tasks.Blocked)
	locked := map[int]bool{}
	for i, t := range tasks.Blocked {
		if _, tried := locked[t.PID]; !tried && len(locked) < maxMaps {
			locked[t.PID] = p.mapLocked(ctx, t.PID)
		}
		tasks.Blocked[i].MapLocked = locked[t.PID]
	}
	return errors.Join(err, p.setOwners(ctx, pids))
}

// mapLocked reports whether the command line of a process, which lies in its memory, cannot be read.
func (p Population) mapLocked(ctx context.Context, pid int) bool {
	ctx, cancel := context.WithTimeout(ctx, mapTimeout)
	defer cancel()
	_, err := within(ctx, "reading a locked command line", func(at *position) (struct{}, error) {
		at.enter("cmdline of process %d", pid)
		nulSeparated(p.dir(pid), "cmdline")
		return struct{}{}, nil
	})
	return errors.Is(err, deadline.ErrAbandoned)
}

// parseStack reads the functions of a kernel stack, without their addresses and offsets:
//
//	[<0>] wait_for_vfork_done+0x30/0x60
//	[<0>] rpc_wait_bit_killable+0x20/0xb0 [sunrpc]
func parseStack(text string) []string {
	var functions []string
	for line := range strings.Lines(text) {
		_, frame, _ := strings.Cut(line, "] ")
		name, _, ok := strings.Cut(strings.TrimSpace(frame), "+0x")
		if ok && symbol.MatchString(name) && len(functions) < maxFrames {
			functions = append(functions, name)
		}
	}
	return functions
}

// symbol is a function of the kernel, whose compilers append .isra.0 and the like.
var symbol = lazyregexp.New(`^[\w.]{1,128}$`)
