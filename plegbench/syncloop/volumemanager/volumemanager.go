// Package volumemanager makes the volumes of pods and removes them: emptyDir on disk and in memory, hostPath,
// configMap, secret, and the volumes that an API server adds to each pod (projected with a token, and fields of the
// pod's metadata), in the kubelet's folders.
//
// Volumes of all other kinds end the mount at once. Left out are fsGroup, subPath, resource fields, and folders inside
// of a volume for others that are mounted there. Each pod's worker makes and removes the pod's volumes itself: there is
// no reconciler between desired and actual state (pkg/kubelet/volumemanager upstream).
package volumemanager

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// Times of the kubelet (pkg/kubelet/volumemanager/volume_manager.go, pkg/util/goroutinemap/exponentialbackoff
// upstream).
const (
	mountTimeout = 2*time.Minute + 3*time.Second
	mountPeriod  = 100 * time.Millisecond // between attempts for all due volumes
	firstRetry   = 500 * time.Millisecond // after a failure, doubling up to mostRetry
	mostRetry    = 2*time.Minute + 2*time.Second
)

// ownerMark is the file in a pod's folder that holds our node's name. Folders without it are never touched: the root
// directory may be that of a real kubelet.
const ownerMark = container.OwnerLabel

// Config configures a Manager. All fields are required.
type Config struct {
	NodeName string // marks the folders that are ours
	RootDir  string // like /var/lib/kubelet
	Objects  Objects
	Recorder record.EventRecorder
	Log      logr.Logger
	Metrics  *metrics.Metrics
}

// A Manager has the volumes of all pods. Several goroutines may use it, for one pod one at a time.
type Manager struct {
	cfg    Config
	mounts mounter
	mu     sync.Mutex
	pods   map[types.UID]map[string]volumeState
}

// A mounter mounts file systems in memory. The kernel's needs root; tests replace it.
type mounter interface {
	tmpfs(dir, options string) error
	unmount(dir string) error
	below(dir string) ([]string, error) // in the order of mounting
}

// kernel is the mounter of this machine.
type kernel struct{}

// A volumeState is the state of one volume. Without a HostPath the volume is not made yet.
type volumeState struct {
	source.Volume
	files files
	pause time.Duration // after the last attempt, if that failed
	due   time.Time     // of the next one then
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, mounts: kernel{}, pods: map[types.UID]map[string]volumeState{}}
}

// Mounts returns the volumes that a pod has, by name.
func (m *Manager) Mounts(uid types.UID) map[string]source.Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]source.Volume{}
	for name, v := range m.pods[uid] {
		if v.HostPath != "" {
			out[name] = v.Volume
		}
	}
	return out
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

// WaitForAttachAndMount makes the volumes of a pod that has its data directories, and updates the files in existing
// volumes. It tries failed volumes again, less and less often, also across calls, for 2m3s. A volume of an unknown kind
// is an error at once. The error's text is the kubelet's.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if _, err := kindOf(&v); err != nil {
			return fmt.Errorf("unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%[1]s]: "+
				"failed to get Plugin from volumeSpec for volume %[1]q err=%w", v.Name, err)
		}
	}
	waiting := slices.Clone(pod.Spec.Volumes)
	// An API server issues no token for a pod that its cache does not have yet. Tokens are in projected volumes.
	projected := slices.ContainsFunc(waiting, func(v v1.Volume) bool { return v.Projected != nil })
	atOnce := len(m.Mounts(pod.UID)) > 0 || !projected
	mount := func(ctx context.Context) (bool, error) {
		waiting = slices.DeleteFunc(waiting, func(v v1.Volume) bool { return m.setUp(ctx, pod, &v) })
		return len(waiting) == 0, nil
	}
	err := wait.PollUntilContextTimeout(ctx, mountPeriod, mountTimeout, atOnce, mount)
	if err == nil {
		return nil
	}
	var names []string
	for _, v := range waiting {
		names = append(names, v.Name)
	}
	return fmt.Errorf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=[]: %w", names, err)
}

// setUp makes or updates a volume, if that is due, and reports whether it is there. It stays there if it cannot be
// updated.
func (m *Manager) setUp(ctx context.Context, pod *v1.Pod, v *v1.Volume) (there bool) {
	m.mu.Lock()
	before := m.pods[pod.UID][v.Name]
	m.mu.Unlock()
	there = before.HostPath != ""
	if time.Now().Before(before.due) {
		return there
	}
	volume, err := m.make(ctx, pod, v, before)
	if err != nil && ctx.Err() != nil {
		return there // no failure of the volume's
	}
	if err != nil {
		volume = before
		volume.pause = min(max(2*before.pause, firstRetry), mostRetry)
		volume.due = time.Now().Add(volume.pause)
		m.cfg.Log.Error(err, "MountVolume.SetUp failed for volume",
			"volumeName", v.Name, "pod", klog.KObj(pod), "podUID", pod.UID)
		m.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, "FailedMount",
			"MountVolume.SetUp failed for volume %q : %v", v.Name, err)
	} else if !there {
		m.cfg.Log.Info("MountVolume.SetUp succeeded for volume", "volumeName", v.Name, "pod", klog.KObj(pod))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods[pod.UID] == nil {
		m.pods[pod.UID] = map[string]volumeState{}
	}
	m.pods[pod.UID][v.Name] = volume
	return volume.HostPath != ""
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
	if before.HostPath == "" {
		if err := m.makeDir(dir, k); err != nil {
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
	return now, write(root, now.files)
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

// Unmount unmounts and removes the pod's volumes with their content. Its other folders are left to CleanupOrphans.
func (m *Manager) Unmount(pod *v1.Pod) error {
	m.mu.Lock()
	delete(m.pods, pod.UID)
	m.mu.Unlock()
	return m.remove(m.podDir(pod.UID), filepath.Join(m.podDir(pod.UID), "volumes"))
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

// CleanupOrphans removes the folders of all pods but those of keep, which must hold every pod with a worker. A pod
// whose volumes are set up, or below whose folder something is mounted, is left alone.
func (m *Manager) CleanupOrphans(keep map[types.UID]bool) error {
	var problems []error
	found := 0
	for _, uid := range m.PodDirs() {
		if keep[uid] {
			continue
		}
		found++
		err := errors.New("its volumes are set up")
		if len(m.Mounts(uid)) == 0 {
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
func (m *Manager) makeDir(dir string, k kind) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		err := errors.Join(os.MkdirAll(dir, 0o750), os.Chmod(dir, 0o777)) // regardless of the umask
		if err != nil {
			return err
		}
	}
	mounts, err := m.mounts.below(filepath.Dir(dir))
	if err != nil || !k.memory || slices.Contains(mounts, dir) {
		return err
	}
	if err := m.mounts.tmpfs(dir, k.options); err != nil {
		return &os.PathError{Op: "mounting a tmpfs", Path: dir, Err: err}
	}
	return nil
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

// remove unmounts the volumes in a pod's folder, also those that an earlier run made, and removes path.
// Nothing is removed as long as something else is mounted inside.
func (m *Manager) remove(podDir, path string) error {
	mounts, err := m.mounts.below(podDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		if filepath.Dir(filepath.Dir(at)) != filepath.Join(podDir, "volumes") { // not volumes/PLUGIN/NAME
			return fmt.Errorf("something is mounted at %s", at)
		}
		if err := m.mounts.unmount(at); err != nil {
			return &os.PathError{Op: "unmounting", Path: at, Err: err}
		}
	}
	return os.RemoveAll(path)
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
