package host

import (
	"encoding/json"
	"errors"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// What a child does with each of its paths.
const (
	verbSpace = "space" // statfs and statx of the folder
	verbMount = "mount" // the same, of the mounts of pods and networks; counted apart
	verbWrite = "write" // a write of 4 KiB with fsync
)

// ChildArgument is the first argument of a kdiag that is a disposable child. Its main hands the arguments that follow
// to Serve before it does anything else, and exits with what that returns:
//
//	if len(os.Args) > 1 && os.Args[1] == host.ChildArgument {
//		os.Exit(host.Serve(os.Args[2:], os.Stdout))
//	}
const ChildArgument = "kdiag-probe"

// A reply is a line that a child writes: that it begins with a path, or the result for it.
type reply struct {
	Begun              bool `json:",omitempty"`
	Took               time.Duration
	Err                string
	Size, Free         uint64 // bytes
	Inodes, InodesFree uint64
}

// Serve is the other side of Child: a process that does to each path in turn what can hang. It opens nothing but them
// and the file of its name, by which a later run finds it if it stays behind. It returns the exit code.
func Serve(args []string, out io.Writer) int {
	const usage = 64
	if len(args) < 2 {
		return usage
	}
	do := map[string]func(string) reply{verbSpace: look, verbMount: look, verbWrite: timeWrite}[args[0]]
	if do == nil {
		return usage
	}
	lines := json.NewEncoder(out)
	for i, name := range args[2:] {
		// The name is the first thread's, whichever runs this. Without /proc no later run searches for it.
		_ = os.WriteFile("/proc/self/comm", []byte(childName(i)), 0)
		if lines.Encode(reply{Begun: true}) != nil {
			return 1
		}
		if lines.Encode(do(filepath.Join(args[1], name))) != nil {
			return 1
		}
	}
	return 0
}

// look asks a file system for its size, as df does, and for the attributes of a folder, as ls does; of those a server
// is asked rather than the cache. O_PATH opens nothing on the file system itself.
func look(name string) (got reply) {
	began := time.Now()
	defer func() { got.Took = time.Since(began) }()
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return reply{Err: err.Error()}
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return reply{Err: err.Error()}
	}
	unit := uint64(max(st.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(st.Bsize, 0))
	}
	got = reply{
		Size: bytesOf(st.Blocks, unit), Free: bytesOf(st.Bavail, unit),
		Inodes: st.Files, InodesFree: min(st.Ffree, st.Files),
	}
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC | unix.AT_NO_AUTOMOUNT
	err = unix.Statx(fd, "", flags, unix.STATX_BASIC_STATS, &unix.Statx_t{})
	if err != nil {
		got.Err = err.Error()
	}
	return got
}

// bytesOf is the size of a number of blocks. A file system in user space may return any number.
func bytesOf(blocks, unit uint64) uint64 {
	over, size := bits.Mul64(blocks, unit)
	if over > 0 {
		return 1<<64 - 1
	}
	return size
}

const writeSize = 4 << 10

// timeWrite times a write and its fsync; making the file is not part of it.
func timeWrite(folder string) reply {
	fd, err := openUnlinked(folder)
	if err != nil {
		return reply{Err: err.Error()}
	}
	defer unix.Close(fd)
	began := time.Now()
	n, err := unix.Write(fd, make([]byte, writeSize))
	if err == nil && n < writeSize {
		err = unix.ENOSPC
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	if err != nil {
		return reply{Err: err.Error(), Took: time.Since(began)}
	}
	return reply{Took: time.Since(began)}
}

// writeName is the file on file systems that have no O_TMPFILE (NFS, vfat, overlay before Linux 6.3). It has a
// name for a moment only; if the process is killed in it, the next one removes it.
const writeName = ".kdiag-timed-write"

// openUnlinked makes a file without a name.
func openUnlinked(folder string) (int, error) {
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) { // EISDIR before Linux 3.11
		return fd, err
	}
	name := filepath.Join(folder, writeName)
	_ = unix.Unlink(name) // hardly ever there
	fd, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err := unix.Unlink(name); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
