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
	"strings"
	"syscall"
)

const (
	// maxOpen bounds the descriptors that are looked at on the whole host, at about two microseconds each.
	maxOpen = 500_000
	// maxOpenOfOne bounds those of one process, so that one that leaks does not hide all others.
	maxOpenOfOne = 50_000
	// maxMarks bounds what is read of one instance: a line of about a hundred bytes for each watch.
	maxMarks = 16 << 20
	// maxHolders bounds the processes that are named for each user.
	maxHolders = 10
)

// ReadInotify counts the inotify instances of each user and what they watch. There is no file that tells, so every
// descriptor of every process is looked at, those of the runtime, the kubelet and the shims first. Unread says how many
// processes were not, or not whole. An instance that a child inherited counts in both.
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
	counted, err := within(ctx, func(at *position) (Inotify, error) {
		holders, unread := inotifyHolders(ctx, at, people)
		return Inotify{Users: inotifyUsers(holders), Unread: unread}, ctx.Err()
	})
	if err != nil {
		missing = errors.Join(missing, fmt.Errorf("counting inotify instances: %w", err))
	}
	seen.Users, seen.Unread = counted.Users, counted.Unread
	return seen, errors.Join(missing, seen.own(ctx, people))
}

// own adds to the processes that are named whom they belong to.
func (seen Inotify) own(ctx context.Context, people Population) error {
	var pids []int
	for _, user := range seen.Users {
		for _, holder := range user.Top {
			pids = append(pids, holder.PID)
		}
	}
	owners, err := people.owners(ctx, pids)
	for _, user := range seen.Users {
		for i := range user.Top {
			user.Top[i].Owner = owners[user.Top[i].PID]
		}
	}
	return err
}

// An inotifyHolder is a process that holds inotify instances.
type inotifyHolder struct {
	InotifyProcess
	uid, watches int
}

func inotifyHolders(ctx context.Context, at *position, people Population) (holders []inotifyHolder, unread int) {
	left := maxOpen
	for _, st := range people.byWorth() {
		if st.kernel || st.state == 'Z' && st.threads <= 1 {
			continue // no descriptors
		}
		if ctx.Err() != nil || left <= 0 {
			unread++
			continue
		}
		dir := filepath.Join(people.scan.proc, strconv.Itoa(st.pid))
		at.enter(fmt.Sprintf("the descriptors of process %d (%s)", st.pid, st.comm))
		count, looked, whole := countInotify(dir, min(left, maxOpenOfOne))
		left -= looked
		if !whole {
			unread++
		}
		if count.instances == 0 {
			continue
		}
		uid, ok := effectiveUser(dir)
		if !ok {
			unread++
			continue
		}
		holders = append(holders, inotifyHolder{InotifyProcess{PID: st.pid, Name: st.comm, Instances: count.instances}, uid, count.watches})
	}
	return holders, unread
}

type inotifyCount struct{ instances, watches int }

// countInotify looks at up to limit descriptors of a process. It is whole when there are no more, and when the process
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
			if err != nil || link != "anon_inode:inotify" {
				continue
			}
			count.instances++
			count.watches += countMarks(filepath.Join(dir, "fdinfo", name))
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

// effectiveUser returns the user that the kernel charges an inotify instance to, current_euid() at the time.
func effectiveUser(dir string) (int, bool) {
	b, err := readSmall(filepath.Join(dir, "status"))
	if err != nil {
		return 0, false
	}
	return parseEffectiveUser(b)
}

// parseEffectiveUser finds the second of the user ids in /proc/PID/status: real, effective, saved, file system.
func parseEffectiveUser(b []byte) (int, bool) {
	for line := range strings.Lines(string(b)) {
		ids, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		fields := strings.Fields(ids)
		if len(fields) != 4 {
			return 0, false
		}
		uid, err := strconv.ParseUint(fields[1], 10, 32)
		return int(uid), err == nil
	}
	return 0, false
}

// inotifyUsers adds up what the processes of each user hold, most instances first.
func inotifyUsers(holders []inotifyHolder) []InotifyUser {
	byUser := map[int]*InotifyUser{}
	for _, h := range holders {
		u := byUser[h.uid]
		if u == nil {
			u = &InotifyUser{UID: h.uid}
			byUser[h.uid] = u
		}
		u.Instances += h.Instances
		u.Watches += h.watches
		u.Top = append(u.Top, h.InotifyProcess)
	}
	users := make([]InotifyUser, 0, len(byUser))
	for _, uid := range slices.Sorted(maps.Keys(byUser)) {
		u := *byUser[uid]
		slices.SortFunc(u.Top, func(a, b InotifyProcess) int { return cmp.Or(b.Instances-a.Instances, a.PID-b.PID) })
		u.Top = u.Top[:min(len(u.Top), maxHolders)]
		users = append(users, u)
	}
	slices.SortStableFunc(users, func(a, b InotifyUser) int { return b.Instances - a.Instances })
	return users
}
