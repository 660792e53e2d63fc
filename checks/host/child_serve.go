package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The work of a child on each of its paths.
const (
	verbSpace = "space" // statfs and statx of the folder
	verbMount = "mount" // the same, of the mounts of pods and networks; counted apart
	verbWrite = "write" // some writes of 4 KiB with fsync
	verbDial  = "dial"  // connections to the sockets in a folder, or that a configuration names
)

// ChildArgument is the first argument of a kdiag that is a disposable child. Its main hands the arguments that follow
// to Serve before it does anything else, and exits with what that returns:
//
//	if len(os.Args) > 1 && os.Args[1] == host.ChildArgument {
//		os.Exit(host.Serve(os.Args[2:], os.Stdout))
//	}
const ChildArgument = "kdiag-probe"

// A reply is a child's line about a path. Its first line, which is empty, shows that it has started.
type reply struct {
	Err                string          `json:",omitempty"`
	Times              []time.Duration `json:",omitempty"` // of writes
	Size, Free         uint64          // bytes
	Inodes, InodesFree uint64
	Asked              int    `json:",omitempty"` // peers
	Peers              []Peer `json:",omitempty"` // that did not answer
	CRIOff             string `json:",omitempty"` // see Peers.CRIOff
}

// Serve is the other side of Child: a process that probes each path in turn. It opens nothing but them
// and the file of its name, by which a later run finds it if it stays behind. It returns the exit code.
func Serve(args []string, out io.Writer) int {
	const usage = 64
	if len(args) < 2 {
		return usage
	}
	do := map[string]func(base, name string) reply{verbSpace: measure, verbMount: measure, verbWrite: timeWrites}[args[0]]
	if args[0] == verbDial {
		do = dialAll(args[1], args[2:])
	}
	if do == nil {
		return usage
	}
	runtime.LockOSThread()
	lines := json.NewEncoder(out)
	err := lines.Encode(reply{})
	for _, name := range args[2:] {
		// The names of the process, and of the thread that may hang, which the kernel reports. Without /proc no later
		// run searches for them.
		for _, comm := range []string{"/proc/self/comm", "/proc/thread-self/comm"} {
			_ = os.WriteFile(comm, []byte(childName(args[0], name)), 0)
		}
		err = cmp.Or(err, lines.Encode(do(args[1], name)))
	}
	if err != nil {
		return 1
	}
	return 0
}

const (
	// maxWrites is how many writes are timed: enough for a median, and less than half a second on a slow disk (50 ms
	// each).
	maxWrites = 8
	// writesTime is how long new writes are started: on a disk so slow that this is not enough for all, some are
	// enough.
	writesTime = 2 * time.Second
	writeSize  = 4 << 10
)

// timeWrites times some writes with fsync, each into its own file without a name, until one fails.
func timeWrites(base, name string) (got reply) {
	folder := filepath.Join(base, name)
	for began := time.Now(); len(got.Times) < maxWrites && time.Since(began) < writesTime; {
		took, err := timeWrite(folder)
		if err != nil {
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				err = errno // without the path
			}
			got.Err = err.Error()
			break
		}
		got.Times = append(got.Times, took)
	}
	return got
}

// timeWrite times a write and its fsync; making the file is not part of it.
func timeWrite(folder string) (time.Duration, error) {
	f, err := openUnlinked(folder)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := time.Now()
	if _, err = f.Write(make([]byte, writeSize)); err == nil {
		err = f.Sync()
	}
	return time.Since(began), err
}

// writeName is the file on file systems that have no O_TMPFILE (NFS, vfat, overlay before Linux 6.3). It has a
// name for a moment only; if the process is killed in it, the next one removes it.
const writeName = ".kdiag-timed-write"

// openUnlinked makes a file without a name.
func openUnlinked(folder string) (*os.File, error) {
	f, err := openTemporary(folder)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return f, err
	}
	name := filepath.Join(folder, writeName)
	_ = os.Remove(name) // hardly ever there
	f, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|os.O_WRONLY, 0o600)
	return f, cmp.Or(err, os.Remove(name))
}
