package volumemanager

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
	"k8s.io/apimachinery/pkg/types"
)

// subPaths is the folder in a pod's folder with the parts of volumes that containers mount.
const subPaths = "volume-subpaths"

// PrepareSafeSubpath mounts a part of a pod's volume at a place of its own and returns that: a container could redirect
// the path inside of the volume to anywhere on the node before the runtime uses it. A missing folder is made, with the
// mode of the volume (pkg/volume/util/subpath upstream). index is the mount's in the container.
func (m *Manager) PrepareSafeSubpath(uid types.UID, volume, container string, index int, path string) (string, error) {
	if filepath.IsAbs(path) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", path)
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", path)
	}
	root, err := os.OpenRoot(m.Mounts(uid)[volume].HostPath)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	whole, err := root.Stat(".")
	if _, missing := root.Stat(path); err == nil && errors.Is(missing, fs.ErrNotExist) {
		err = errors.Join(root.MkdirAll(path, whole.Mode().Perm()), root.Chmod(path, whole.Mode()&^fs.ModeType))
	}
	if err != nil {
		return "", err
	}
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // which follows links inside of the volume only
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	at := filepath.Join(m.podDir(uid), subPaths, volume, container, strconv.Itoa(index))
	return at, m.bindSubPath(f, uid, at)
}

// bindSubPath mounts an open file, unless it is mounted there from an earlier start of the container.
func (m *Manager) bindSubPath(f *os.File, uid types.UID, at string) error {
	mounts, err := m.mounts.below(m.podDir(uid))
	info, statErr := f.Stat()
	if err := errors.Join(err, statErr); err != nil {
		return err
	}
	if slices.Contains(mounts, at) {
		if now, err := os.Stat(at); err == nil && os.SameFile(now, info) {
			return nil
		}
		if err := m.mounts.unmount(at); err != nil {
			return err
		}
	}
	err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o750), os.RemoveAll(at))
	if info.IsDir() {
		err = errors.Join(err, os.Mkdir(at, 0o750))
	} else {
		err = errors.Join(err, os.WriteFile(at, nil, 0o640))
	}
	return errors.Join(err, m.mounts.bind(f, at))
}
