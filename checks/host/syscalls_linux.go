package host

import (
	"cmp"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes are those of a process that ends with this one.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// measure asks a file system for its size, as df does, and for the attributes of a folder, as ls does; of those a
// server is asked rather than the cache. O_PATH opens nothing on the file system itself.
func measure(name string) reply {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return reply{Err: err.Error()}
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return reply{Err: err.Error()}
	}
	unit := uint64(max(cmp.Or(st.Frsize, st.Bsize), 0))
	got := reply{
		Size: st.Blocks * unit, Free: st.Bavail * unit,
		Inodes: st.Files, InodesFree: min(st.Ffree, st.Files),
	}
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC | unix.AT_NO_AUTOMOUNT
	if err := unix.Statx(fd, "", flags, unix.STATX_BASIC_STATS, &unix.Statx_t{}); err != nil {
		got.Err = err.Error()
	}
	return got
}

// openTemporary makes a file that never has a name.
func openTemporary(folder string) (*os.File, error) {
	return os.OpenFile(folder, unix.O_TMPFILE|os.O_WRONLY, 0o600)
}

// discipline returns whether something keeps the kernel's clock, and its largest error then.
func discipline() (synchronised bool, maxError time.Duration, err error) {
	var tx unix.Timex // Modes 0 changes nothing
	_, err = unix.Adjtimex(&tx)
	return tx.Status&unix.STA_UNSYNC == 0, time.Duration(tx.Maxerror) * time.Microsecond, err
}
