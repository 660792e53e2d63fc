package host

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/crictl/proc"
)

// How children are used.
const (
	// hangTimeout is how long one probe may take until the others no longer wait for it: a server that is merely far
	// away answers within milliseconds.
	hangTimeout = 1500 * time.Millisecond
	// slowTimeout is how long it may take until it counts as hung: a dead server answers after minutes or never, a
	// loaded one after seconds.
	slowTimeout = 4 * time.Second
	// maxChildren are the children of one kind at a time, those that are stuck from earlier runs among them.
	maxChildren = 8
	// returnMargin is how long before its deadline a batch stops waiting, so that it can still return its results.
	returnMargin = 400 * time.Millisecond
	// beginTime is how long a child may wait for the program that it is to run. Boot times are whole seconds.
	beginTime = 2 * time.Second
	// reapTime is how long a killed process that is not stuck may take to be gone.
	reapTime = 300 * time.Millisecond
)

// A Child starts kdiag anew. System calls that can sleep where no signal reaches (statfs of a dead file system) run in
// a process that can be left behind, so that this one always ends. The zero value starts nothing, and functions that
// need a child return an error.
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
	// A supervisor may wait for the end of a pipe that it handed down.
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
	cmd.SysProcAttr = childAttributes()
	unbegun := time.AfterFunc(beginTime, func() { EndUnbegun(os.Getpid()) })
	defer unbegun.Stop()
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("starting a child: %w", err)
	}
	p := &running{cmd: cmd, pipe: r, lines: bufio.NewReader(r), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its output shows how it ended
		close(p.ended)
	}()
	return p, nil
}

// EndUnbegun kills the children of a process that have waited for beginTime to begin their program, as where a listener
// of fanotify does not permit its opening. Until then the thread that started one is in vfork, where Go's runtime
// cannot stop it: at the next garbage collection the whole process stands still. So another process should call this as
// well.
func EndUnbegun(parent int) {
	p := Population{root: "/", boot: bootTime("/")}
	own, err := readStat(p.dir(parent))
	if err != nil {
		return
	}
	for _, thread := range p.threads(parent) {
		children, _ := readSmall(thread, "children")
		for child := range strings.FieldsSeq(children) {
			pid, _ := strconv.Atoi(child)
			st, err := readStat(p.dir(pid))
			if err == nil && st.comm == own.comm && st.state == 'D' && time.Since(p.started(st.start)) >= beginTime {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
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
	return got, json.Unmarshal(line, &got)
}

// kill ends the child and reports whether it is gone. A child in uninterruptible sleep stays until the kernel wakes it.
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

// An outcome is the result for one target.
type outcome struct {
	asked   bool
	hung    bool
	reply   reply         // when it was asked and does not hang
	waiting time.Duration // for a reply that took longer than hangTimeout, or has not come
}

// A target is a file system or folder to probe, by its paths. The first is asked; a child of an earlier run may wait in
// any of them.
type target []string

// A batch probes several targets by children: by one as long as all is well. When one is late, its child waits for it
// until slowTimeout, and the targets that it had not started are shared out among several. That child, which may
// survive its kill, keeps its place among maxChildren.
type batch struct {
	child    Child
	root     string
	verb     string
	timeout  time.Duration // of one target
	targets  []target
	outcomes []outcome // of the targets; each has one writer at a time
	late     sync.WaitGroup
}

// ask probes targets. It returns before ctx ends, and an error when a child could not be started.
func (c Child) ask(
	ctx context.Context, root string, processes Population, verb string, targets []target,
) ([]outcome, error) {
	b := batch{
		child: c, root: root, verb: verb, timeout: hangTimeout, targets: targets, outcomes: make([]outcome, len(targets)),
	}
	if verb == verbWrite { // a slow disk is no hung one
		b.timeout = time.Minute
	}
	if end, ok := ctx.Deadline(); ok {
		short, cancel := context.WithDeadline(ctx, end.Add(-min(returnMargin, time.Until(end)/4)))
		defer cancel()
		ctx = short
	}
	rest, places := b.skipStuck(processes.stuckChildren())
	var failed error
	for width := 1; len(rest) > 0 && places > 0 && ctx.Err() == nil && failed == nil; width = maxChildren {
		children := min(width, places)
		var left []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for part := range slices.Chunk(rest, (len(rest)+children-1)/children) {
			all.Go(func() {
				more, gone, err := b.run(ctx, part)
				mu.Lock()
				defer mu.Unlock()
				left, failed = append(left, more...), cmp.Or(failed, err)
				if !gone {
					places--
				}
			})
		}
		all.Wait()
		rest = left
	}
	b.late.Wait()
	return b.outcomes, failed
}

// skipStuck takes for hung the targets in which a child of an earlier run waits. It returns the others, and how many
// more children of this kind there may be.
func (b *batch) skipStuck(stuck map[string]time.Duration) (rest []int, places int) {
	places = maxChildren
	for name := range stuck {
		if strings.HasPrefix(name, childPrefix+b.verb[:1]) {
			places--
		}
	}
	verbs := []string{verbSpace, verbMount, b.verb}
	if b.verb == verbWrite { // which can hang where the others do not
		verbs = []string{verbWrite}
	}
	for i, paths := range b.targets {
		for _, path := range paths {
			for _, verb := range verbs {
				if waiting := stuck[childName(verb, path)]; waiting >= slowTimeout {
					b.outcomes[i] = outcome{asked: true, hung: true, waiting: max(waiting, b.outcomes[i].waiting)}
				}
			}
		}
		if !b.outcomes[i].asked {
			rest = append(rest, i)
		}
	}
	return rest, places
}

// run has one child probe targets until one of them is late. It returns those that the child did not start, and whether
// the child is gone.
func (b *batch) run(ctx context.Context, targets []int) (rest []int, gone bool, err error) {
	paths := make([]string, len(targets))
	for i, t := range targets {
		paths[i] = b.targets[t][0]
	}
	c, err := b.child.start(b.verb, hostBase(b.root), paths)
	if err != nil {
		return nil, true, err
	}
	done, late, err := b.read(ctx, c, targets)
	if late.IsZero() {
		return targets[done:], c.kill(), err
	}
	b.late.Go(func() {
		o, _ := c.await(ctx, late, late.Add(slowTimeout))
		o.waiting = time.Since(late)
		b.outcomes[targets[done-1]] = o
		c.kill()
	})
	return targets[done:], false, err
}

// read notes the replies of a child to its targets, and returns how many of them are done with. The last of these may
// be late: then it returns when that was begun.
func (b *batch) read(ctx context.Context, c *running, targets []int) (done int, late time.Time, err error) {
	end, bounded := ctx.Deadline()
	if !bounded {
		end = time.Now().Add(time.Minute)
	}
	// Until it has started, a child waits for nothing but a CPU and its program.
	if _, err := c.next(ctx, end); err != nil {
		return len(targets), time.Time{}, err
	}
	for done, i := range targets {
		begun := time.Now()
		by := begun.Add(b.timeout)
		if end.Before(by) {
			by = end
		}
		o, err := c.await(ctx, begun, by)
		if o.hung && time.Now().Before(end) {
			busy := Population{root: b.root}
			if !busy.hasThread(c.cmd.Process.Pid, 'R') {
				return done + 1, begun, nil
			}
			o, err = c.await(ctx, begun, end) // it waits for a CPU, not for its file system
		}
		if o.hung && o.waiting < min(b.timeout, hangTimeout) { // the time was up too soon to know
			return len(targets), time.Time{}, nil
		}
		b.outcomes[i] = o
		if err != nil {
			return done + 1, time.Time{}, nil
		}
	}
	return len(targets), time.Time{}, nil
}

// await waits for the child's reply about a target that it began with then. Its error is in the outcome too.
func (p *running) await(ctx context.Context, begun, by time.Time) (outcome, error) {
	got, err := p.next(ctx, by)
	switch {
	case err == nil:
		return outcome{asked: true, reply: got}, nil
	case errors.Is(err, errNoAnswer):
		return outcome{asked: true, hung: true, waiting: time.Since(begun)}, err
	}
	return outcome{asked: true, reply: reply{Err: err.Error()}}, err
}

// stuckChildren finds the children that earlier runs left behind, and returns by their names how long they have been
// waiting: processes of this PID namespace that have the name of one, of which a thread is in uninterruptible sleep. A
// process in a container can have any name, and is in another namespace.
func (p Population) stuckChildren() map[string]time.Duration {
	found := map[string]time.Duration{}
	for pid, st := range p.all {
		if !strings.HasPrefix(st.comm, childPrefix) {
			continue
		}
		if proc.Namespace(p.dir(pid), "pid") == proc.Namespace(proc.Self, "pid") && p.hasThread(pid, 'D') {
			found[st.comm] = time.Since(p.started(st.start))
		}
	}
	return found
}

// hasThread reports whether a thread of a process is in a state. The first one may be dead while another is stuck.
func (p Population) hasThread(pid int, state byte) bool {
	return slices.ContainsFunc(p.threads(pid), func(thread string) bool {
		st, _ := readStat(thread)
		return st.state == state
	})
}

// CountHanging counts the processes of a name of which a thread is in uninterruptible sleep.
func CountHanging(name string) (count int) {
	own := Population{root: "/"}
	for _, process := range names("/proc") {
		pid, err := strconv.Atoi(process)
		if err != nil {
			continue
		}
		if st, err := readStat(filepath.Join("/proc", process)); err == nil && st.comm == name && own.hasThread(pid, 'D') {
			count++
		}
	}
	return count
}

const childPrefix = "kdiag-"

// childName is the process name of a child at work on a path: at most 15 bytes, so the path's hash stands for it.
func childName(verb, path string) string {
	hash := fnv.New32a()
	io.WriteString(hash, path)
	return fmt.Sprintf("%s%s%08x", childPrefix, verb[:1], hash.Sum32())
}
