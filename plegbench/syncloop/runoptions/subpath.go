package runoptions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// subPathOf is the part of the volume that is to be mounted, empty for all of it.
func subPathOf(vm *v1.VolumeMount, env map[string]string) (string, error) {
	subPath := vm.SubPath
	if vm.SubPathExpr != "" {
		var unknown []string
		if subPath, unknown = pod.Expand(vm.SubPathExpr, env); len(unknown) > 0 {
			return "", fmt.Errorf("missing value for %q", strings.Join(unknown, ", "))
		}
	}
	if filepath.IsAbs(subPath) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	}
	if slices.Contains(strings.Split(subPath, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", subPath)
	}
	if subPath != "" && filepath.Clean(subPath) == "." {
		return "", nil
	}
	return subPath, nil
}

// openTries is how often a path is opened that somebody renames meanwhile.
const openTries = 10

// bindSubPath mounts a part of a volume at the path at and returns that path. A container of the pod may put links into
// the volume at any time, and the runtime would follow them, to the node's files. So the part is opened once, by a walk that
// the kernel keeps within the volume, and what was opened is mounted (pkg/volume/util/subpath upstream). If it is not
// there, it is made, as a folder with the mode of the volume.
func bindSubPath(volume, subPath, at string) (string, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if err := makeInside(root, subPath); err != nil {
		return "", err
	}
	top, err := root.Open(".")
	if err != nil {
		return "", err
	}
	defer func() { _ = top.Close() }()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd := -1
	for range openTries {
		if fd, err = unix.Openat2(int(top.Fd()), filepath.Clean(subPath), &how); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	if err != nil {
		return "", &os.PathError{Op: "opening inside of the volume", Path: subPath, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return at, bind(fd, at)
}

func makeInside(root *os.Root, subPath string) error {
	if _, err := root.Stat(subPath); !errors.Is(err, fs.ErrNotExist) {
		return nil // it is there, or is something that opening will judge
	}
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	for i := 1; i <= len(subPath); i++ {
		if i < len(subPath) && subPath[i] != '/' {
			continue
		}
		part := subPath[:i]
		err := root.Mkdir(part, 0o750)
		if err == nil {
			mode := info.Mode()
			err = root.Chmod(part, mode.Perm()|mode&fs.ModeSetgid) // whatever the umask is
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// bind mounts an open file or folder at a path. If it is there already, from an earlier instance of the container, it stays;
// something else that is there goes.
func bind(fd int, at string) error {
	var source, target unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
		return err
	}
	if unix.Lstat(at, &target) == nil {
		if target.Dev == source.Dev && target.Ino == source.Ino {
			return nil
		}
		if err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: no mount
			return &os.PathError{Op: "unmounting", Path: at, Err: err}
		}
		if err := os.Remove(at); err != nil {
			return err
		}
	}
	if source.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.Mkdir(at, 0o750); err != nil {
			return err
		}
	} else if err := os.WriteFile(at, nil, 0o640); err != nil {
		return err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), at, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mounting", Path: at, Err: err}
	}
	return nil
}
