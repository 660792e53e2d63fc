package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

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
	for _, st := range p.byWorth() {
		if st.kernel || st.state == 'Z' && st.threads <= 1 {
			continue // no descriptors
		}
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
