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
)

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
	var pids []int
	for _, st := range p.byWorth() {
		if !st.kernel && (st.state != 'Z' || st.threads > 1) {
			pids = append(pids, st.pid)
		}
	}
	found, err := gather(ctx, "looking for fanotify", pids, func(at *position, pid int) (Watcher, bool) {
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
