//go:build e2e

package nodebox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The base tree of a box: the Debian release whose packages the documentation names, and its packages beyond the
// smallest system.
const (
	baseSuite    = "bookworm"
	basePackages = "systemd,systemd-sysv,dbus,containerd,runc,procps,iproute2"
	// baseName is the tree's folder. Its number changes with the packages, and an old tree is then made anew.
	baseName = baseSuite + "-1"
)

// baseTree returns the base tree in the user's cache, and makes it if it is not there, which takes a minute and the
// network. Others who need it at the same time wait.
func baseTree(ctx context.Context) (tree string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "kdiag", "nodebox")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	tree = filepath.Join(cache, baseName)
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	if err := makeTree(ctx, tree); err != nil {
		return "", fmt.Errorf("making the base tree of boxes: %w", err)
	}
	return tree, nil
}

// makeTree makes the tree under another name first, so that one that was cut short is never taken for whole. Where
// debootstrap is cut short, it may leave /proc and /sys mounted.
func makeTree(ctx context.Context, tree string) error {
	unfinished := tree + ".unfinished"
	if err := UnmountBelow(unfinished); err != nil {
		return err
	}
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	args := []string{"--variant=minbase", "--include=" + basePackages, baseSuite, unfinished}
	if _, err := run(ctx, "debootstrap", args...); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(unfinished, "var/cache/apt/archives")); err != nil {
		return err
	}
	return os.Rename(unfinished, tree)
}
