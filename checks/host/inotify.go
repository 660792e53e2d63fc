package host

import (
	"bufio"
	"bytes"
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
		count, looked, whole := countInotify(filepath.Join(p.root, "proc", strconv.Itoa(st.pid)), min(left, maxOpenOfOne))
		left -= looked
		if !whole {
			total.Unread++
		}
		if count.instances == 0 {
			continue
		}
		one, err := p.proc.Proc(st.pid)
		status, errStatus := one.NewStatus()
		if errors.Join(err, errStatus) != nil {
			total.Unread++
			continue
		}
		uid := int(status.UIDs[1])
		if byUser[uid] == nil {
			byUser[uid] = &InotifyUser{UID: uid}
		}
		u := byUser[uid]
		u.Instances += count.instances
		u.Watches += count.watches
		u.Top = append(u.Top, InotifyProcess{PID: st.pid, Name: st.comm, Instances: count.instances})
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

type inotifyCount struct{ instances, watches int }

// countInotify reads up to limit descriptors of a process. It is whole when there are no more, and when the process
// is gone.
func countInotify(dir string, limit int) (count inotifyCount, looked int, whole bool) {
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return count, 0, errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	for looked < limit {
		names, err := f.Readdirnames(min(1024, limit-looked))
		for _, name := range names {
			looked++
			link, err := os.Readlink(filepath.Join(dir, "fd", name))
			if err == nil && link == "anon_inode:inotify" {
				count.instances++
				count.watches += countMarks(filepath.Join(dir, "fdinfo", name))
			}
		}
		if err != nil {
			return count, looked, errors.Is(err, io.EOF) || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrNotExist)
		}
	}
	return count, looked, false
}

func countMarks(file string) int {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	return parseMarks(io.LimitReader(f, maxMarks))
}

// parseMarks counts the watches in the fdinfo of an inotify instance, one line each:
//
//	inotify wd:1 ino:2b3 sdev:800003 mask:3c6 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:b302000000000000
func parseMarks(r io.Reader) int {
	n := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if bytes.HasPrefix(lines.Bytes(), []byte("inotify wd:")) {
			n++
		}
	}
	return n
}
