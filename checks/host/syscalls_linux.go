package host

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// childAttributes let a child process end with this one.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// innerRoot matches what mountLine.within puts before a mount that only some process sees.
var innerRoot = lazyregexp.New(`^/proc/\d+/root`)

// openMount opens a mount point below base. The path of one that a container has leads through no link: it had none
// when it was mounted, and one that a pod puts there later leads to the host's files.
func openMount(base, name string) (int, error) {
	root := innerRoot.FindString(name)
	if root == "" {
		return unix.Open(filepath.Join(base, name), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	dir, err := unix.Open(filepath.Join(base, root), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(dir, "."+strings.TrimPrefix(name, root), &how)
	if err == unix.ENOSYS || err == unix.EPERM { // before Linux 5.6, or filtered
		return unix.Openat(dir, "."+strings.TrimPrefix(name, root), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// measure asks a file system for its size, as df does, and for the attributes of a folder, as ls does; of those a
// server is asked rather than the cache. Both at once: a slow one takes as long as one of them. O_PATH opens nothing on
// the file system itself.
func measure(base, name string) reply {
	fd, err := openMount(base, name)
	if err != nil {
		return reply{Err: err.Error()}
	}
	defer unix.Close(fd)
	attributes := make(chan error, 1)
	go func() {
		const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC | unix.AT_NO_AUTOMOUNT
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		comm, _ := os.ReadFile("/proc/self/comm")
		_ = os.WriteFile("/proc/thread-self/comm", comm, 0)
		attributes <- unix.Statx(fd, "", flags, unix.STATX_BASIC_STATS, &unix.Statx_t{})
	}()
	var st unix.Statfs_t
	err = unix.Fstatfs(fd, &st)
	errAttributes := <-attributes
	if err != nil {
		return reply{Err: err.Error()}
	}
	unit := uint64(max(cmp.Or(st.Frsize, st.Bsize), 0))
	got := reply{
		Size: st.Blocks * unit, Free: st.Bavail * unit,
		Inodes: st.Files, InodesFree: min(st.Ffree, st.Files),
	}
	if errAttributes != nil {
		got.Err = errAttributes.Error()
	}
	return got
}

// openTemporary makes a file that never has a name.
func openTemporary(folder string) (*os.File, error) {
	return os.OpenFile(folder, unix.O_TMPFILE|os.O_WRONLY, 0o600)
}

// listenerOf returns the process that began to listen at the other end of a unix socket; 0 where that is not known.
func listenerOf(conn net.Conn) (pid int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(who.Pid)
		}
	})
	return pid
}

// discipline returns whether something keeps the kernel's clock, and its largest error then.
func discipline() (synchronised bool, maxError time.Duration, err error) {
	var tx unix.Timex // Modes 0 changes nothing
	_, err = unix.Adjtimex(&tx)
	return tx.Status&unix.STA_UNSYNC == 0, time.Duration(tx.Maxerror) * time.Microsecond, err
}

// readUntrusted reads a file of at most limit bytes whose path somebody in a pod may have chosen. It follows no link,
// also not in the folders above, does not wait where a pipe stands in the file's place, and reads regular files only.
func readUntrusted(root, path string, limit int) (string, error) {
	failed := func(err error) (string, error) { return "", &os.PathError{Op: "open", Path: path, Err: err} }
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	elements := strings.Split(strings.Trim(filepath.Clean("/"+path), "/"), "/")
	for i, name := range elements {
		flags := unix.O_PATH | unix.O_DIRECTORY
		if i == len(elements)-1 {
			flags = safefile.Flags
		}
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(dir)
		if err != nil {
			return failed(err)
		}
		dir = fd
	}
	f, err := safefile.Regular(os.NewFile(uintptr(dir), path), nil)
	if err != nil {
		return failed(err)
	}
	text, err := safefile.ReadAll(f, int64(limit))
	return string(text), err
}
