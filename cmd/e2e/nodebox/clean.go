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
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// newFolder makes a folder for a box, under a name by which sweep finds it if this run is killed.
func newFolder(parent string) (string, error) {
	return os.MkdirTemp(cmp.Or(parent, os.TempDir()), os.Getenv(apart)+"-")
}

// sweep removes what runs left that were killed, whose mounts and processes, but for frozen ones, have ended with them:
// control groups, which clean removes by their name, and then the folders of boxes.
func sweep(ctx context.Context) error {
	var errs []error
	for _, parent := range []string{"/sys/fs/cgroup/*", os.TempDir()} {
		left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
		for _, name := range left {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), groupPrefix), "-")
			if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, clean(ctx, name))
			}
		}
	}
	return errors.Join(errs...)
}

// clean removes all that belongs to the Containerd or the Box in a folder, as found in the folder and in /proc, so that
// it works for a killed run's as well. The folder stays if something in it was not ended or unmounted.
func clean(ctx context.Context, dir string) error {
	// Processes first, since they could still change things; then what is found through the folder while it is mounted.
	err := killAll(ctx, dir)
	cgroups := map[string]bool{filepath.Base(dir): true}
	for _, folder := range []string{
		"state/io.containerd.runtime.v2.task/k8s.io", // the bundles of running sandboxes and containers
		"root/" + PluginCRI + "/sandboxes",           // the sandboxes that were not removed
	} {
		entries, _ := os.ReadDir(filepath.Join(dir, folder))
		for _, e := range entries {
			if len(e.Name()) == 64 { // an id
				cgroups[e.Name()] = true
			}
		}
	}
	if err = errors.Join(err, removeCgroups(ctx, cgroups), UnmountBelow(dir)); err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("cleaning up %s: %w", dir, err)
	}
	return nil
}

// killAll ends the processes of a Containerd or a Box, frozen ones as well, until there is none: the daemon, its shims,
// runc and CNI plugins. Other processes that name the folder, such as a pager over the log, are left alone. The
// processes of containers end with their cgroups, and those of a Box with its systemd.
func killAll(ctx context.Context, dir string) error {
	return poll(ctx, stopPatience, "the processes of "+dir+" to end", func() (bool, error) {
		alive := 0
		for pid, args := range processes() {
			all, base := strings.Join(args, "\x00"), filepath.Base(args[0])
			switch {
			case base == "systemd-nspawn" && slices.Contains(args, "--directory="+dir+"/root"):
				pid = cmp.Or(child(pid), pid)
			case strings.Contains(all, dir+"/cni/bin/"):
			case strings.Contains(all, dir+"/") && (base == "runc" || base == "ctr" || strings.HasPrefix(base, "containerd")):
			default:
				continue
			}
			alive++
			_ = unix.Kill(pid, unix.SIGKILL) // works on stopped processes as well; it may have ended by itself
		}
		return alive == 0, fmt.Errorf("%d are left", alive)
	})
}

// removeCgroups kills what still runs in the cgroups with these names and below, in all hierarchies, and removes them.
func removeCgroups(ctx context.Context, names map[string]bool) error {
	return poll(ctx, stopPatience, "cgroups to go", func() (bool, error) {
		found := map[string]bool{}
		var dirs []string // parents before children
		_ = filepath.WalkDir("/sys/fs/cgroup", func(dir string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (names[d.Name()] || found[filepath.Dir(dir)]) {
				found[dir] = true
				dirs = append(dirs, dir)
			}
			return nil // what vanishes meanwhile need not be removed
		})
		var errs []error
		for _, dir := range slices.Backward(dirs) {
			// A process that is frozen by version 1 ends when it is thawed. Other groups have no such file.
			_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
			pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for field := range strings.FieldsSeq(string(pids)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
				}
			}
			errs = append(errs, os.Remove(dir))
		}
		return len(dirs) == 0, errors.Join(errs...)
	})
}

// makeCgroup makes a cgroup. A new cpuset of version 1 has neither processors nor memory and takes no process.
func makeCgroup(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, missing := os.ReadFile(filepath.Join(filepath.Dir(dir), name)); missing == nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), value, 0o644))
		}
	}
	return err
}

// UnmountBelow detaches every mount at or below a folder, the last one first.
func UnmountBelow(dir string) error {
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

// mountsBelow returns the mount points at or below a folder in the order in which they were mounted.
func mountsBelow(dir string) (points []string, err error) {
	mounts, err := procfs.GetMounts()
	for _, m := range mounts {
		if m.MountPoint == dir || strings.HasPrefix(m.MountPoint, dir+"/") {
			points = append(points, m.MountPoint)
		}
	}
	return points, err
}
