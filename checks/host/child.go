package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How children are used.
const (
	// patience is how long one probe may take until it counts as hung: a dead server answers after minutes or never,
	// and one that is merely far away within milliseconds.
	patience = 1500 * time.Millisecond
	// maxChildren are the children of one kind at a time, those that are stuck from earlier runs among them.
	maxChildren = 8
	// maxChildArgs bounds the paths that one child is given, in bytes; the kernel takes a quarter of the stack's limit.
	maxChildArgs = 128 << 10
	// lead is how long before its deadline an inquiry stops waiting, so that it can still return what it has.
	lead = 400 * time.Millisecond
	// reapTime is how long a killed process that is not stuck may take to be gone.
	reapTime = 300 * time.Millisecond
)

// A Child starts kdiag anew. What can fall into a sleep that no signal ends (statfs of a dead file system) is done by a
// process that can be left behind, so that this one always ends. The zero value starts nothing, and what needs a child
// returns an error.
type Child struct{ program string }

// NewChild returns how to start this program, /proc/self/exe, as a child.
func NewChild(program string) Child { return Child{program} }

// A running is a child that has been started.
type running struct {
	cmd   *exec.Cmd
	pipe  *os.File
	lines *bufio.Reader
	ended chan struct{} // closed when the process is gone
}

// start starts a child that does verb to each path in turn. It has its own session, and nothing of this process but
// the pipe: a terminal or a pipe that waits for kdiag's end does not wait for a child that is stuck. If this process
// is killed, so is the child.
func (c Child) start(verb, base string, paths []string) (*running, error) {
	if c.program == "" {
		return nil, errors.New("starting a child: no program was given")
	}
	// A supervisor may wait for the end of a pipe that it handed down. What a Go program opens itself is not passed
	// on anyway.
	for _, name := range names("/proc/self/fd") {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a child: %w", err)
	}
	defer w.Close()
	cmd := exec.Command(c.program, slices.Concat([]string{ChildArgument, verb, base}, paths)...)
	cmd.Stdout = w
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("starting a child: %w", err)
	}
	p := &running{cmd: cmd, pipe: r, lines: bufio.NewReader(r), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what it wrote tells how it ended
		close(p.ended)
	}()
	return p, nil
}

// errSilent is the error of a child that has not written in time.
var errSilent = errors.New("no answer in time")

// next reads the next line of the child, and waits for it no longer than until by, or until ctx ends. After errSilent
// it may be called again.
func (p *running) next(ctx context.Context, by time.Time) (reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.pipe.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.pipe.SetReadDeadline(by); err != nil {
		return reply{}, fmt.Errorf("reading from a child: %w", err)
	}
	if ctx.Err() != nil {
		return reply{}, errSilent
	}
	line, err := p.lines.ReadSlice('\n') // a child writes a line at once, or not at all
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reply{}, errSilent
	}
	if err != nil {
		return reply{}, errors.New("the child ended early")
	}
	var got reply
	if err := json.Unmarshal(line, &got); err != nil {
		return reply{}, fmt.Errorf("reading from a child: %w", err)
	}
	return got, nil
}

// kill ends the child and reports whether it is gone. One in an uninterruptible sleep is not, until what it waits for
// happens.
func (p *running) kill() bool {
	_ = p.cmd.Process.Kill() // it may be gone
	p.pipe.Close()
	select {
	case <-p.ended:
		return true
	case <-time.After(reapTime):
		return false
	}
}

// An outcome is the result for one spot.
type outcome struct {
	asked   bool
	hung    bool
	reply   reply // when it was asked and does not hang
	waiting time.Duration
	pid     int // of the child that is still there
}

// A spot is what is probed, by its paths. The first is asked; a child of an earlier run may wait in any of them.
type spot []string

// An inquiry probes several spots by children: by one as long as all is well. When one hangs, its child is killed,
// and what it had not started is shared out among several. A child that the kill does not end keeps its place among
// maxChildren.
type inquiry struct {
	child     Child
	people    Population
	root      string
	verb      string
	patience  time.Duration
	samePlace bool          // the spots are one place: what hangs once is not tried again
	enough    time.Duration // if not 0, the time after which no further spot is started

	began    time.Time
	spots    []spot
	mu       sync.Mutex
	outcomes []outcome
	err      error
}

// ask probes the spots. It returns before ctx ends, and an error when a child could not be started.
func (q *inquiry) ask(ctx context.Context, spots []spot) ([]outcome, error) {
	if end, ok := ctx.Deadline(); ok {
		short, cancel := context.WithDeadline(ctx, end.Add(-min(lead, time.Until(end)/4)))
		defer cancel()
		ctx = short
	}
	q.began, q.spots, q.outcomes = time.Now(), spots, make([]outcome, len(spots))
	places := maxChildren
	known := q.people.stuckChildren()
	for _, e := range known {
		if e.verb == q.verb {
			places--
		}
	}
	var rest []int
	for i, s := range spots {
		// A write can hang where statfs does not.
		j := slices.IndexFunc(known, func(e earlier) bool {
			return (e.verb == verbWrite) == (q.verb == verbWrite) && slices.Contains(s, e.path) && e.waiting >= patience
		})
		if j >= 0 {
			q.outcomes[i] = outcome{asked: true, hung: true, waiting: known[j].waiting, pid: known[j].pid}
			continue
		}
		rest = append(rest, i)
	}
	for width := 1; len(rest) > 0 && places > 0 && q.goesOn(ctx); width = maxChildren {
		rest, places = q.round(ctx, rest, min(width, places), places)
		if q.samePlace {
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.outcomes, q.err
}

// goesOn reports whether a further spot may be started.
func (q *inquiry) goesOn(ctx context.Context) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err == nil && ctx.Err() == nil && (q.enough == 0 || time.Since(q.began) < q.enough)
}

// round shares spots out among some children, and returns those that were not started and the places that are left.
func (q *inquiry) round(ctx context.Context, spots []int, children, places int) ([]int, int) {
	var rest []int
	var mu sync.Mutex
	var all sync.WaitGroup
	for part := range slices.Chunk(spots, (len(spots)+children-1)/children) {
		all.Go(func() {
			left, stuck := q.one(ctx, part)
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, left...)
			if stuck {
				places--
			}
		})
	}
	all.Wait()
	return rest, places
}

// one has one child probe spots until one of them hangs, and returns those that it did not start.
func (q *inquiry) one(ctx context.Context, spots []int) (rest []int, stuck bool) {
	var paths []string
	size := 0
	for _, i := range spots {
		if size += len(q.spots[i][0]) + 1; size > maxChildArgs && len(paths) > 0 {
			break
		}
		paths = append(paths, q.spots[i][0])
	}
	c, err := q.child.start(q.verb, hostBase(q.root), paths)
	if err != nil {
		q.fail(err)
		return nil, false
	}
	done := q.read(ctx, c, spots[:len(paths)])
	gone := c.kill()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.outcomes {
		if gone && q.outcomes[i].pid == c.cmd.Process.Pid {
			q.outcomes[i].pid = 0 // although the spot never answered
		}
	}
	return spots[done:], !gone
}

// read notes the replies of a child to its spots, and returns how many of them are done with.
func (q *inquiry) read(ctx context.Context, c *running, spots []int) int {
	end, bounded := ctx.Deadline()
	if !bounded {
		end = time.Now().Add(time.Minute)
	}
	pid := c.cmd.Process.Pid
	for done, i := range spots {
		// Until it has written that it begins, a child waits for nothing but a CPU and its own program.
		if _, err := c.next(ctx, end); err != nil {
			q.fail(err)
			return len(spots)
		}
		begun := time.Now()
		by := begun.Add(q.patience)
		if end.Before(by) {
			by = end
		}
		got, err := c.next(ctx, by)
		if errors.Is(err, errSilent) && time.Now().Before(end) && runnable(q.root, pid) {
			got, err = c.next(ctx, end) // it waits for a CPU, not for its file system
		}
		switch waiting := time.Since(begun); {
		case err == nil:
			q.note(i, outcome{asked: true, reply: got})
		case !errors.Is(err, errSilent):
			q.note(i, outcome{asked: true, reply: reply{Err: err.Error()}})
			return done + 1
		case waiting >= min(q.patience, patience):
			q.note(i, outcome{asked: true, hung: true, waiting: waiting, pid: pid})
			return done + 1
		default: // the time was up too soon to tell
			return len(spots)
		}
		if !q.goesOn(ctx) {
			return len(spots)
		}
	}
	return len(spots)
}

func (q *inquiry) note(i int, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outcomes[i] = o
}

func (q *inquiry) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
}

// An earlier is a child of an earlier run, or of another kdiag, that is stuck.
type earlier struct {
	pid     int
	verb    string
	path    string // what it waits in
	waiting time.Duration
}

// stuckChildren finds the children that earlier runs left behind: processes of this user and of this process's PID
// namespace that have the name of one, of which a thread is in uninterruptible sleep. A process in a container can
// have any name, and is in another namespace.
func (p Population) stuckChildren() []earlier {
	own, _ := os.Readlink("/proc/self/ns/pid")
	var found []earlier
	for pid, st := range p.all {
		index, ok := childIndex(st.comm)
		if !ok {
			continue
		}
		dir := filepath.Join(p.root, "proc", strconv.Itoa(pid))
		info, err := os.Stat(dir)
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue
		}
		if ns, _ := os.Readlink(filepath.Join(dir, "ns/pid")); ns != own {
			continue
		}
		if e, ok := p.stuckIn(pid, index); ok {
			found = append(found, e)
		}
	}
	return found
}

// stuckIn finds what a child waits in. When its first thread is not the one that is stuck, that is dead by then, and
// only the others have the arguments still.
func (p Population) stuckIn(pid, index int) (earlier, bool) {
	var argv []string
	blocked := false
	for _, thread := range p.threads(pid) {
		st, err := readStat(thread)
		blocked = blocked || err == nil && st.state == 'D'
		if len(argv) <= 1 { // of a dead thread, one that is empty
			argv, _ = thread.CmdLine()
		}
	}
	verb, path, ok := childTask(argv, index)
	e := earlier{pid: pid, verb: verb, path: path}
	if started := p.started(p.all[pid].start); !started.IsZero() {
		e.waiting = max(0, time.Since(started))
	}
	return e, ok && blocked
}

// runnable reports whether a thread of a process waits for a CPU or has one.
func runnable(root string, pid int) bool {
	task := filepath.Join(root, "proc", strconv.Itoa(pid), "task")
	return slices.ContainsFunc(names(task), func(tid string) bool {
		b, _ := readSmall(task, tid, "stat")
		_, rest, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(rest, "R")
	})
}

// childName is the process name of a child at work on the path with an index: at most 15 bytes.
func childName(index int) string { return ChildArgument + ":" + strconv.Itoa(index) }

func childIndex(comm string) (int, bool) {
	n, ok := strings.CutPrefix(comm, ChildArgument+":")
	index, err := strconv.Atoi(n)
	return index, ok && err == nil && index >= 0
}

// childTask finds in the arguments of a child what it does at an index.
func childTask(argv []string, index int) (verb, path string, ok bool) {
	const program, marker, ofVerb, base, paths = 0, 1, 2, 3, 4
	if len(argv) <= paths || argv[marker] != ChildArgument || index >= len(argv)-paths {
		return "", "", false
	}
	return argv[ofVerb], argv[paths+index], true
}
