package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Files is open file descriptors against the limits of the kernel and of the processes that matter.
type Files struct {
	System    Usage          // fs.file-nr
	Processes []ProcessFiles // runtime and kubelet
}

// A ProcessFiles is the open files of one process; Max is its soft limit (RLIMIT_NOFILE).
type ProcessFiles struct {
	PID  int
	Name string
	Role Role
	Usage
	Hard uint64
}

// ReadFiles reads how many files are open on the host and in the processes of the runtime and the kubelet, against
// their limits. With an error there may be a part of it.
func ReadFiles(ctx context.Context, root string, processes Population) (Files, error) {
	return within(ctx, "counting open files", func(at *position) (Files, error) {
		text, err := readSmall(root, "proc/sys/fs/file-nr")
		system, errSystem := parseFileNr(text)
		if err := cmp.Or(err, errSystem); err != nil {
			return Files{}, fmt.Errorf("counting open files: %w", err)
		}
		f := Files{System: system}
		err = processes.gap()
		for _, daemon := range processes.daemons() {
			at.enter("the descriptors of process %d (%s)", daemon.PID, daemon.Name)
			p, e := processes.files(daemon)
			switch {
			case errors.Is(e, fs.ErrNotExist), errors.Is(e, unix.ESRCH): // gone meanwhile
			case e != nil:
				err = errors.Join(err, fmt.Errorf("counting the open files of %s: %w", daemon.Name, e))
			default:
				f.Processes = append(f.Processes, p)
			}
		}
		return f, err
	})
}

// files reads the open files of one process.
func (p Population) files(of Process) (ProcessFiles, error) {
	f := ProcessFiles{PID: of.PID, Name: of.Name, Role: of.Role}
	text, err := readSmall(p.dir(of.PID), "limits")
	if err == nil {
		f.Max, f.Hard, err = parseFileLimits(text)
	}
	if err != nil {
		return f, err
	}
	open, err := os.ReadDir(filepath.Join(p.dir(of.PID), "fd"))
	f.Current = uint64(len(open))
	return f, err
}

// parseFileNr reads fs.file-nr: allocated, of them unused (always 0 since Linux 2.6), and the limit. systemd sets the
// limit to the largest number there is, which is none.
func parseFileNr(text string) (Usage, error) {
	var used, unused, limit uint64
	if _, err := fmt.Sscan(text, &used, &unused, &limit); err != nil {
		return Usage{}, fmt.Errorf("reading file-nr: %w", err)
	}
	if limit >= math.MaxInt64 {
		limit = 0
	}
	return Usage{Current: used, Max: limit}, nil
}

// parseFileLimits finds the soft and the hard limit of open files in /proc/PID/limits; unlimited is 0:
//
//	Max open files            1024                 524288               files
func parseFileLimits(text string) (soft, hard uint64, err error) {
	line := strings.Join(fieldsAfter(text, "Max open files"), " ")
	if _, err := fmt.Sscan(strings.ReplaceAll(line, "unlimited", "0"), &soft, &hard); err != nil {
		return 0, 0, errors.New("no limit of open files")
	}
	return soft, hard, nil
}

// Conntrack is the table of tracked connections (net.netfilter.nf_conntrack_*); Max 0 where the module is not loaded.
type Conntrack struct{ Usage }

// ReadConntrack reads the table of tracked connections of the network namespace that kdiag runs in, which is the host's
// in a pod with hostNetwork. Where the module is not loaded there is no table, and no error.
func ReadConntrack(root string) (Conntrack, error) {
	dir := filepath.Join(root, "proc/sys/net/netfilter")
	count, err := readUint(dir, "nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return Conntrack{}, nil
	}
	limit, errLimit := readUint(dir, "nf_conntrack_max")
	if err := errors.Join(err, errLimit); err != nil {
		return Conntrack{}, fmt.Errorf("counting tracked connections: %w", err)
	}
	return Conntrack{Usage{Current: count, Max: limit}}, nil
}
