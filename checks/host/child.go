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

// ChildArgument is the first argument of a kdiag that is a disposable child. Its main hands the arguments that follow to
// Serve before it does anything else, and exits with what that returns:
//
//	if len(os.Args) > 1 && os.Args[1] == host.ChildArgument {
//		os.Exit(host.Serve(os.Args[2:], os.Stdout))
//	}
const ChildArgument = "kdiag-probe"

// A Child says how to start kdiag anew. What can fall into a sleep that no signal ends (statfs of a dead file system) is
// done by a process that can be left behind: this one always ends. The zero value starts nothing, and what needs a child
// says so.
type Child struct {
	program string
	earlier func(ctx context.Context, root string) []earlier
}

// NewChild returns how to start this program, /proc/self/exe, as a child. The looks that share it search the processes once, the
// first of them, for what earlier runs left behind.
func NewChild(program string) Child {
	var once sync.Once
	var found []earlier
	return Child{program, func(ctx context.Context, root string) []earlier {
		once.Do(func() { found = stuckChildren(ctx, root) })
		return found
	}}
}

// errNoChild is the error of a look that must not be made in this process.
var errNoChild = errors.New("starting a child: nobody said how")

// A running is a child that has been started.
type running struct {
	cmd   *exec.Cmd
	pipe  *os.File
	lines *bufio.Reader
	ended chan struct{} // closed when the process is gone
}

// start starts a child that does what verb says to each path in turn. It has a session of its own, and nothing of this
// process but the pipe: a terminal or a pipe that waits for kdiag's end does not wait for a child that is stuck. Should
// this process be killed, so is the child.
func (c Child) start(verb, base string, paths []string) (*running, error) {
	if c.program == "" {
		return nil, errNoChild
	}
	keepOwn()
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
		_ = cmd.Wait() // how it ended is told by what it wrote
		close(p.ended)
	}()
	return p, nil
}

// keepOwn keeps what this process was started with, beyond the three standard streams, from its children: a supervisor may
// wait for the end of a pipe that it handed down. What a Go program opens itself is not passed on anyway.
func keepOwn() {
	for _, name := range names("/proc/self/fd") {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// errSilent is the error of a child that has not written in time.
var errSilent = errors.New("no answer in time")

// next reads what the child writes next, and waits for it no longer than until by, or until ctx ends. After errSilent it
// may be called again.
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

// reapTime is how long a killed process that is not stuck may take to be gone.
const reapTime = 300 * time.Millisecond

// kill ends the child and reports whether it is gone. One in an uninterruptible sleep is not, until what it waits for
// happens.
func (p *running) kill() bool {
	_ = p.cmd.Process.Kill() // it may be gone
	p.pipe.Close()
	timer := time.NewTimer(reapTime)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
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
// namespace that name themselves so, of which a thread is in uninterruptible sleep. A process in a container can call
// itself anything, and is in another namespace.
func stuckChildren(ctx context.Context, root string) []earlier {
	proc := filepath.Join(root, "proc")
	own, _ := os.Readlink("/proc/self/ns/pid")
	var found []earlier
	for _, name := range names(proc) {
		if ctx.Err() != nil {
			break
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, name)
		comm, _ := readLimited(filepath.Join(dir, "comm"), 64)
		index, ok := childIndex(strings.TrimSpace(string(comm)))
		if !ok || !sameUser(dir) {
			continue
		}
		if ns, _ := os.Readlink(filepath.Join(dir, "ns/pid")); ns != own {
			continue
		}
		if e, ok := stuckIn(dir, index); ok {
			e.pid = pid
			e.waiting = age(proc, dir)
			found = append(found, e)
		}
	}
	return found
}

// stuckIn finds what a child waits in. When its first thread is not the one that is stuck, that is dead by then, and only
// the others have the arguments still.
func stuckIn(dir string, index int) (earlier, bool) {
	var argv []string
	var blocked bool
	for _, tid := range names(filepath.Join(dir, "task")) {
		thread := filepath.Join(dir, "task", tid)
		b, _ := readLimited(filepath.Join(thread, "stat"), 4<<10)
		st, err := parseStat(b)
		blocked = blocked || err == nil && st.state == 'D'
		if len(argv) == 0 {
			b, _ = readLimited(filepath.Join(thread, "cmdline"), 2*maxChildArgs)
			argv = splitArgs(b)
		}
	}
	verb, file, ok := childTask(argv, index)
	return earlier{verb: verb, path: file}, ok && blocked
}

// childName is what a child calls itself while it does what its index says: a name of at most 15 bytes.
func childName(index int) string { return ChildArgument + ":" + strconv.Itoa(index) }

func childIndex(comm string) (int, bool) {
	n, ok := strings.CutPrefix(comm, ChildArgument+":")
	index, err := strconv.Atoi(n)
	return index, ok && err == nil && index >= 0
}

// childTask finds in the arguments of a child what it does at an index.
func childTask(argv []string, index int) (verb, file string, ok bool) {
	const program, marker, ofVerb, paths = 0, 1, 2, 4
	if len(argv) <= paths || argv[marker] != ChildArgument || index >= len(argv)-paths {
		return "", "", false
	}
	return argv[ofVerb], argv[paths+index], true
}

// age is how long ago a process began, by the clock that its start is counted by; 0 when that cannot be read.
func age(proc, dir string) time.Duration {
	b, _ := readLimited(filepath.Join(dir, "stat"), 4<<10)
	st, err := parseStat(b)
	if err != nil {
		return 0
	}
	b, _ = readLimited(filepath.Join(proc, "uptime"), 128)
	seconds, _, _ := strings.Cut(string(b), " ")
	up, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return 0
	}
	const century = 100 * 365 * 24 * 3600 * userHZ
	return max(0, up-time.Duration(min(st.start, century))*(time.Second/userHZ))
}

func sameUser(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// starved reports whether a child is not waiting for its file system but for a CPU: a thread of it could run.
func starved(root string, pid int) bool {
	task := filepath.Join(root, "proc", strconv.Itoa(pid), "task")
	return slices.ContainsFunc(names(task), func(tid string) bool {
		b, _ := readLimited(filepath.Join(task, tid, "stat"), 4<<10)
		st, err := parseStat(b)
		return err == nil && st.state == 'R'
	})
}
