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

// A FileLock is a lock (flock(2)) that a process holds on a file which another one has open.
type FileLock struct {
	Path  string
	PID   int    // of the holder
	Name  string // comm of the holder
	State byte   // of the holder, as in /proc/PID/stat
}

// LocksBefore returns the locks that others hold on the databases, files of the name *.db, that a process has open: at
// its start a daemon waits for them.
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
			if f := strings.Fields(line); len(f) == 8 && f[1] == "FLOCK" {
				holders[f[5]], _ = strconv.Atoi(f[4])
			}
		}
		var list []FileLock
		all := Population{root: root}
		for _, fd := range names(filepath.Join(all.dir(pid), "fd")) {
			name := filepath.Join(all.dir(pid), "fd", fd)
			path, _ := os.Readlink(name)
			if !strings.HasSuffix(path, ".db") {
				continue
			}
			at.enter("%s", path)
			var st unix.Stat_t
			err := unix.Stat(name, &st)
			holder := holders[fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)]
			if err != nil || holder <= 0 || holder == pid {
				continue
			}
			who, _ := readStat(all.dir(holder))
			list = append(list, FileLock{Path: path, PID: holder, Name: who.comm, State: who.state})
		}
		return list, nil
	})
}
