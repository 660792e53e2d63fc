package host

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// opensFIFO is the kernel function in which the opening of a FIFO waits for its other end (fs/pipe.c).
	opensFIFO = "wait_for_partner"
	maxFIFOs  = 20
	maxOutput = 20 // threads that wait to write
)

// fullOutput are the kernel functions in which a write waits for room in a pipe (fs/pipe.c, of which the first is of
// Linux 6.14 and later) or in a socket (net/core/sock.c).
var fullOutput = []string{"anon_pipe_write", "pipe_write", "sock_alloc_send_pskb", "sock_wait_for_wmem"}

// A FIFOWait is a thread of the runtime, the kubelet, conmon or an OCI runtime that waits in the opening of a FIFO, in
// two reads some time apart. The FIFOs of containerd and its shims, which they open through their descriptors, are not
// among them: it waits there whenever a container is made.
type FIFOWait struct {
	PID, TID int
	Name     string // comm of the process
	Path     string // absolute, as the process sees it
	Owner
}

// An OutputWait is a thread of the runtime or the kubelet that waits, in two reads some time apart, to write to its
// standard output or error: the log. What else it has to log waits behind that.
type OutputWait struct {
	PID, TID int
	Name     string   // comm of the process
	File     string   // pipe:[4026], socket:[4711], or the path of a FIFO or terminal, as the process has it
	Reader   *Process `json:",omitempty"` // of the other end; nil where it was not found
	Owner
}

// mayOpen reports whether the opens of a process's threads are looked at.
func mayOpen(p Process) bool {
	return p.Role == RoleRuntime || p.Role == RoleKubelet || p.Role == RoleOCI ||
		p.Role == RoleShim && strings.HasPrefix(p.Name, "conmon")
}

// fifos returns what the threads that still wait in the opening of a FIFO open.
func (p Population) fifos(ctx context.Context, waiting []suspect) (list []FIFOWait, _ error) {
	dirs := map[string]suspect{}
	for _, s := range waiting {
		dirs[s.dir] = s
	}
	paths, err := gather(ctx, "reading what threads open", slices.Sorted(maps.Keys(dirs)),
		func(at *position, dir string) (string, bool) {
			at.enter("%s/syscall", dir)
			s := dirs[dir]
			path := p.opened(s)
			if !filepath.IsAbs(path) || strings.HasPrefix(path, "/proc/") {
				return "", false
			}
			// One that was removed holds the thread for ever, and nobody else.
			at.enter("%s", path)
			var st unix.Stat_t
			err := unix.Stat(filepath.Join(p.dir(s.PID), "root", path), &st)
			return path, err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
		})
	for dir, path := range paths {
		s := dirs[dir]
		known := p.roles[s.PID]
		list = append(list, FIFOWait{
			PID: s.PID, TID: s.TID, Name: known.Name, Path: path, Owner: Owner{Role: known.Role, ObjectID: known.ObjectID},
		})
	}
	return top(list, maxFIFOs, func(a, b FIFOWait) int { return a.TID - b.TID }), err
}

// opened returns the path that a thread opens; empty if it does not any more.
func (p Population) opened(s suspect) string {
	path := p.pathOf(s.PID, s.dir)
	if !s.stayed() {
		return ""
	}
	return path
}

// outputs returns the threads that still wait to write to standard output or error, and who reads it.
func (p Population) outputs(ctx context.Context, waiting []suspect) ([]OutputWait, error) {
	var list []OutputWait
	for _, s := range waiting {
		call, _ := readSmall(s.dir, "syscall")
		f := strings.Fields(call) // 1 0x2 0xc000a12000 0x8c ...
		known := p.roles[s.PID]
		if len(f) < 2 || f[1] != "0x1" && f[1] != "0x2" || !s.stayed() ||
			known.Role != RoleRuntime && known.Role != RoleKubelet {
			continue
		}
		fd := strings.TrimPrefix(f[1], "0x")
		file, err := os.Readlink(filepath.Join(p.dir(s.PID), "fd", fd))
		if err == nil {
			list = append(list, OutputWait{
				PID: s.PID, TID: s.TID, Name: known.Name, File: file, Owner: Owner{Role: known.Role},
			})
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	list = top(list, maxOutput, func(a, b OutputWait) int { return a.TID - b.TID })
	readers, err := gather(ctx, "looking for who reads a log", p.alive(), func(at *position, pid int) (string, bool) {
		at.enter("the descriptors of process %d (%s)", pid, p.all[pid].comm)
		file := p.readsOne(pid, list)
		return file, file != ""
	})
	for _, pid := range slices.Sorted(maps.Keys(readers)) {
		for i := range list {
			if w := &list[i]; w.File == readers[pid] && w.PID != pid && w.Reader == nil {
				w.Reader = new(p.describe(p.all[pid], p.roles[pid].Role, p.roles[pid].ObjectID))
			}
		}
	}
	return list, err
}

// readsOne returns which of the files that threads wait to write to a process has open for reading. The other end of a
// socket cannot be seen; the journal's daemon is taken for the reader of each.
func (p Population) readsOne(pid int, list []OutputWait) string {
	journal := p.all[pid].comm == "systemd-journal"
	for _, fd := range names(filepath.Join(p.dir(pid), "fd")) {
		link, _ := os.Readlink(filepath.Join(p.dir(pid), "fd", fd))
		for _, w := range list {
			if journal && strings.HasPrefix(w.File, "socket:") {
				return w.File
			}
			if link != w.File || w.PID == pid {
				continue
			}
			text, _ := readSmall(p.dir(pid), "fdinfo", fd)
			flags, err := strconv.ParseUint(strings.Join(fieldsAfter(text, "flags:"), ""), 8, 64)
			if err == nil && flags&unix.O_ACCMODE != unix.O_WRONLY {
				return link
			}
		}
	}
	return ""
}

// explainAutofs adds the paths that threads of the node's daemons wait for autofs to mount.
func (p Population) explainAutofs(ctx context.Context, blocked []BlockedTask) {
	tasks := map[string]*BlockedTask{}
	for i, t := range blocked {
		if strings.HasPrefix(t.Wchan, "autofs_") && mayOpen(p.roles[t.PID]) {
			tasks[filepath.Join(p.dir(t.PID), "task", strconv.Itoa(t.TID))] = &blocked[i]
		}
	}
	paths, _ := gather(ctx, "reading what threads wait for", slices.Sorted(maps.Keys(tasks)),
		func(at *position, dir string) (string, bool) {
			at.enter("%s/syscall", dir)
			path := p.pathOf(tasks[dir].PID, dir)
			return path, filepath.IsAbs(path)
		})
	for dir, path := range paths {
		tasks[dir].Path = path
	}
}

// pathOf returns the path that a thread's system call is about: the second argument of openat(2), newfstatat(2) and
// statx(2), in the memory of its process.
//
//	257 0xffffffffffffff9c 0xc0006c9180 0x80441 0x1a0 0x0 0x0 0xc0009d8750 0xc6200e
func (p Population) pathOf(pid int, dir string) string {
	call, _ := readSmall(dir, "syscall")
	f := strings.Fields(call)
	if len(f) != 9 {
		return ""
	}
	at, err := strconv.ParseInt(strings.TrimPrefix(f[2], "0x"), 16, 64)
	if err != nil {
		return ""
	}
	fd, err := unix.Open(filepath.Join(p.dir(pid), "mem"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	text := make([]byte, unix.PathMax)
	n, err := unix.Pread(fd, text, at) // up to the end of what is mapped
	if err != nil {
		return ""
	}
	path, _, found := strings.Cut(string(text[:n]), "\x00")
	if !found {
		return ""
	}
	return path
}

const (
	// watcherLink is the target of a descriptor of fanotify (fanotify_init in fs/notify/fanotify/fanotify_user.c).
	watcherLink = "anon_inode:[fanotify]"
	// permissions are the events that wait for an answer (include/uapi/linux/fanotify.h): FAN_OPEN_PERM,
	// FAN_ACCESS_PERM, FAN_OPEN_EXEC_PERM, and FAN_PRE_ACCESS.
	permissions = 0x10000 | 0x20000 | 0x40000 | 0x100000
	maxWatchers = 10
	// A listener that scans what is opened answers within seconds.
	watchTime, watchPause = 5 * time.Second, 200 * time.Millisecond
)

// A Watcher is a process that has to permit what others do with files (fanotify): each open, read or start of a program
// that it asked for waits until it answers, or closes its descriptor.
type Watcher struct {
	PID     int
	Name    string
	State   byte // as in Process
	Started time.Time
	Owner
}

// watched reports whether a thread waits for the answer of a Watcher.
func (t BlockedTask) watched() bool { return strings.HasPrefix(t.Wchan, "fanotify_") }

// keepWatching looks at the tasks that wait for a Watcher until none does or watchTime has passed, and drops those that
// went on.
func keepWatching(ctx context.Context, asleep []suspect) []suspect {
	began := time.Now()
	for time.Since(began) < watchTime && slices.ContainsFunc(asleep, func(s suspect) bool { return s.watched() }) &&
		pause(ctx, watchPause) == nil {
		asleep = slices.DeleteFunc(asleep, func(s suspect) bool { return s.watched() && !s.stayed() })
	}
	for i := range asleep {
		if asleep[i].watched() {
			asleep[i].Waited = time.Since(began)
		}
	}
	return asleep
}

// watchers finds the processes that have to permit what others do with files. A process of another pid namespace, whose
// descriptors cannot be seen from here, is not among them.
func (p Population) watchers(ctx context.Context, blocked []BlockedTask) ([]Watcher, error) {
	if !slices.ContainsFunc(blocked, BlockedTask.watched) {
		return nil, nil
	}
	found, err := gather(ctx, "looking for fanotify", p.alive(), func(at *position, pid int) (Watcher, bool) {
		at.enter("the descriptors of process %d (%s)", pid, p.all[pid].comm)
		dir := p.dir(pid)
		asks := slices.ContainsFunc(names(filepath.Join(dir, "fd")), func(fd string) bool {
			if link, _ := os.Readlink(filepath.Join(dir, "fd", fd)); link != watcherLink {
				return false
			}
			text, _ := readLimited(filepath.Join(dir, "fdinfo", fd), maxMarks)
			return asksPermission(text)
		})
		st := p.all[pid]
		return Watcher{PID: pid, Name: st.comm, State: st.state, Started: p.started(st.start)}, asks
	})
	list := top(slices.Collect(maps.Values(found)), maxWatchers, func(a, b Watcher) int { return a.PID - b.PID })
	owners := map[*Owner]int{}
	for i := range list {
		owners[&list[i].Owner] = list[i].PID
	}
	return list, errors.Join(err, p.setOwners(ctx, owners))
}

// asksPermission reports whether a group of fanotify has a mark for an event that waits for its answer, by its fdinfo:
//
//	fanotify flags:4 event-flags:8000
//	fanotify mnt_id:1c mflags:0 mask:10000 ignored_mask:0
func asksPermission(fdinfo string) bool {
	for line := range strings.Lines(fdinfo) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "fanotify" {
			continue
		}
		for _, field := range f[1:] {
			mask, ok := strings.CutPrefix(field, "mask:")
			if events, err := strconv.ParseUint(mask, 16, 64); ok && err == nil && events&permissions != 0 {
				return true
			}
		}
	}
	return false
}

// thawWait is the kernel function in which a write waits for the end of fsfreeze (sb_start_write in
// include/linux/fs.h).
const thawWait = "percpu_rwsem_wait"

// A TaskDisk is a file system on a disk that a task sees, other than that of the host's root.
type TaskDisk struct {
	Mount     string // where the host has it; empty where it has not
	Source    string // /dev/mapper/data
	Suspended bool   // device mapper keeps all requests (dmsetup suspend), as for a snapshot
}

// explainFrozen adds the file systems of the tasks that wait for the end of a freeze. What cannot be read is left out:
// they wait all the same.
func (p Population) explainFrozen(ctx context.Context, blocked []BlockedTask) {
	var pids []int
	for _, t := range blocked {
		if t.Wchan == thawWait {
			pids = append(pids, t.PID)
		}
	}
	if len(pids) == 0 {
		return
	}
	table, err := readMounts(p.root, "")
	if err != nil {
		return
	}
	disks, _ := gather(ctx, "reading mounts of tasks", pids, func(at *position, pid int) ([]TaskDisk, bool) {
		return p.disksOf(at, pid, table), true
	})
	for i, t := range blocked {
		if t.Wchan == thawWait {
			blocked[i].Disks = disks[t.PID]
		}
	}
}

// disksOf returns the file systems that a process may wait for when a write of it waits for the end of a freeze. The
// files that runtime and kubelet put into each container do not count.
func (p Population) disksOf(at *position, pid int, host mountTable) (disks []TaskDisk) {
	at.enter("mountinfo of process %d", pid)
	f, err := os.Open(filepath.Join(p.dir(pid), "mountinfo"))
	if err != nil {
		return nil
	}
	defer f.Close()
	table, _ := parseMounts(f, "") // as far as it is understood
	root, _ := host.of("/")
	seen := map[string]bool{root.device: true}
	ofContainer := []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log"}
	for _, m := range table.lines {
		if seen[m.device] || !strings.HasPrefix(m.source, "/dev/") || m.readOnly || slices.Contains(ofContainer, m.point) {
			continue
		}
		seen[m.device] = true
		d := TaskDisk{Source: m.source}
		if i := slices.IndexFunc(host.lines, func(h mountLine) bool { return h.device == m.device }); i >= 0 {
			d.Mount = host.lines[i].point
		}
		suspended, _ := readUint(deviceDir(p.root, m.device), "dm/suspended")
		d.Suspended = suspended == 1
		disks = append(disks, d)
	}
	return disks
}
