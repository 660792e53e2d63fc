package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDescriptors bounds what is counted of one process's open files: fs.nr_open is 1,048,576 unless it was raised.
const maxDescriptors = 2 << 20

// ReadFiles reads how many files are open on the host and in the processes of the runtime and the kubelet, against
// their limits. With an error there may be a part of it.
func ReadFiles(ctx context.Context, root string, people Population) (Files, error) {
	return within(ctx, func(at *position) (Files, error) {
		b, err := readSmall(filepath.Join(root, "proc/sys/fs/file-nr"))
		if err != nil {
			return Files{}, fmt.Errorf("counting open files: %w", err)
		}
		var f Files
		if f.System, err = parseFileNr(b); err != nil {
			return Files{}, fmt.Errorf("counting open files: %w", err)
		}
		denied := 0
		err = people.gap()
		for _, daemon := range people.daemons() {
			at.enter(fmt.Sprintf("the descriptors of process %d (%s)", daemon.PID, daemon.Name))
			p, e := readProcessFiles(filepath.Join(root, "proc", strconv.Itoa(daemon.PID)))
			switch {
			case errors.Is(e, fs.ErrNotExist), errors.Is(e, unix.ESRCH):
				continue // gone meanwhile
			case errors.Is(e, fs.ErrPermission):
				denied++
				continue
			case e != nil:
				err = errors.Join(err, fmt.Errorf("counting the open files of %s: %w", daemon.Name, e))
				continue
			}
			p.PID, p.Name, p.Role = daemon.PID, daemon.Name, daemon.Role
			f.Processes = append(f.Processes, p)
		}
		if denied > 0 {
			err = errors.Join(err, fmt.Errorf("counting open files: no permission for %d of %d processes", denied, denied+len(f.Processes)))
		}
		return f, err
	})
}

// parseFileNr reads fs.file-nr: allocated, of them unused (always 0 since Linux 2.6), and the limit. systemd sets the
// limit to the largest number there is, which is none.
func parseFileNr(b []byte) (Usage, error) {
	fields := strings.Fields(string(b))
	if len(fields) != 3 {
		return Usage{}, fmt.Errorf("%d fields in file-nr, want 3", len(fields))
	}
	var n [3]uint64
	for i, field := range fields {
		var err error
		if n[i], err = strconv.ParseUint(field, 10, 64); err != nil {
			return Usage{}, fmt.Errorf("field %.40q in file-nr", field)
		}
	}
	if n[2] >= math.MaxInt64 {
		n[2] = 0
	}
	return Usage{Current: n[0] - min(n[1], n[0]), Max: n[2]}, nil
}

func readProcessFiles(dir string) (ProcessFiles, error) {
	b, err := readSmall(filepath.Join(dir, "limits"))
	if err != nil {
		return ProcessFiles{}, err
	}
	var p ProcessFiles
	if p.Max, p.Hard, err = parseFileLimits(b); err != nil {
		return ProcessFiles{}, err
	}
	p.Current, err = countDescriptors(filepath.Join(dir, "fd"))
	return p, err
}

// countDescriptors counts a process's open files. Since Linux 6.2 the size of the folder says it (fs/proc/fd.c).
func countDescriptors(dir string) (uint64, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 0 && onProc(f) {
		return uint64(info.Size()), nil
	}
	n := 0
	for n < maxDescriptors {
		names, err := f.Readdirnames(1024)
		n += len(names)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return uint64(n), nil
}

// onProc reports whether an open folder is the kernel's: the size of others means something else.
func onProc(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// parseFileLimits finds the soft and the hard limit of open files in /proc/PID/limits; unlimited is 0:
//
//	Max open files            1024                 524288               files
func parseFileLimits(b []byte) (soft, hard uint64, err error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Max open files ")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			break
		}
		if soft, err = parseLimit(fields[0]); err != nil {
			return 0, 0, err
		}
		if hard, err = parseLimit(fields[1]); err != nil {
			return 0, 0, err
		}
		return soft, hard, nil
	}
	return 0, 0, errors.New("no limit of open files")
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("limit %.40q", s)
	}
	return n, nil
}
