package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// unmountRetry is the pause between attempts to clear volumes away (pkg/kubelet/volumemanager/volume_manager.go upstream).
const unmountRetry = 300 * time.Millisecond

// WaitForUnmount unmounts and removes the pod's volumes, with what is in them. Its other folders are left to CleanupOrphans.
// What does not go is tried again for 2 m 3 s; the error then names it.
func (m *Manager) WaitForUnmount(ctx context.Context, pod *v1.Pod) error {
	m.cfg.Log.V(3).Info("Waiting for volumes to unmount for pod", "pod", klog.KObj(pod))
	p := m.of(pod.UID)
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	for {
		p.mu.Lock()
		p.pod = nil
		left, err := m.tearDown(pod.UID)
		p.mu.Unlock()
		m.mu.Lock()
		for name := range p.mounted {
			if !slices.Contains(left, name) {
				delete(p.mounted, name)
			}
		}
		m.mu.Unlock()
		if err == nil {
			m.cfg.Log.V(3).Info("All volumes are unmounted for pod", "pod", klog.KObj(pod))
			return nil
		}
		if end := pause(ctx, unmountRetry); end != nil {
			return fmt.Errorf("mounted volumes=%v: %w: %w", left, end, err)
		}
	}
}

// tearDown clears away a pod's volumes that were made here, whoever made them: an earlier run may have. It returns the
// names of those that are still there. What is mounted inside of a volume, by a container perhaps, keeps it there.
func (m *Manager) tearDown(uid types.UID) (left []string, err error) {
	dir, err := filepath.EvalSymlinks(m.podDir(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	problems := []error{unmountOurs(dir)}
	still, err := mountsBelow(dir)
	if err != nil {
		return nil, err
	}
	problems = append(problems, removeSubpaths(dir))
	for _, path := range ourVolumes(dir) {
		name := filepath.Base(path)
		i := slices.IndexFunc(still, func(mp mountPoint) bool { return mp.path == path || strings.HasPrefix(mp.path, path+"/") })
		err := fmt.Errorf("volume %s holds a mount", name)
		if i < 0 {
			err = os.RemoveAll(path)
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, "plugins", emptyDirFolder, name))
		}
		if err != nil {
			left = append(left, name)
			problems = append(problems, err)
		}
	}
	return left, errors.Join(problems...)
}

func ourVolumes(dir string) []string {
	var paths []string
	for _, folder := range folders() {
		entries, _ := os.ReadDir(filepath.Join(dir, "volumes", folder))
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, "volumes", folder, e.Name()))
		}
	}
	return paths
}

// unmountOurs unmounts, newest first, what was mounted for volumes: file systems in memory, and subPaths.
func unmountOurs(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, mp := range slices.Backward(mounts) {
		parts := strings.Split(strings.TrimPrefix(mp.path, dir+"/"), "/")
		volume := len(parts) == 3 && parts[0] == "volumes" && slices.Contains(folders(), parts[1]) && mp.fstype == "tmpfs"
		subpath := len(parts) == 4 && parts[0] == "volume-subpaths"
		if !volume && !subpath {
			continue
		}
		if err := unix.Unmount(mp.path, unix.UMOUNT_NOFOLLOW); err != nil {
			problems = append(problems, &os.PathError{Op: "unmounting", Path: mp.path, Err: err})
		}
	}
	return errors.Join(problems...)
}

// removeSubpaths removes the empty files and folders that subPaths were mounted on. It never looks into one.
func removeSubpaths(dir string) error {
	top := filepath.Join(dir, "volume-subpaths")
	var problems []error
	for _, pattern := range []string{"*/*/*", "*/*", "*", "."} {
		paths, err := filepath.Glob(filepath.Join(quoteGlob(top), pattern))
		problems = append(problems, err)
		for _, path := range paths {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// ownerMark is the file in a pod's folder that says by our node's name that the folder is ours. What does not have it is
// never touched: the root directory may be that of a real kubelet.
const ownerMark = container.OwnerLabel

// PodDirs lists the pods that have a folder of ours.
func (m *Manager) PodDirs() []types.UID {
	entries, _ := os.ReadDir(filepath.Join(m.cfg.RootDir, "pods"))
	var uids []types.UID
	for _, e := range entries {
		uid := types.UID(e.Name())
		if owner, err := os.ReadFile(filepath.Join(m.podDir(uid), ownerMark)); err == nil && string(owner) == m.cfg.NodeName {
			uids = append(uids, uid)
		}
	}
	return uids
}

// CleanupOrphans removes the folders of all pods but those of keep. It leaves alone a pod whose volumes are in use, folders
// of volumes that were not made here unless they are empty, and everything behind a mount.
func (m *Manager) CleanupOrphans(keep map[types.UID]bool) error {
	var problems []error
	var found int
	for _, uid := range m.PodDirs() {
		if keep[uid] {
			continue
		}
		found++
		if err := m.removeOrphan(uid); err != nil {
			problems = append(problems, fmt.Errorf("orphaned pod %q found, but its folder could not be removed: %w", uid, err))
		}
	}
	if len(problems) > 0 {
		m.cfg.Log.Error(problems[0], "There were many similar errors. Turn up verbosity to see them.", "numErrs", len(problems))
		for _, err := range problems {
			m.cfg.Log.V(5).Info("Orphan pod", "err", err)
		}
	}
	m.cfg.Metrics.OrphanVolumesCleaned.Set(float64(found))
	m.cfg.Metrics.OrphanVolumesCleanFail.Set(float64(len(problems)))
	return errors.Join(problems...)
}

var errVolumesLeft = errors.New("volumes are not cleaned up")

func (m *Manager) removeOrphan(uid types.UID) error {
	p := m.of(uid)
	if !p.mu.TryLock() {
		return errVolumesLeft // its worker is at it
	}
	defer p.mu.Unlock()
	if p.pod != nil {
		m.cfg.Log.V(3).Info("Orphaned pod found, but volumes are not cleaned up", "podUID", uid)
		return errVolumesLeft
	}
	if _, err := m.tearDown(uid); err != nil {
		m.cfg.Log.V(3).Info("Orphaned pod found, but volumes are not cleaned up", "podUID", uid, "err", err)
		return err
	}
	dir := m.podDir(uid)
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		m.cfg.Log.V(3).Info("Orphaned pod found, but volumes are not cleaned up", "podUID", uid, "paths", fmt.Sprint(mounts), "err", err)
		return errors.Join(errVolumesLeft, err)
	}
	if err := removeEmpty(m.volumesDir(uid)); err != nil {
		return err
	}
	m.cfg.Log.V(3).Info("Orphaned pod found, removing", "podUID", uid)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	return nil
}

// removeEmpty removes a folder and the folders in it, if there is nothing else.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			return fmt.Errorf("%s is not of a volume that is known here", filepath.Join(dir, e.Name()))
		}
		if err := removeEmpty(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
