package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
			if held && (holder < 0 || gone != nil || who.state == 'Z') { // its children have the lock too
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
