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

// lockOwner creates the file that shows that a box's owner lives: it is locked as long as the owner keeps it open. It
// gets its name after it was locked, because another owner may sweep at any moment.
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

// sweep cleans up after owners that died without Close. What it cannot remove is left for the next time. The folders
// are those in parent whose names begin with prefix.
func sweep(parent, prefix string, clean func(dir string) error) {
	dirs, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, dir := range dirs {
		owner := filepath.Join(dir, "owner")
		if !own(dir) || !own(owner) {
			continue // being made, or not trustworthy because another user's
		}
		lock, err := os.OpenFile(owner, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		// Locked, its owner lives. Gone meanwhile, another has cleaned up.
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && own(owner) {
			_ = clean(dir)
		}
		lock.Close()
	}
}

// own reports whether a file is there, is no link, and belongs to this user.
func own(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && int(st.Uid) == os.Geteuid()
}

// clean removes all that belongs to the box in a folder, as found in the folder and in /proc, so that it works for a
// dead owner's box as well.
func clean(ctx context.Context, dir string) error {
	l := layout{dir}
	// Processes first, since they could still change things; then what is found through the folder while it is mounted.
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
	results []string // stored by libcni
}

// leftovers finds what is outside of the folder, by what is in it.
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
