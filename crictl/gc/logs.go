package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// logLinks is where the kubelet links to the log of each container.
const logLinks = "/var/log/containers"

// longestLogLink is the most bytes of a link's name before its ".log" (ext4MaxFileNameLen in kuberuntime/legacy.go).
const longestLogLink = 255 - len(".log")

// Logs say where the kubelet has the logs of containers. The kubelet removes a log when it removes the container, and
// else only with all of the pod's, once the pod is gone. The zero value leaves logs alone.
type Logs struct {
	Root string // the folder that stands for the node's "/"
	Dir  string // podLogsDir, usually /var/log/pods
}

// folder names the folder of a container's logs, in two parts below Dir, and the log in it, as the kubelet names them.
// The names come from the runtime: those that could lead elsewhere are refused.
func (c *Candidate) folder() (parts []string, log string, err error) {
	for _, name := range []string{c.Namespace, c.Pod, c.PodUID, c.Container, c.ID} {
		if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return nil, "", fmt.Errorf("%q is not the name of a file", name)
		}
	}
	return []string{c.Namespace + "_" + c.Pod + "_" + c.PodUID, c.Container}, fmt.Sprintf("%d.log", c.Attempt), nil
}

// in calls do with the folder that the names lead to below base, if it is there. The base may be a link; below it links
// are not followed.
func (l Logs) in(base string, names []string, do func(dir *os.File) error) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	err := crictl.InRoot(l.Root, base, func(name string) error {
		fd, err := unix.Open(name, flags, 0)
		for _, name := range names {
			if err != nil {
				break
			}
			outer := fd
			fd, err = unix.Openat(outer, name, flags|unix.O_NOFOLLOW, 0)
			_ = unix.Close(outer)
		}
		if err != nil {
			return err
		}
		dir := os.NewFile(uintptr(fd), base)
		defer dir.Close()
		return do(dir)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join(append([]string{base}, names...)...), err)
	}
	return nil
}

// A logFile is a regular file and its size in bytes.
type logFile struct {
	name string
	size int64
}

// of reports whether the file is a log or one of its rotations: 3.log, 3.log.20261124-101530.gz.
func (f logFile) of(log string) bool { return f.name == log || strings.HasPrefix(f.name, log+".") }

// files returns the regular files of a folder; with a log, only it and its rotations.
func files(dir *os.File, log string) (found []logFile, err error) {
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		f := logFile{name: name}
		if log != "" && !f.of(log) {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			f.size = st.Size
			found = append(found, f)
		}
	}
	return found, err
}

// Measure notes in a plan how large the logs are that go with its containers. It returns with ctx at the latest, and
// then the sizes stay unknown.
func (l Logs) Measure(ctx context.Context, plan *Plan) error {
	plan.LogBytes = 0
	if l.Dir == "" {
		return nil
	}
	all := plan.Remove
	sizes, err := deadline.Run(ctx, "measuring logs", func(context.Context) ([]int64, error) {
		folders, sizes := map[string][]logFile{}, make([]int64, len(all))
		for i := range all {
			parts, log, err := all[i].folder()
			if all[i].Kind != KindContainer || err != nil {
				continue
			}
			key := path.Join(parts...)
			known, ok := folders[key]
			if !ok {
				if err := l.in(l.Dir, parts, func(dir *os.File) (err error) {
					known, err = files(dir, "")
					return err
				}); err != nil {
					return nil, err
				}
				folders[key] = known
			}
			for _, f := range known {
				if f.of(log) {
					sizes[i] += f.size
				}
			}
		}
		return sizes, nil
	})
	for i, size := range sizes {
		all[i].LogBytes = size
		plan.LogBytes += size
	}
	return err
}

// A removedLog lists the files of a container's log that were removed.
type removedLog struct {
	files []string // removed
	bytes int64
	err   error // the first of a file that stays
}

// remove removes the log of a container that the runtime has removed, its rotations and the link to it. at is where the
// runtime had it: a log elsewhere than the kubelet's stays.
func (l Logs) remove(c *Candidate, at string) (r removedLog) {
	parts, log, err := c.folder()
	folder := path.Join(append([]string{l.Dir}, parts...)...)
	if err == nil && at != path.Join(folder, log) {
		err = fmt.Errorf("the runtime had it at %q, a kubelet has it at %s", at, path.Join(folder, log))
	}
	if err != nil {
		return removedLog{err: err}
	}
	unlink := func(dir *os.File, folder string, f logFile) {
		name := path.Join(folder, f.name)
		switch err := unix.Unlinkat(int(dir.Fd()), f.name, 0); {
		case err == nil:
			r.files, r.bytes = append(r.files, name), r.bytes+f.size
		case !errors.Is(err, unix.ENOENT):
			r.err = cmp.Or[error](r.err, &os.PathError{Op: "removing", Path: name, Err: err})
		}
	}
	err = l.in(l.Dir, parts, func(dir *os.File) error {
		found, err := files(dir, log)
		for _, f := range found {
			unlink(dir, folder, f)
		}
		return err
	})
	link := c.Pod + "_" + c.Namespace + "_" + c.Container + "-" + c.ID
	link = link[:min(len(link), longestLogLink)] + ".log"
	linkErr := l.in(logLinks, nil, func(dir *os.File) error {
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), link, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			unlink(dir, logLinks, logFile{name: link})
		}
		return nil
	})
	r.err = cmp.Or(r.err, err, linkErr)
	return r
}
