//go:build e2e

package nodebox

import (
	"cmp"
	"context"
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

// newFolder makes a folder for a box in parent, with the lock that shows that its owner lives, and cleans up after dead
// owners.
func newFolder(ctx context.Context, parent, prefix string) (dir string, lock *os.File, err error) {
	if parent, err = filepath.Abs(cmp.Or(parent, os.TempDir())); err != nil {
		return "", nil, err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil { // the kernel's list of mounts has no links
		return "", nil, err
	}
	sweep(parent, prefix, func(dir string) error { return clean(ctx, dir) })
	if dir, err = os.MkdirTemp(parent, prefix); err != nil {
		return "", nil, err
	}
	lock, err = lockOwner(filepath.Join(dir, "owner"))
	return dir, lock, err
}

// clean removes all that belongs to the Containerd or the Box in a folder, as found in the folder and in /proc, so that
// it works for a dead owner's as well. The folder stays if something in it was not ended or unmounted.
func clean(ctx context.Context, dir string) error {
	l := layout{dir}
	// Processes first, since they could still change things; then what is found through the folder while it is mounted.
	err := killAll(ctx, dir)
	cgroups := map[string]bool{filepath.Base(dir): true}
	for _, folder := range []string{
		"state/io.containerd.runtime.v2.task/k8s.io", // the bundles of running sandboxes and containers
		"root/" + PluginCRI + "/sandboxes",           // the sandboxes that were not removed
	} {
		entries, _ := os.ReadDir(l.path(folder))
		for _, e := range entries {
			if len(e.Name()) != 64 {
				continue // not an id
			}
			cgroups[e.Name()] = true
			results, _ := filepath.Glob("/var/lib/cni/results/*-" + e.Name() + "-*") // stored by libcni
			for _, name := range append(results, l.shimSocket(e.Name())) {
				if removed := os.Remove(name); !errors.Is(removed, fs.ErrNotExist) {
					err = errors.Join(err, removed)
				}
			}
		}
	}
	if err = errors.Join(err, removeCgroups(ctx, cgroups), unmountBelow(dir)); err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("cleaning up %s: %w", dir, err)
	}
	return nil
}

// cgroupDirs returns the folders of the cgroups with these names and below, in all hierarchies, parents before
// children.
func cgroupDirs(names map[string]bool) []string {
	found := map[string]bool{}
	var dirs []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(dir string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (names[d.Name()] || found[filepath.Dir(dir)]) {
			found[dir] = true
			dirs = append(dirs, dir)
		}
		return nil // what vanishes meanwhile need not be removed
	})
	return dirs
}

// removeCgroups kills what still runs in the cgroups with these names and below, in all hierarchies, and removes them.
func removeCgroups(ctx context.Context, names map[string]bool) error {
	var errs []error
	for _, dir := range slices.Backward(cgroupDirs(names)) {
		errs = append(errs, poll(ctx, stopPatience, "the cgroup "+dir+" to go", func() (bool, error) {
			for _, pid := range cgroupProcs(dir) {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
			}
			err := unix.Rmdir(dir)
			return err == nil || errors.Is(err, unix.ENOENT), err
		}))
	}
	return errors.Join(errs...)
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
