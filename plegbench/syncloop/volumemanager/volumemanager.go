// Package volumemanager makes the volumes of pods and clears them away: emptyDir on disk and in memory, hostPath, configMap,
// secret, downwardAPI and projected, in the kubelet's folders, with the kubelet's owners and modes. It keeps the files of a
// volume as the objects behind them are.
//
// There is no attaching, and none of the volumes that would need it: pods that want a persistentVolumeClaim, CSI or the like
// are told so. One goroutine per pod calls it, so that there is no reconciler between what is wanted and what is mounted
// (pkg/kubelet/volumemanager upstream).
package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// Times of the kubelet (pkg/kubelet/volumemanager/volume_manager.go, pkg/util/goroutinemap/exponentialbackoff upstream).
const (
	mountTimeout = 2*time.Minute + 3*time.Second
	firstRetry   = 500 * time.Millisecond
	lastRetry    = 2*time.Minute + 2*time.Second
)

// Config is what a Manager needs. All fields are required.
type Config struct {
	NodeName    string // marks the folders that are ours
	RootDir     string // like /var/lib/kubelet
	Objects     Objects
	Allocatable func() v1.ResourceList // of the node, for containers without limits
	Refresh     time.Duration          // between looks whether objects have changed; a kubelet looks with each sync of the pod
	Recorder    record.EventRecorder
	Log         logr.Logger
	Metrics     *metrics.Metrics
}

// A Manager has the volumes of all pods. It is safe for use by several goroutines.
type Manager struct {
	cfg  Config
	mu   sync.Mutex
	pods map[types.UID]*podVolumes
}

// A podVolumes is what one pod has. Its mutex is held while something is made or cleared away, never while objects are asked
// for.
type podVolumes struct {
	mu      sync.Mutex
	pod     *v1.Pod           // as last seen; nil before it is set up and after it is cleared away
	mounted map[string]Volume // guarded by Manager.mu
}

// A Volume is one that containers can be given. It is no type of its own, so that those who consume it need not import
// this package.
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
		for name, v := range p.mounted {
			out[name] = v
		}
	}
	return out
}

// Run looks again and again whether the objects behind volumes have changed, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			m.refresh(ctx)
		}
	}
}

func (m *Manager) refresh(ctx context.Context) {
	m.mu.Lock()
	var all []*podVolumes
	for _, p := range m.pods {
		all = append(all, p)
	}
	m.mu.Unlock()
	for _, p := range all {
		p.mu.Lock()
		pod := p.pod
		p.mu.Unlock()
		if pod != nil && ctx.Err() == nil {
			m.setUp(ctx, p, pod, m.names(p))
		}
	}
}

func (m *Manager) of(uid types.UID) *podVolumes {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		p = &podVolumes{mounted: map[string]Volume{}}
		m.pods[uid] = p
	}
	return p
}

func (m *Manager) names(p *podVolumes) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range p.mounted {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// WaitForAttachAndMount makes the pod's folders and the volumes that its containers use, and brings the files in those that
// are there up to date. Volumes that cannot be made yet are tried again, less and less often, for 2 m 3 s; volumes that
// can never be made end it at once. The error's text is the kubelet's.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error {
	p := m.of(pod.UID)
	p.mu.Lock()
	p.pod = pod
	err := m.makeDataDirs(pod.UID)
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("error making pod data directories: %w", err)
	}
	names := wanted(pod)
	if len(names) == 0 {
		return nil
	}
	m.cfg.Log.V(3).Info("Waiting for volumes to attach and mount for pod", "pod", klog.KObj(pod))
	makeable, failed, cause := sift(pod, names)
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		left := m.setUp(ctx, p, pod, makeable)
		if len(left)+len(failed) == 0 {
			m.cfg.Log.V(3).Info("All volumes are attached and mounted for pod", "pod", klog.KObj(pod))
			return nil
		}
		if cause == nil {
			cause = pause(ctx, delay)
		}
		if cause != nil {
			unmounted := slices.Sorted(slices.Values(append(left, failed...)))
			return fmt.Errorf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %w", unmounted, failed, cause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sift tells the volumes that can be made from those that never can, and says why not.
func sift(pod *v1.Pod, names []string) (makeable, failed []string, cause error) {
	var problems []string
	for _, name := range names {
		err := fmt.Errorf("volume %q is not among the pod's volumes, or is no name of a folder", name)
		if v := volumeNamed(pod, name); v != nil && isName(name) {
			if _, err = kindOf(v); err != nil {
				err = fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", name, err)
			}
		}
		if err == nil {
			makeable = append(makeable, name)
			continue
		}
		failed = append(failed, name)
		problems = append(problems, err.Error())
	}
	if len(problems) > 0 {
		cause = errors.New(strings.Join(problems, "; "))
	}
	return makeable, failed, cause
}

func volumeNamed(pod *v1.Pod, name string) *v1.Volume {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Volumes[i]
}

// setUp makes or refreshes volumes and returns the names of those that are still not there. A volume that is there stays,
// even if it cannot be refreshed.
func (m *Manager) setUp(ctx context.Context, p *podVolumes, pod *v1.Pod, names []string) (left []string) {
	for _, name := range names {
		err := m.setUpOne(ctx, p, pod, volumeNamed(pod, name))
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			m.cfg.Log.Error(err, "MountVolume.SetUp failed for volume", "volumeName", name, "pod", klog.KObj(pod), "podUID", pod.UID)
			m.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, "FailedMount", "MountVolume.SetUp failed for volume %q : %v", name, err)
		}
		if _, ok := m.Mounts(pod.UID)[name]; !ok {
			left = append(left, name)
		}
	}
	return left
}

func (m *Manager) setUpOne(ctx context.Context, p *podVolumes, pod *v1.Pod, v *v1.Volume) error {
	if v == nil {
		return nil // an update of the pod took it away, which the API does not allow
	}
	k, err := kindOf(v)
	if err != nil {
		return err
	}
	var files payload
	if k.content {
		if files, err = m.content(ctx, pod, v); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := m.Mounts(pod.UID)[v.Name]
	if p.pod == nil || there && !k.content {
		return nil // cleared away meanwhile, or ready since long
	}
	volume := Volume{ReadOnly: k.content, Managed: k.managed}
	if v.HostPath != nil {
		volume.HostPath = v.HostPath.Path
		err = checkHostPath(v.HostPath)
	} else {
		volume.HostPath = filepath.Join(m.volumesDir(pod.UID), k.folder, v.Name)
		err = m.make(pod, v.Name, k, volume.HostPath, files)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	p.mounted[v.Name] = volume
	m.mu.Unlock()
	if !there {
		m.cfg.Log.Info("MountVolume.SetUp succeeded for volume", "volumeName", v.Name, "pod", klog.KObj(pod))
	}
	return nil
}

// make makes one volume of ours at dir, or brings it up to date.
func (m *Manager) make(pod *v1.Pod, name string, k kind, dir string, files payload) error {
	ready := filepath.Join(m.podDir(pod.UID), "plugins", emptyDirFolder, name, "ready")
	if k.folder == emptyDirFolder && exists(ready) && exists(dir) && (!k.memory || isMount(dir)) {
		return nil // by an earlier run of ours; what containers wrote stays, with the modes that they gave it
	}
	if err := makeDir(dir, k); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, below := range nested(pod, name) {
		if err := root.MkdirAll(below, 0o755); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	own := func() error { return ownAll(root, fsGroup(pod), k.writable) }
	if k.content {
		return write(root, files, own)
	}
	if err := own(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(ready), 0o750); err != nil {
		return err
	}
	return os.WriteFile(ready, nil, 0o640)
}
