package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of what is read of one process, against a process that makes its own files absurd.
const (
	maxArgs    = 64 << 10 // bytes of a command line or environment
	maxThreads = 512      // threads looked at
)

// A scan reads the processes under one root. Its goroutine may be abandoned in a read that never returns; what others
// may still look at then is behind mu, or is at.
type scan struct {
	proc string
	boot time.Time

	all  map[int]stat // every process
	argv map[int][]string

	// timid leaves the command lines of processes in uninterruptible sleep alone: they have their roles by name only.
	timid bool

	mu    sync.Mutex
	found map[int]Process
	at    *position
}

// Processes returns the processes under root/proc that matter to a container runtime, by process id. Processes inside
// containers count only where they serve a container: a containerd in a pod is not this node's.
//
// Processes that vanish or may not be read are left out or incomplete, which is no error; that root/proc cannot be
// listed is. Reading the command line of a process whose memory map is locked never returns. When ctx ends first, the
// reader is left behind, and the result is what was found until then, with an error that says where it stopped.
func Processes(ctx context.Context, root string) ([]Process, error) {
	s := newScan(root)
	err := s.bounded(ctx, func() error { return s.processes(ctx) })
	return s.result(), errors.Join(err, Hidden(root))
}

func newScan(root string) *scan {
	return &scan{proc: filepath.Join(root, "proc"), argv: map[int][]string{}, found: map[int]Process{}, at: &position{}}
}

// bounded runs read and waits for it no longer than ctx lives.
func (s *scan) bounded(ctx context.Context, read func() error) error {
	_, err := withinAt(ctx, s.at, func(*position) (struct{}, error) { return struct{}{}, read() })
	return err
}

func (s *scan) result() []Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.found), func(a, b Process) int { return a.PID - b.PID })
}

// processes lists every process, which no lock can delay, then looks closer at those that can matter. They are noted by
// name at once, since any command line may never be read; those in uninterruptible sleep are looked at last.
func (s *scan) processes(ctx context.Context) error {
	if err := s.list(ctx); err != nil {
		return err
	}
	return s.roles(ctx)
}

// roles looks closer at those of the listed processes that can matter.
func (s *scan) roles(ctx context.Context) error {
	roles := map[int]Role{}
	order := s.order()
	for _, st := range order {
		role, _ := identify(st.comm, nil, "")
		if role == "" {
			continue
		}
		roles[st.pid] = role
		if !s.foreign(st, role, roles) {
			s.put(Process{PID: st.pid, PPID: st.ppid, Name: st.comm, Role: role, State: st.state, Started: startTime(s.boot, st.start)})
		}
	}
	for _, st := range order {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: cut short: %w", s.proc, err)
		}
		if s.timid && st.state == 'D' {
			continue
		}
		parent := roles[st.ppid]
		if !suspectName(st.comm) && parent != RoleRuntime && parent != RoleCNI && parent != RoleShim && parent != RoleOCI {
			continue
		}
		role, id := identify(st.comm, s.args(st), parent)
		if role == "" || s.foreign(st, role, roles) {
			delete(roles, st.pid)
			s.drop(st.pid)
			continue
		}
		roles[st.pid] = role
		if id == "" {
			id = s.object(st, role)
		}
		s.put(s.describe(st, role, id))
	}
	s.inherit()
	return nil
}

// list reads stat of every process.
func (s *scan) list(ctx context.Context) error {
	s.at.enter("the list of processes in " + s.proc)
	dir, err := os.Open(s.proc)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	s.boot = parseBootTime(s.read("stat", 1<<20))
	s.all = make(map[int]stat, len(names))
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: cut short: %w", s.proc, err)
		}
		if st, err := parseStat(s.read(name+"/stat", 4<<10)); err == nil {
			s.all[st.pid] = st
		}
	}
	return nil
}

// order returns the processes so that a parent comes before its children, and those in uninterruptible sleep, whose
// command line may never be read, after all others.
func (s *scan) order() []stat {
	list := make([]stat, 0, len(s.all))
	depth := make(map[int]int, len(s.all))
	for pid, st := range s.all {
		list = append(list, st)
		depth[pid] = len(s.ancestors(st))
	}
	slices.SortFunc(list, func(a, b stat) int {
		if stuckA, stuckB := a.state == 'D', b.state == 'D'; stuckA != stuckB {
			if stuckA {
				return 1
			}
			return -1
		}
		if d := depth[a.pid] - depth[b.pid]; d != 0 {
			return d
		}
		return a.pid - b.pid
	})
	return list
}

// ancestors returns the parents of a process, nearest first. Process ids are read one after the other, so a reused one
// could close a circle; no chain is longer than 64.
func (s *scan) ancestors(st stat) []stat {
	var chain []stat
	for len(chain) < 64 {
		parent, ok := s.all[st.ppid]
		if !ok || parent.pid == st.pid {
			break
		}
		chain = append(chain, parent)
		st = parent
	}
	return chain
}

// foreign reports whether a process runs in a container and so is not this node's, whatever its name: a shim is among
// its ancestors. OCI runtimes are started by shims, and plugins of a runtime can be started by a daemon in a container. So
// may be kubelets, which count unless they have a pid namespace of their own: they belong to other nodes (kind, k3d) then. A daemon
// of another user than root is that user's, whatever he calls it.
func (s *scan) foreign(st stat, role Role, roles map[int]Role) bool {
	if role != RoleKubelet && role != RoleRuntime && role != RoleShim {
		return false
	}
	if status := s.readOf(st, "status"); role == RoleKubelet {
		return nested(status) || ofUser(status, os.Geteuid())
	} else if role == RoleRuntime && ofUser(status, os.Geteuid()) {
		return true
	}
	return slices.ContainsFunc(s.ancestors(st), func(a stat) bool { return roles[a.pid] == RoleShim })
}

// ofUser reports whether a process is neither root's nor that of the user who runs kdiag. The real user counts as well as the
// effective one: anybody may start a program that becomes root under another name. They are the first two of the line
//
//	Uid:	1000	1000	1000	1000
func ofUser(status []byte, self int) bool {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			ids := strings.Fields(rest)
			return slices.ContainsFunc(ids[:min(len(ids), 2)], func(id string) bool { return id != "0" && id != strconv.Itoa(self) })
		}
	}
	return false
}

// nested reports whether a process is in a pid namespace below the reader's, from the line of /proc/PID/status that gives its
// number in each:
//
//	NSpid:	4711	1
func nested(status []byte) bool {
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(ids)) > 1
		}
	}
	return false
}

// object finds the sandbox or container of a process that does not name it in its arguments: a plugin is told it in its
// environment, and "runc init" joins the container's cgroup.
func (s *scan) object(st stat, role Role) string {
	switch role {
	case RoleCNI:
		return s.cniSandbox(st)
	case RoleOCI:
		return parseCgroup(s.readOf(st, "cgroup")).id
	}
	return ""
}

// inherit gives an OCI runtime's process without a container that of the nearest OCI runtime above it: "runc init" is
// the child of "runc create ID" or "runc exec ID". It runs last, when all that can be read has been.
func (s *scan) inherit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, p := range s.found {
		if p.Role != RoleOCI || p.ObjectID != "" {
			continue
		}
		for _, a := range s.ancestors(s.all[pid]) {
			if above := s.found[a.pid]; above.Role == RoleOCI && above.ObjectID != "" {
				p.ObjectID = above.ObjectID
				s.found[pid] = p
				break
			}
		}
	}
}

// cniSandbox returns what the runtime told a plugin in its environment, which holds the pod's ids and nothing of the
// pod's own environment:
//
//	CNI_COMMAND=ADD\0CNI_CONTAINERID=<sandbox id>\0CNI_NETNS=...
func (s *scan) cniSandbox(st stat) string {
	for _, kv := range splitArgs(s.readOf(st, "environ")) {
		if id, ok := strings.CutPrefix(kv, "CNI_CONTAINERID="); ok && plausibleID(id) {
			return id
		}
	}
	return ""
}

func (s *scan) describe(st stat, role Role, id string) Process {
	p := Process{
		PID: st.pid, PPID: st.ppid, Name: st.comm, Role: role, ObjectID: id, State: st.state,
		Wchan:   s.wchan(strconv.Itoa(st.pid)),
		Started: startTime(s.boot, st.start),
	}
	p.BlockedThreads, p.BlockedIn = s.blocked(st)
	if role == RoleRuntime {
		p.Config = configArg(s.argv[st.pid])
	}
	return p
}

// configArg returns the file behind -c or --config, which containerd and CRI-O (crio -c) share; only a whole path says where it is.
func configArg(argv []string) string {
	file := ""
	for i, arg := range argv {
		flag, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if flag != "c" && flag != "config" || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		file = value
	}
	if !filepath.IsAbs(file) {
		return ""
	}
	return file
}

// One returns what /proc/PID/stat says of a process, with its role as far as its name alone tells. It never waits for the process.
func One(root string, pid int) (Process, error) {
	s := newScan(root)
	st, err := parseStat(s.read(strconv.Itoa(pid)+"/stat", 4<<10))
	if err != nil {
		return Process{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	s.boot = parseBootTime(s.read("stat", 1<<20))
	role, _ := identify(st.comm, nil, "")
	return Process{
		PID: pid, PPID: st.ppid, Name: st.comm, Role: role, State: st.state, Wchan: s.wchan(strconv.Itoa(pid)),
		Started: startTime(s.boot, st.start),
	}, nil
}

func (s *scan) put(p Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[p.PID] = p
}

func (s *scan) drop(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found, pid)
}

// blocked counts the threads in uninterruptible sleep and says where the first of them waits.
func (s *scan) blocked(st stat) (n int, where string) {
	task := strconv.Itoa(st.pid) + "/task/"
	dir, err := os.Open(filepath.Join(s.proc, task))
	if err != nil {
		return 0, ""
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxThreads)
	slices.Sort(names)
	for _, name := range names {
		thread, err := parseStat(s.read(task+name+"/stat", 4<<10))
		if err != nil || thread.state != 'D' {
			continue
		}
		n++
		if where == "" {
			where = s.wchan(task + name)
		}
	}
	return n, where
}

// wchan returns the kernel function that a process or thread waits in. The kernel writes 0 for one that runs or that
// this user may not look at.
func (s *scan) wchan(of string) string {
	w := strings.TrimSpace(string(s.read(of+"/wchan", 256)))
	if w == "0" {
		return ""
	}
	return w
}

// args returns the arguments of a process and remembers them.
func (s *scan) args(st stat) []string {
	argv := splitArgs(s.readOf(st, "cmdline"))
	s.argv[st.pid] = argv
	return argv
}

func splitArgs(b []byte) []string {
	text := strings.TrimRight(string(b), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// readOf reads a file of a process that can block, and says so first.
func (s *scan) readOf(st stat, name string) []byte {
	s.at.enter(fmt.Sprintf("%s of process %d (%s)", name, st.pid, st.comm))
	return s.read(strconv.Itoa(st.pid)+"/"+name, maxArgs)
}

// read returns up to limit bytes of a file under /proc, or nothing when it is gone or may not be read.
func (s *scan) read(name string, limit int64) []byte {
	b, err := readLimited(filepath.Join(s.proc, name), limit)
	if err != nil {
		return nil
	}
	return b
}
