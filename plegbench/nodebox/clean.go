package nodebox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lockOwner makes the file by which others see that a box's owner lives: it is locked as long as the owner holds it. It gets its
// name when it is locked, since another owner may sweep at any moment.
func lockOwner(name string) (*os.File, error) {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", name, err)
	}
	return f, nil
}

// lockDead locks the file of an owner that died. It makes none, and takes none that another has removed meanwhile with the box.
func lockDead(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = stillNamed(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// stillNamed says whether an open file is there under the name by which it was opened.
func stillNamed(f *os.File) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(f.Name())
	if err == nil && !os.SameFile(opened, named) {
		err = fmt.Errorf("%s is another file now", f.Name())
	}
	return err
}

// sweep cleans up after owners that died without Close. What it cannot remove is left for the next time. The folders are
// those in parent whose names begin with prefix.
func sweep(parent, prefix string, clean func(dir string) error) {
	dirs, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, dir := range dirs {
		owner := filepath.Join(dir, "owner")
		if !own(dir) || !own(owner) {
			continue // being made, or put there by somebody else: what it says is not to be trusted
		}
		lock, err := lockDead(owner)
		if err != nil {
			continue // its owner lives
		}
		_ = clean(dir)
		lock.Close()
	}
}

// own reports whether a file is there, is no link, and belongs to this user.
func own(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && int(st.Uid) == os.Geteuid()
}

// clean removes all that belongs to the box in a folder. It goes by what the folder and /proc say, not by what a live
// owner remembers.
func clean(ctx context.Context, dir string) error {
	l := layout{dir}
	// Whoever could still change things goes first; the folder tells what to remove as long as it is mounted.
	err := killAll(ctx, l)
	err = errors.Join(err, leftovers(l).remove(ctx), unmountBelow(dir))
	return removeFolder(dir, err)
}

// removeFolder removes a box's folder, unless something in it was not ended or unmounted.
func removeFolder(dir string, err error) error {
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("cleaning up %s: %w", dir, err)
	}
	return nil
}

// outside is what a box leaves outside of its folder.
type outside struct {
	sockets []string // of shims, in /run/containerd/s
	cgroups []string // directories, parents before children
	results []string // that libcni remembers
}

// leftovers finds out what lies outside of the folder, as long as the folder can still tell.
func leftovers(l layout) outside {
	var o outside
	for _, sandbox := range slices.Concat(subdirs(l.tasks()), subdirs(l.sandboxes())) {
		id := filepath.Base(sandbox)
		found, _ := filepath.Glob("/var/lib/cni/results/*-" + id + "-*")
		o.sockets = append(o.sockets, l.shimSocket(id))
		o.results = append(o.results, found...)
	}
	parents := []string{l.cgroup()}
	for _, bundle := range subdirs(l.tasks()) {
		if p := cgroupOfBundle(bundle); p != "" {
			parents = append(parents, p)
		}
	}
	for _, p := range parents {
		o.cgroups = append(o.cgroups, cgroupDirs(p)...)
	}
	return o
}

// cgroupOfBundle returns the container's cgroup as its OCI specification gives it; empty unless that is the container's
// alone, named after it.
func cgroupOfBundle(bundle string) string {
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return ""
	}
	var spec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	}
	if json.Unmarshal(b, &spec) != nil {
		return ""
	}
	cgroup := filepath.Clean("/" + spec.Linux.CgroupsPath)
	if filepath.Base(cgroup) != filepath.Base(bundle) {
		return ""
	}
	return cgroup
}

// cgroupDirs returns where a cgroup and all below it lie, in the unified hierarchy and in each of version 1.
func cgroupDirs(cgroup string) []string {
	tops, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", cgroup))
	tops = append(tops, filepath.Join("/sys/fs/cgroup", cgroup))
	var dirs []string
	for _, top := range tops {
		_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, name)
			}
			return nil // what vanishes meanwhile need not be removed
		})
	}
	return dirs
}

// remove kills what still runs in the cgroups and removes them, the sockets and the results.
func (o outside) remove(ctx context.Context) error {
	var errs []error
	for _, dir := range slices.Backward(o.cgroups) {
		errs = append(errs, removeCgroup(ctx, dir))
	}
	for _, name := range slices.Concat(o.sockets, o.results) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, dir string) error {
	return poll(ctx, stopPatience, "the cgroup "+dir+" to go", func() (bool, error) {
		for _, pid := range cgroupProcs(dir) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
		}
		err := unix.Rmdir(dir)
		return err == nil || errors.Is(err, unix.ENOENT), err
	})
}

// unmountBelow detaches every mount at or below a folder, the last one first.
func unmountBelow(dir string) error {
	for range 100 { // a mount may hide another at the same place
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		for _, p := range slices.Backward(points) {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return fmt.Errorf("unmounting %s: %w", p, err)
			}
		}
	}
	return fmt.Errorf("unmounting %s: there is no end of mounts", dir)
}

// mountsBelow returns the mount points at or below a folder in the order in which they were mounted. In
// /proc/self/mountinfo the fifth field is the mount point, with blanks as \040:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if p := fields[4]; p == dir || strings.HasPrefix(p, dir+"/") {
			points = append(points, p)
		}
	}
	return points, nil
}

func subdirs(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs
}

// cleanBox ends a node by its leader, whose end the kernel follows with that of all its processes, and removes its
// mounts, cgroups and folder.
func cleanBox(ctx context.Context, dir string) error {
	err := killBox(ctx, dir)
	left := outside{cgroups: cgroupDirs("/" + filepath.Base(dir))}
	err = errors.Join(err, left.remove(ctx), unmountBelow(dir))
	return removeFolder(dir, err)
}
