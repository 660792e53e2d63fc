// Package volumemanager makes the volumes of pods and removes them: emptyDir on disk and in memory, hostPath,
// configMap, secret, and what an API server adds to each pod (projected with a token, and fields of the pod's
// metadata), in the kubelet's folders.
//
// Volumes of all other kinds end the mount at once. Left out are fsGroup, subPath and resource fields. Each pod's
// worker makes and removes the pod's volumes itself: there is no reconciler between desired and actual state
// (pkg/kubelet/volumemanager upstream).
package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// Times of the kubelet (pkg/kubelet/volumemanager/volume_manager.go, pkg/util/goroutinemap/exponentialbackoff
// upstream).
const (
	mountTimeout = 2*time.Minute + 3*time.Second
	poll         = 300 * time.Millisecond
	firstRetry   = 500 * time.Millisecond
	lastRetry    = 2*time.Minute + 2*time.Second
)

// ownerMark is the file in a pod's folder that holds our node's name. Folders without it are never touched: the root
// directory may be that of a real kubelet.
const ownerMark = container.OwnerLabel

// Config is what a Manager needs. All fields are required.
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
	cfg  Config
	mu   sync.Mutex
	pods map[types.UID]*podVolumes
}

// podVolumes are the volumes of one pod, by name; guarded by Manager.mu.
type podVolumes struct {
	mounted map[string]Volume
	retries map[string]retry
}

// A retry is when a volume that could not be made is tried again, and how long after the last attempt that is.
type retry struct {
	at    time.Time
	delay time.Duration
}

// A Volume is one that containers can be given. It is not a named type, so that consumers need not import this package.
type Volume = struct {
	HostPath string // where it is on the node
	ReadOnly bool   // for every container
	Managed  bool   // it was made here, and may be relabelled for SELinux
}

// New makes a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, pods: map[types.UID]*podVolumes{}}
}

// Mounts returns the volumes that a pod has, by name.
func (m *Manager) Mounts(uid types.UID) map[string]Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]Volume{}
	if p := m.pods[uid]; p != nil {
		maps.Copy(out, p.mounted)
	}
	return out
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

// WaitForAttachAndMount makes the pod's folders and the volumes that its containers use, and updates the files in
// volumes that are there. Volumes that cannot be made yet are tried again, less and less often, for 2m3s; volumes
// that can never be made end it at once. The error's text is the kubelet's.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error {
	if err := m.makeDataDirs(pod.UID); err != nil {
		return fmt.Errorf("error making pod data directories: %w", err)
	}
	var waiting, failed []string
	var cause error
	for _, name := range used(pod) {
		v := volumeNamed(pod, name)
		if v == nil || !isName(name) {
			cause = fmt.Errorf("volume %q is not among the pod's volumes, or cannot be a folder's name", name)
		} else if _, err := kindOf(v); err != nil {
			cause = fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", name, err)
		} else {
			waiting = append(waiting, name)
			continue
		}
		failed = append(failed, name)
	}
	if len(waiting)+len(failed) == 0 {
		return nil
	}
	m.cfg.Log.V(3).Info("Waiting for volumes to attach and mount for pod", "pod", klog.KObj(pod))
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	for {
		waiting = slices.DeleteFunc(waiting, func(name string) bool { return m.setUp(ctx, pod, volumeNamed(pod, name)) })
		if len(waiting)+len(failed) == 0 {
			m.cfg.Log.V(3).Info("All volumes are attached and mounted for pod", "pod", klog.KObj(pod))
			return nil
		}
		if cause == nil {
			cause = pause(ctx)
		}
		if cause != nil {
			unmounted := slices.Sorted(slices.Values(append(waiting, failed...)))
			return fmt.Errorf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %w", unmounted, failed, cause)
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(poll):
		return nil
	}
}

func volumeNamed(pod *v1.Pod, name string) *v1.Volume {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Volumes[i]
}

// setUp makes or updates a volume if it is time to try, and reports whether the volume is there. It stays there if it
// cannot be updated.
func (m *Manager) setUp(ctx context.Context, pod *v1.Pod, v *v1.Volume) (there bool) {
	m.mu.Lock()
	p := m.pods[pod.UID]
	if p == nil {
		p = &podVolumes{map[string]Volume{}, map[string]retry{}}
		m.pods[pod.UID] = p
	}
	_, there = p.mounted[v.Name]
	last := p.retries[v.Name]
	m.mu.Unlock()
	if time.Now().Before(last.at) {
		return there
	}
	volume, err := m.make(ctx, pod, v, there)
	if err != nil && ctx.Err() != nil {
		return there
	}
	m.mu.Lock()
	if err == nil {
		p.mounted[v.Name] = volume
		delete(p.retries, v.Name)
	} else {
		delay := min(max(firstRetry, 2*last.delay), lastRetry)
		p.retries[v.Name] = retry{time.Now().Add(delay), delay}
	}
	m.mu.Unlock()
	if err != nil {
		m.cfg.Log.Error(err, "MountVolume.SetUp failed for volume", "volumeName", v.Name, "pod", klog.KObj(pod), "podUID", pod.UID)
		m.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, "FailedMount", "MountVolume.SetUp failed for volume %q : %v", v.Name, err)
		return there
	}
	if !there {
		m.cfg.Log.Info("MountVolume.SetUp succeeded for volume", "volumeName", v.Name, "pod", klog.KObj(pod))
	}
	return true
}

// make makes one volume, or updates the files of one that is there.
func (m *Manager) make(ctx context.Context, pod *v1.Pod, v *v1.Volume, there bool) (Volume, error) {
	if v.HostPath != nil {
		return Volume{HostPath: v.HostPath.Path}, checkHostPath(v.HostPath)
	}
	k, err := kindOf(v)
	if err != nil {
		return Volume{}, err
	}
	dir := filepath.Join(m.podDir(pod.UID), "volumes", k.folder, v.Name)
	volume := Volume{HostPath: dir, ReadOnly: k.content, Managed: true}
	if !k.content {
		if !there {
			err = makeDir(dir, k)
		}
		return volume, err
	}
	files, err := m.content(ctx, pod, v)
	if err == nil {
		err = makeDir(dir, k)
	}
	if err != nil {
		return volume, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return volume, err
	}
	defer func() { _ = root.Close() }()
	for _, below := range nested(pod, v.Name) {
		if err := root.MkdirAll(below, 0o755); err != nil {
			return volume, fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	return volume, write(root, files)
}

// makeDataDirs makes the folders that each pod has, volumes or not.
func (m *Manager) makeDataDirs(uid types.UID) error {
	if !isName(string(uid)) {
		return fmt.Errorf("the pod's uid %q cannot be a folder's name", uid)
	}
	for _, name := range []string{"volumes", "plugins"} {
		if err := os.MkdirAll(filepath.Join(m.podDir(uid), name), 0o750); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(m.podDir(uid), ownerMark), []byte(m.cfg.NodeName), 0o640)
}

// isName reports whether a name from outside stays in the folder that it is joined to.
func isName(name string) bool {
	return filepath.IsLocal(name) && name == filepath.Base(name) && name != "."
}

// WaitForUnmount unmounts and removes the pod's volumes with their content. Its other folders are left to
// CleanupOrphans. What cannot be removed is tried again for 2m3s; the error then names it.
func (m *Manager) WaitForUnmount(ctx context.Context, pod *v1.Pod) error {
	m.cfg.Log.V(3).Info("Waiting for volumes to unmount for pod", "pod", klog.KObj(pod))
	m.mu.Lock()
	delete(m.pods, pod.UID)
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	for {
		left, err := removeVolumes(m.podDir(pod.UID))
		if err == nil {
			m.cfg.Log.V(3).Info("All volumes are unmounted for pod", "pod", klog.KObj(pod))
			return nil
		}
		if end := pause(ctx); end != nil {
			return fmt.Errorf("mounted volumes=%v: %w: %w", left, end, err)
		}
	}
}

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

var errVolumesLeft = errors.New("volumes are not cleaned up")

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
		if err := m.removeOrphan(uid); err != nil {
			m.cfg.Log.V(3).Info("Orphaned pod found, but volumes are not cleaned up", "podUID", uid, "err", err)
			problems = append(problems, fmt.Errorf("orphaned pod %q found, but its folder could not be removed: %w", uid, err))
		}
	}
	if len(problems) > 0 {
		m.cfg.Log.Error(problems[0], "There were many similar errors. Turn up verbosity to see them.", "numErrs", len(problems))
	}
	m.cfg.Metrics.OrphanVolumesCleaned.Set(float64(found))
	m.cfg.Metrics.OrphanVolumesCleanFail.Set(float64(len(problems)))
	return errors.Join(problems...)
}

func (m *Manager) removeOrphan(uid types.UID) error {
	if len(m.Mounts(uid)) > 0 {
		return errVolumesLeft
	}
	dir := m.podDir(uid)
	if _, err := removeVolumes(dir); err != nil {
		return err
	}
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		return errors.Join(errVolumesLeft, err)
	}
	m.cfg.Log.V(3).Info("Orphaned pod found, removing", "podUID", uid)
	return os.RemoveAll(dir)
}
