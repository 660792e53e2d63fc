// Package volumemanager makes the volumes of pods and removes them: emptyDir on disk and in memory, hostPath,
// configMap, secret, and the volumes that an API server adds to each pod (projected with a token, and fields of the
// pod's metadata), in the kubelet's folders. As in pkg/kubelet/volumemanager upstream, a populator keeps the desired
// state of world, which volumes the pods need, and a reconciler makes the actual state of world agree, beside the pods'
// workers.
//
// Volumes that must be attached, and volumes of CSI drivers, end the mount at once, as all other kinds do. Left out are
// resource fields, and folders inside of a volume for others that are mounted there.
package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// Times of the kubelet (pkg/kubelet/volumemanager/volume_manager.go, pkg/util/goroutinemap/exponentialbackoff
// upstream).
const (
	podAttachAndMountTimeout       = 2*time.Minute + 3*time.Second
	podAttachAndMountRetryInterval = 300 * time.Millisecond
	reconcilerLoopSleepPeriod      = 100 * time.Millisecond // of the populator too

	firstRetry = 500 * time.Millisecond // after a failure, doubling up to mostRetry
	mostRetry  = 2*time.Minute + 2*time.Second
)

// ownerMark is the file in a pod's folder that holds our node's name. Folders without it are never touched: the root
// directory may belong to a real kubelet.
const ownerMark = container.OwnerLabel

// Config configures a Manager. All fields are required by Run, and those that are not functions by CleanupOrphans.
type Config struct {
	NodeName string // marks the folders that are ours
	RootDir  string // like /var/lib/kubelet
	Objects  Objects
	Recorder record.EventRecorder
	Log      logr.Logger
	Metrics  *metrics.Metrics

	Pods         func() []*v1.Pod // that the node should run
	SourcesReady func() bool      // all sources of pods have been seen
	// ShouldPodContainersBeTerminating reports whether no container of a pod may start any more, and
	// ShouldPodRuntimeBeRemoved whether none runs.
	ShouldPodContainersBeTerminating, ShouldPodRuntimeBeRemoved func(uid types.UID) bool
}

// A Manager has the volumes of all pods. It is safe for use by several goroutines.
type Manager struct {
	cfg        Config
	mounts     mounter
	operations sync.WaitGroup

	mu      sync.Mutex
	desired map[types.UID]*desiredPod
	actual  map[types.UID]map[string]volumeState // also of pods whose volumes are not known, but have a folder
}

// A mounter mounts file systems in memory, and open files. The kernel's needs root; tests replace it.
type mounter interface {
	tmpfs(dir, options string) error
	bind(f *os.File, path string) error
	unmount(dir string) error
	below(dir string) ([]string, error) // in the order of mounting
}

// kernel is the mounter of this machine.
type kernel struct{}

// A volumeState is the state of one volume. Without a HostPath the volume is not made yet.
type volumeState struct {
	source.Volume
	files   files
	pending bool          // an operation is under way
	remount bool          // its content may have changed
	pause   time.Duration // after the last attempt, if that failed
	due     time.Time     // of the next one then
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, mounts: kernel{}, desired: map[types.UID]*desiredPod{},
		actual: map[types.UID]map[string]volumeState{},
	}
}

// Mounts returns the volumes that a pod has, by name.
func (m *Manager) Mounts(uid types.UID) map[string]source.Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]source.Volume{}
	for name, v := range m.actual[uid] {
		if v.HostPath != "" {
			out[name] = v.Volume
		}
	}
	return out
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

// WaitForAttachAndMount has the files in a pod's volumes updated, and waits until all volumes that its containers mount
// are there, for 2m3s. A volume of an unknown kind is an error at once. The error's text is the kubelet's.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error {
	expected := getExpectedVolumes(pod)
	if len(expected) == 0 {
		return nil
	}
	m.reprocessPod(pod.UID)
	err := wait.PollUntilContextTimeout(ctx, podAttachAndMountRetryInterval, podAttachAndMountTimeout, true,
		func(context.Context) (bool, error) {
			err := m.popPodErrors(pod.UID)
			return err == nil && len(m.getUnmountedVolumes(pod.UID, expected)) == 0, err
		})
	unmounted := m.getUnmountedVolumes(pod.UID, expected)
	if err == nil || len(unmounted) == 0 {
		return nil
	}
	return fmt.Errorf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %w", unmounted,
		m.getVolumesNotInDSW(pod.UID, expected), err)
}

// WaitForUnmount waits until the volumes of a pod of which nothing runs are unmounted and removed with their content,
// for 2m3s. Its other folders are left to CleanupOrphans.
func (m *Manager) WaitForUnmount(ctx context.Context, pod *v1.Pod) error {
	gone := func(context.Context) (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.actual[pod.UID] == nil, nil
	}
	err := wait.PollUntilContextTimeout(ctx, podAttachAndMountRetryInterval, podAttachAndMountTimeout, true, gone)
	if err != nil {
		err = fmt.Errorf("mounted volumes=%v: %w", slices.Sorted(maps.Keys(m.Mounts(pod.UID))), err)
	}
	return err
}

// make makes one volume, or updates the files of one that is there. before is zero for one that is not.
func (m *Manager) make(
	ctx context.Context, pod *v1.Pod, v *v1.Volume, before volumeState,
) (now volumeState, err error) {
	if v.HostPath != nil {
		return volumeState{Volume: source.Volume{HostPath: v.HostPath.Path}}, checkHostPath(v.HostPath)
	}
	k, err := kindOf(v)
	if err != nil {
		return now, err
	}
	dir := filepath.Join(m.podDir(pod.UID), "volumes", k.folder, v.Name)
	now.Volume = source.Volume{HostPath: dir, ReadOnly: k.content, Managed: true}
	if k.content {
		if now.files, err = m.content(ctx, pod, v); err != nil {
			return now, err
		}
	}
	group := ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{}).FSGroup
	if before.HostPath == "" {
		if err := m.makeDir(dir, k, group); err != nil {
			return now, err
		}
	}
	if !k.content || before.HostPath != "" && maps.Equal(before.files, now.files) {
		return now, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return now, err
	}
	defer func() { _ = root.Close() }()
	return now, write(root, now.files, func() error { return m.changePermissions(dir, group, true) })
}

// changePermissions gives all files below a path to a group, if there is one, which may read them and, unless readOnly,
// write them (pkg/volume/volume_linux.go upstream).
func (m *Manager) changePermissions(dir string, group *int64, readOnly bool) error {
	if group == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			m.cfg.Log.Error(err, "Lchown failed", "path", path)
		}
		info, err := d.Info()
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		mode := info.Mode() | 0o440
		if !readOnly {
			mode |= 0o660
		}
		if d.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		if err := os.Chmod(path, mode); err != nil {
			m.cfg.Log.Error(err, "chmod failed", "path", path)
		}
		return nil
	})
}

// MakePodDataDirs makes the folders that each pod has, and marks them as this node's.
func (m *Manager) MakePodDataDirs(uid types.UID) error {
	if uid == "" || string(uid) != filepath.Base(string(uid)) || !filepath.IsLocal(string(uid)) {
		return fmt.Errorf("the pod's uid %q cannot be a folder's name", uid)
	}
	for _, name := range []string{"volumes", "plugins"} {
		if err := os.MkdirAll(filepath.Join(m.podDir(uid), name), 0o750); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(m.podDir(uid), ownerMark), []byte(m.cfg.NodeName), 0o640)
}

// PodDirs lists the pods that have a folder with this node's mark.
func (m *Manager) PodDirs() []types.UID {
	entries, _ := os.ReadDir(filepath.Join(m.cfg.RootDir, "pods"))
	var uids []types.UID
	for _, e := range entries {
		uid := types.UID(e.Name())
		owner, err := os.ReadFile(filepath.Join(m.podDir(uid), ownerMark))
		if err == nil && string(owner) == m.cfg.NodeName {
			uids = append(uids, uid)
		}
	}
	return uids
}

// CleanupOrphans removes the folders of all pods that are not in keep, which must hold every pod with a worker. A pod
// whose volumes are set up, or below whose folder something else is mounted, is left alone.
func (m *Manager) CleanupOrphans(keep map[types.UID]bool) error {
	var problems []error
	found := 0
	for _, uid := range m.PodDirs() {
		if keep[uid] {
			continue
		}
		found++
		err := errors.New("its volumes are set up")
		m.mu.Lock()
		_, known := m.actual[uid]
		m.mu.Unlock()
		if !known {
			err = m.remove(m.podDir(uid), m.podDir(uid))
		}
		if err != nil {
			err = fmt.Errorf("orphaned pod %q found, but its folder could not be removed: %w", uid, err)
			problems = append(problems, err)
		}
	}
	m.cfg.Metrics.OrphanVolumesCleaned.Set(float64(found))
	m.cfg.Metrics.OrphanVolumesCleanFail.Set(float64(len(problems)))
	return errors.Join(problems...)
}

// A kind is how a volume is made. hostPath has the zero kind: nothing is made for it but, if asked for, the path.
type kind struct {
	folder  string // below the pod's volumes: the plugin's name with '/' escaped
	memory  bool   // a tmpfs
	options string // of the tmpfs
	content bool   // holds files that we write, and containers may only read them
}

// kindOf returns how a volume is made. The error means that it cannot be made here at all.
func kindOf(v *v1.Volume) (kind, error) {
	switch {
	case v.HostPath != nil:
		return kind{}, nil
	case v.ConfigMap != nil:
		return kind{folder: "kubernetes.io~configmap", content: true}, nil
	case v.Secret != nil:
		return kind{folder: "kubernetes.io~secret", memory: true, content: true}, nil
	case v.DownwardAPI != nil:
		return kind{folder: "kubernetes.io~downward-api", memory: true, content: true}, nil
	case v.Projected != nil:
		return kind{folder: "kubernetes.io~projected", memory: true, content: true}, nil
	case v.VolumeSource == v1.VolumeSource{}: // an emptyDir by the API's defaults
		return kind{folder: "kubernetes.io~empty-dir"}, nil
	case v.EmptyDir != nil && (v.EmptyDir.Medium == "" || v.EmptyDir.Medium == v1.StorageMediumMemory):
		k := kind{folder: "kubernetes.io~empty-dir", memory: v.EmptyDir.Medium != ""}
		if limit := v.EmptyDir.SizeLimit; limit != nil {
			k.options = fmt.Sprintf("size=%d", limit.Value())
		}
		return k, nil
	}
	return kind{}, errors.New("no volume plugin matched")
}

// makeDir makes a volume's folder, open to all as upstream's are: the folders above it restrict access. What an earlier
// run made stays as it is.
func (m *Manager) makeDir(dir string, k kind, group *int64) error {
	_, err := os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if isNew {
		err := errors.Join(os.MkdirAll(dir, 0o750), os.Chmod(dir, 0o777)) // regardless of the umask
		if err != nil {
			return err
		}
	}
	mounts, err := m.mounts.below(filepath.Dir(dir))
	if err != nil {
		return err
	}
	if k.memory && !slices.Contains(mounts, dir) {
		isNew = true
		if err := m.mounts.tmpfs(dir, k.options); err != nil {
			return &os.PathError{Op: "mounting a tmpfs", Path: dir, Err: err}
		}
	}
	if !isNew || k.content {
		return nil
	}
	return m.changePermissions(dir, group, false)
}

// below lists the mounts below a folder, in the order of mounting. The paths begin with dir even if a link
// leads there.
func (kernel) below(dir string) (paths []string, err error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	all, err := procfs.GetMounts()
	for _, mount := range all {
		if below, ok := strings.CutPrefix(mount.MountPoint, real+"/"); ok {
			paths = append(paths, filepath.Join(dir, below))
		}
	}
	return paths, err
}

// remove unmounts the volumes in a pod's folder, and parts of volumes, also those that an earlier run made, and removes
// paths. Nothing is removed as long as something else is mounted inside.
func (m *Manager) remove(podDir string, paths ...string) error {
	mounts, err := m.mounts.below(podDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		above := filepath.Dir(filepath.Dir(at)) // of volumes/PLUGIN/NAME, or subPaths/NAME/CONTAINER/INDEX
		if above != filepath.Join(podDir, "volumes") && filepath.Dir(above) != filepath.Join(podDir, subPaths) {
			return fmt.Errorf("something is mounted at %s", at)
		}
		if err := m.mounts.unmount(at); err != nil {
			return &os.PathError{Op: "unmounting", Path: at, Err: err}
		}
	}
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// checkHostPath makes a path of the host or checks that it is there, as its type demands
// (pkg/volume/hostpath upstream).
func checkHostPath(from *v1.HostPathVolumeSource) error {
	if from.Type == nil || *from.Type == v1.HostPathUnset {
		return nil
	}
	_, err := os.Stat(from.Path)
	switch missing := errors.Is(err, os.ErrNotExist); {
	case missing && *from.Type == v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(from.Path, 0o755)
	case missing && *from.Type == v1.HostPathFileOrCreate:
		return os.WriteFile(from.Path, nil, 0o644)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %s is not a %s", from.Path, *from.Type)
	}
	return nil
}
