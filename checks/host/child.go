package host

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// errNoAnswer is the error of a child that has not written in time.
var errNoAnswer = errors.New("no answer in time")

// next reads the next line of the child, and waits for it no longer than until by, or until ctx ends. After errNoAnswer
// it may be called again.
func (p *running) next(ctx context.Context, by time.Time) (reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.pipe.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.pipe.SetReadDeadline(by); err != nil {
		return reply{}, fmt.Errorf("reading from a child: %w", err)
	}
	if ctx.Err() != nil {
		return reply{}, errNoAnswer
	}
	line, err := p.lines.ReadSlice('\n') // a child writes a line at once, or not at all
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reply{}, errNoAnswer
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
	child    Child
	people   Population
	root     string
	verb     string
	patience time.Duration
	spots    []spot
	outcomes []outcome // of the spots; each has one writer at a time
}

// ask probes the spots. It returns before ctx ends, and an error when a child could not be started.
func (q *inquiry) ask(ctx context.Context, spots []spot) ([]outcome, error) {
	if end, ok := ctx.Deadline(); ok {
		short, cancel := context.WithDeadline(ctx, end.Add(-min(lead, time.Until(end)/4)))
		defer cancel()
		ctx = short
	}
	q.spots, q.outcomes = spots, make([]outcome, len(spots))
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
	for width := 1; len(rest) > 0 && places > 0 && ctx.Err() == nil; width = maxChildren {
		children := min(width, places)
		parts := slices.Collect(slices.Chunk(rest, (len(rest)+children-1)/children))
		left, stuck, errs := make([][]int, len(parts)), make([]bool, len(parts)), make([]error, len(parts))
		var all sync.WaitGroup
		for i, part := range parts {
			all.Go(func() { left[i], stuck[i], errs[i] = q.one(ctx, part) })
		}
		all.Wait()
		if err := cmp.Or(errs...); err != nil {
			return q.outcomes, err
		}
		rest = slices.Concat(left...)
		for _, s := range stuck {
			if s {
				places--
			}
		}
	}
	return q.outcomes, nil
}

// one has one child probe spots until one of them hangs, and returns those that it did not start.
func (q *inquiry) one(ctx context.Context, spots []int) (rest []int, stuck bool, err error) {
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
		return nil, false, err
	}
	done, err := q.read(ctx, c, spots[:len(paths)])
	gone := c.kill()
	for _, i := range spots[:done] {
		if gone {
			q.outcomes[i].pid = 0 // although the spot never answered
		}
	}
	return spots[done:], !gone, err
}

// read notes the replies of a child to its spots, and returns how many of them are done with.
func (q *inquiry) read(ctx context.Context, c *running, spots []int) (int, error) {
	end, bounded := ctx.Deadline()
	if !bounded {
		end = time.Now().Add(time.Minute)
	}
	pid := c.cmd.Process.Pid
	for done, i := range spots {
		// Until it has written that it begins, a child waits for nothing but a CPU and its own program.
		if _, err := c.next(ctx, end); err != nil {
			return len(spots), err
		}
		begun := time.Now()
		by := begun.Add(q.patience)
		if end.Before(by) {
			by = end
		}
		got, err := c.next(ctx, by)
		if errors.Is(err, errNoAnswer) && time.Now().Before(end) && runnable(q.root, pid) {
			got, err = c.next(ctx, end) // it waits for a CPU, not for its file system
		}
		switch waiting := time.Since(begun); {
		case err == nil:
			q.outcomes[i] = outcome{asked: true, reply: got}
		case !errors.Is(err, errNoAnswer):
			q.outcomes[i] = outcome{asked: true, reply: reply{Err: err.Error()}}
			return done + 1, nil
		case waiting >= min(q.patience, patience):
			q.outcomes[i] = outcome{asked: true, hung: true, waiting: waiting, pid: pid}
			return done + 1, nil
		default: // the time was up too soon to know
			return len(spots), nil
		}
		if ctx.Err() != nil {
			return len(spots), nil
		}
	}
	return len(spots), nil
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
		dir := p.dir(pid)
		info, err := os.Stat(dir)
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue
		}
		if ns, _ := os.Readlink(dir + "/ns/pid"); ns != own {
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
			argv = nulSeparated(thread, "cmdline")
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
	return slices.ContainsFunc(Population{root: root}.threads(pid), func(thread string) bool {
		st, _ := readStat(thread)
		return st.state == 'R'
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
