package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// maxOpen bounds the descriptors that are read on the whole host, at about two microseconds each.
	maxOpen = 500_000
	// maxOpenOfOne bounds those of one process, so that one that leaks does not hide all others.
	maxOpenOfOne = 50_000
	// maxMarks bounds what is read of one instance: a line of about a hundred bytes for each watch.
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

// An InotifyUser is what the processes of one user hold. Instances are counted per user of the initial user namespace.
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

// ReadInotify counts the inotify instances of each user and what they watch. No file of the kernel has these numbers,
// so every descriptor of every process is read, those of the runtime, the kubelet and the shims first. An instance
// that a child inherited counts in both. With an error there may be a part of it.
func ReadInotify(ctx context.Context, root string, people Population) (Inotify, error) {
	var seen Inotify
	var err error
	if seen.MaxInstances, err = readUint(root, "proc/sys/fs/inotify/max_user_instances"); err != nil {
		return Inotify{}, fmt.Errorf("reading the limit of inotify instances: %w", err)
	}
	if seen.MaxWatches, err = readUint(root, "proc/sys/fs/inotify/max_user_watches"); err != nil {
		return Inotify{}, fmt.Errorf("reading the limit of inotify watches: %w", err)
	}
	missing := people.gap()
	if people.all == nil {
		return seen, fmt.Errorf("counting inotify instances: %w", missing)
	}
	counted, err := within(ctx, func(at *position) (Inotify, error) { return people.inotify(ctx, at), ctx.Err() })
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
	return seen, errors.Join(missing, people.setOwners(ctx, pids))
}

// inotify adds up what the processes of each user hold. The kernel charges an instance to the effective user.
func (p Population) inotify(ctx context.Context, at *position) Inotify {
	var total Inotify
	byUser := map[int]*InotifyUser{}
	left := maxOpen
	for _, st := range p.byWorth() {
		if st.kernel || st.state == 'Z' && st.threads <= 1 {
			continue // no descriptors
		}
		if ctx.Err() != nil || left <= 0 {
			total.Unread++
			continue
		}
		at.enter("the descriptors of process %d (%s)", st.pid, st.comm)
		instances, watches, looked, err := countInotify(p.dir(st.pid), min(left, maxOpenOfOne))
		left -= looked
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // else gone meanwhile
			total.Unread++
		}
		uids := status(p.dir(st.pid), "Uid")
		if instances == 0 || len(uids) < 2 {
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
	for _, uid := range slices.Sorted(maps.Keys(byUser)) {
		u := *byUser[uid]
		u.Top = top(u.Top, maxInotifyTop, func(a, b InotifyProcess) int {
			return cmp.Or(b.Instances-a.Instances, a.PID-b.PID)
		})
		total.Users = append(total.Users, u)
	}
	slices.SortStableFunc(total.Users, func(a, b InotifyUser) int { return b.Instances - a.Instances })
	return total
}

// countInotify reads up to limit descriptors of a process. It is an error that there are more.
func countInotify(dir string, limit int) (instances, watches, looked int, err error) {
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return 0, 0, 0, err
	}
	defer f.Close()
	list, err := f.Readdirnames(limit + 1)
	if err == nil && len(list) > limit {
		list, err = list[:limit], errors.New("too many descriptors")
	} else if errors.Is(err, io.EOF) { // of no descriptors
		err = nil
	}
	for _, name := range list {
		if link, _ := os.Readlink(filepath.Join(dir, "fd", name)); link == "anon_inode:inotify" {
			marks, _ := readLimited(filepath.Join(dir, "fdinfo", name), maxMarks)
			instances++
			watches += countMarks(marks)
		}
	}
	return instances, watches, len(list), err
}

// countMarks counts the watches in the fdinfo of an inotify instance, one line each:
//
//	inotify wd:1 ino:2b3 sdev:800003 mask:3c6 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:b302000000000000
func countMarks(fdinfo string) int { return strings.Count(fdinfo, "\ninotify wd:") }
