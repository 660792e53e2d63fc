package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files is open file descriptors against the limits of the kernel and of the processes that matter.
type Files struct {
	System    Usage          // fs.file-nr
	Processes []ProcessFiles // runtime and kubelet
}

// A ProcessFiles is the open files of one process; Max is its soft limit (RLIMIT_NOFILE).
type ProcessFiles struct {
	PID  int
	Name string
	Role Role
	Usage
	Hard uint64
}

// ReadFiles reads how many files are open on the host and in the processes of the runtime and the kubelet, against
// their limits. With an error there may be a part of it.
func ReadFiles(ctx context.Context, root string, processes Population) (Files, error) {
	return within(ctx, "counting open files", func(at *position) (Files, error) {
		text, err := readSmall(root, "proc/sys/fs/file-nr")
		system, errSystem := parseFileNr(text)
		if err := cmp.Or(err, errSystem); err != nil {
			return Files{}, fmt.Errorf("counting open files: %w", err)
		}
		f := Files{System: system}
		err = processes.gap()
		for _, daemon := range processes.daemons() {
			at.enter("the descriptors of process %d (%s)", daemon.PID, daemon.Name)
			p, e := processes.files(daemon)
			switch {
			case errors.Is(e, fs.ErrNotExist), errors.Is(e, unix.ESRCH): // gone meanwhile
			case e != nil:
				err = errors.Join(err, fmt.Errorf("counting the open files of %s: %w", daemon.Name, e))
			default:
				f.Processes = append(f.Processes, p)
			}
		}
		return f, err
	})
}

// files reads the open files of one process.
func (p Population) files(of Process) (ProcessFiles, error) {
	f := ProcessFiles{PID: of.PID, Name: of.Name, Role: of.Role}
	text, err := readSmall(p.dir(of.PID), "limits")
	if err == nil {
		f.Max, f.Hard, err = parseFileLimits(text)
	}
	if err != nil {
		return f, err
	}
	open, err := os.ReadDir(filepath.Join(p.dir(of.PID), "fd"))
	f.Current = uint64(len(open))
	return f, err
}

// parseFileNr reads fs.file-nr: allocated, of them unused (always 0 since Linux 2.6), and the limit. systemd sets the
// limit to the largest number there is, which is none.
func parseFileNr(text string) (Usage, error) {
	var used, unused, limit uint64
	if _, err := fmt.Sscan(text, &used, &unused, &limit); err != nil {
		return Usage{}, fmt.Errorf("reading file-nr: %w", err)
	}
	if limit >= math.MaxInt64 {
		limit = 0
	}
	return Usage{Current: used, Max: limit}, nil
}

// parseFileLimits finds the soft and the hard limit of open files in /proc/PID/limits; unlimited is 0:
//
//	Max open files            1024                 524288               files
func parseFileLimits(text string) (soft, hard uint64, err error) {
	line := strings.Join(fieldsAfter(text, "Max open files"), " ")
	if _, err := fmt.Sscan(strings.ReplaceAll(line, "unlimited", "0"), &soft, &hard); err != nil {
		return 0, 0, errors.New("no limit of open files")
	}
	return soft, hard, nil
}

// Conntrack is the table of tracked connections (net.netfilter.nf_conntrack_*); Max 0 where the module is not loaded.
type Conntrack struct{ Usage }

// ReadConntrack reads the table of tracked connections of the network namespace that kdiag runs in, which is the host's
// in a pod with hostNetwork. Where the module is not loaded there is no table, and no error.
func ReadConntrack(root string) (Conntrack, error) {
	dir := filepath.Join(root, "proc/sys/net/netfilter")
	count, err := readUint(dir, "nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return Conntrack{}, nil
	}
	limit, errLimit := readUint(dir, "nf_conntrack_max")
	if err := errors.Join(err, errLimit); err != nil {
		return Conntrack{}, fmt.Errorf("counting tracked connections: %w", err)
	}
	return Conntrack{Usage{Current: count, Max: limit}}, nil
}

const (
	// maxOpen bounds the descriptors of one process that are read, at about two microseconds each, so that one that
	// leaks does not hide all others.
	maxOpen = 50_000
	// maxMarks bounds the bytes read of one instance: a line of about a hundred for each watch.
	maxMarks = 16 << 20
	// maxInotifyTop bounds the processes that are named for each user.
	maxInotifyTop = 10
)

// Inotify is the use of inotify by user, against fs.inotify.max_user_instances and max_user_watches.
type Inotify struct {
	MaxInstances, MaxWatches uint64
	Users                    []InotifyUser // most instances first
	Unread                   int           // processes whose descriptors could not be read
}

// An InotifyUser is the use of inotify by the processes of one user. Instances are counted per user of the initial user
// namespace.
type InotifyUser struct {
	UID                int
	Instances, Watches int
	Top                []InotifyProcess // most instances first, bounded
}

// An InotifyProcess is a process with inotify instances.
type InotifyProcess struct {
	PID       int
	Name      string
	Instances int
	Owner
}

// ReadInotify counts the inotify instances and watches of each user. No file of the kernel has these numbers,
// so every descriptor of every process is read, those of the runtime, the kubelet and the shims first. An instance
// that a child inherited counts in both. With an error there may be a part of it.
func ReadInotify(ctx context.Context, root string, processes Population) (Inotify, error) {
	instances, errInstances := readUint(root, "proc/sys/fs/inotify/max_user_instances")
	watches, errWatches := readUint(root, "proc/sys/fs/inotify/max_user_watches")
	if err := cmp.Or(errInstances, errWatches); err != nil {
		return Inotify{}, fmt.Errorf("reading the limits of inotify: %w", err)
	}
	seen := Inotify{MaxInstances: instances, MaxWatches: watches}
	missing := processes.gap()
	if processes.all == nil {
		return seen, fmt.Errorf("counting inotify instances: %w", missing)
	}
	counted, err := within(ctx, "counting inotify instances",
		func(at *position) (Inotify, error) { return processes.inotify(ctx, at), ctx.Err() })
	if err != nil {
		missing = errors.Join(missing, fmt.Errorf("counting inotify instances: %w", err))
	}
	seen.Users, seen.Unread = counted.Users, counted.Unread
	pids := map[*Owner]int{}
	for _, user := range seen.Users {
		for i := range user.Top {
			pids[&user.Top[i].Owner] = user.Top[i].PID
		}
	}
	return seen, errors.Join(missing, processes.setOwners(ctx, pids))
}

// inotify adds up instances and watches by user. The kernel charges an instance to the effective user.
func (p Population) inotify(ctx context.Context, at *position) Inotify {
	var total Inotify
	byUser := map[int]*InotifyUser{}
	for _, pid := range p.alive() {
		st := p.all[pid]
		if ctx.Err() != nil {
			total.Unread++
			continue
		}
		at.enter("the descriptors of process %d (%s)", st.pid, st.comm)
		instances, watches, err := countInotify(p.dir(st.pid), maxOpen)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // else gone meanwhile
			total.Unread++
		}
		if instances == 0 {
			continue
		}
		uids := status(p.dir(st.pid), "Uid")
		if len(uids) < 2 {
			continue
		}
		uid, _ := strconv.Atoi(uids[1])
		if byUser[uid] == nil {
			byUser[uid] = &InotifyUser{UID: uid}
		}
		u := byUser[uid]
		u.Instances += instances
		u.Watches += watches
		u.Top = append(u.Top, InotifyProcess{PID: st.pid, Name: st.comm, Instances: instances})
	}
	for _, u := range byUser {
		u.Top = top(u.Top, maxInotifyTop, func(a, b InotifyProcess) int {
			return cmp.Or(b.Instances-a.Instances, a.PID-b.PID)
		})
		total.Users = append(total.Users, *u)
	}
	slices.SortFunc(total.Users, func(a, b InotifyUser) int { return cmp.Or(b.Instances-a.Instances, a.UID-b.UID) })
	return total
}

// countInotify reads up to limit descriptors of a process. It is an error that there are more.
func countInotify(dir string, limit int) (instances, watches int, err error) {
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	list, err := f.Readdirnames(limit)
	if errors.Is(err, io.EOF) { // of no descriptors
		err = nil
	} else if len(list) == limit {
		err = errors.New("too many descriptors")
	}
	for _, name := range list {
		if link, _ := os.Readlink(filepath.Join(dir, "fd", name)); link == "anon_inode:inotify" {
			marks, _ := readLimited(filepath.Join(dir, "fdinfo", name), maxMarks)
			instances++
			watches += countMarks(marks)
		}
	}
	return instances, watches, err
}

// countMarks counts the watches in the fdinfo of an inotify instance, one line each:
//
//	inotify wd:1 ino:2b3 sdev:800003 mask:3c6 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:b302000000000000
func countMarks(fdinfo string) int { return strings.Count(fdinfo, "\ninotify wd:") }

// A FileLock is a lock (flock(2), or of an open file description) that a process holds on a file which another one has
// open.
type FileLock struct {
	Path  string
	PID   int    // of the holder
	Name  string // comm of the holder
	State byte   // of the holder, as in /proc/PID/stat
}

// LocksBefore returns the locks that others hold on the databases, files of the name *.db, and on the lock files,
// *.lock and lock, that a process has open: a daemon waits for the first at its start, containers/storage for the
// second, and the CNI plugin host-local for the last.
func LocksBefore(ctx context.Context, root string, pid int) ([]FileLock, error) {
	return within(ctx, "reading file locks", func(at *position) ([]FileLock, error) {
		at.enter("/proc/locks")
		text, err := readLimited(filepath.Join(root, "proc/locks"), 8<<20)
		if err != nil {
			return nil, err
		}
		holders := map[string]int{} // by device and inode
		for line := range strings.Lines(text) {
			// 1: FLOCK  ADVISORY  WRITE 5221 fe:00:10299149 0 EOF; one that waits has -> behind its number
			if f := strings.Fields(line); len(f) == 8 && (f[1] == "FLOCK" || f[1] == "OFDLCK") {
				holders[f[5]], _ = strconv.Atoi(f[4]) // -1 for an open file description
			}
		}
		var list []FileLock
		all := Population{root: root}
		for _, fd := range names(filepath.Join(all.dir(pid), "fd")) {
			name := filepath.Join(all.dir(pid), "fd", fd)
			path, _ := os.Readlink(name)
			if !strings.HasSuffix(path, ".db") && !strings.HasSuffix(path, ".lock") && filepath.Base(path) != "lock" {
				continue
			}
			at.enter("%s", path)
			var st unix.Stat_t
			err := unix.Stat(name, &st)
			file := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)
			holder, held := holders[file]
			who, gone := readStat(all.dir(holder))
			// Its children have the lock too. In a pid namespace such as a container's, the file does not list it then.
			if !held || holder < 0 || gone != nil || who.state == 'Z' {
				holder = all.holds(filepath.Base(path), file)
				who, _ = readStat(all.dir(holder))
			}
			if err != nil || holder <= 0 || holder == pid {
				continue
			}
			list = append(list, FileLock{Path: path, PID: holder, Name: who.comm, State: who.state})
		}
		return list, nil
	})
}

// holds returns the process that has a file of this name open with a lock on it, by the lines of its descriptors:
//
//	lock:	1: OFDLCK ADVISORY  WRITE -1 00:fc:4 0 EOF
//
// It is 0 where there is none. That of a process that only waits has no such line.
func (p Population) holds(name, file string) int {
	for _, entry := range names(filepath.Join(p.root, "proc")) {
		pid, err := strconv.Atoi(entry)
		if err != nil {
			continue
		}
		for _, fd := range names(filepath.Join(p.dir(pid), "fd")) {
			if path, _ := os.Readlink(filepath.Join(p.dir(pid), "fd", fd)); filepath.Base(path) != name {
				continue
			}
			info, _ := readSmall(p.dir(pid), "fdinfo", fd)
			if strings.Contains(info, "lock:") && strings.Contains(info, " "+file+" ") {
				return pid
			}
		}
	}
	return 0
}
