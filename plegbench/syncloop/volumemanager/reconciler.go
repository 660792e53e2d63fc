package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// A desiredPod is a pod in the desired state of world.
type desiredPod struct {
	pod       *v1.Pod
	volumes   []v1.Volume // that its containers mount
	processed bool        // since its worker asked for it
	err       error       // why other volumes are not in the desired state
}

// getExpectedVolumes returns the names of the volumes that a pod's containers mount, sorted.
func getExpectedVolumes(pod *v1.Pod) (names []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, mount := range c.VolumeMounts {
			names = append(names, mount.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Run populates the desired state of world and reconciles the actual one with it each 100 ms, until ctx ends. It
// returns when the operations under way have ended.
func (m *Manager) Run(ctx context.Context) error {
	m.cfg.Log.Info("Starting Kubelet Volume Manager")
	m.mu.Lock()
	for _, uid := range m.PodDirs() { // of an earlier run
		m.actual[uid] = map[string]volumeState{}
	}
	m.mu.Unlock()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		readyToUnmount := m.cfg.SourcesReady() // before the populator looks
		m.populatorLoop()
		m.reconcile(ctx, readyToUnmount)
	}, reconcilerLoopSleepPeriod)
	m.operations.Wait()
	return ctx.Err()
}

// populatorLoop puts the volumes of pods whose containers may start into the desired state of world, and removes pods
// of which nothing runs (populator/desired_state_of_world_populator.go upstream). The kubelet's does not wait for a
// pod's worker to ask.
func (m *Manager) populatorLoop() {
	for _, p := range m.cfg.Pods() {
		if !m.cfg.ShouldPodContainersBeTerminating(p.UID) {
			m.processPodVolumes(p)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.desired, func(uid types.UID, _ *desiredPod) bool { return m.cfg.ShouldPodRuntimeBeRemoved(uid) })
}

// processPodVolumes puts a pod's volumes into the desired state of world, once for each time that its worker waits for
// them. Those whose files may have changed are mounted again.
func (m *Manager) processPodVolumes(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if asked := m.desired[p.UID]; asked == nil || asked.processed {
		return
	}
	d := &desiredPod{pod: p, processed: true}
	expected := getExpectedVolumes(p)
	for _, v := range p.Spec.Volumes {
		if !slices.Contains(expected, v.Name) {
			continue
		}
		k, err := kindOf(&v)
		if err != nil {
			d.err = errors.Join(d.err, fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", v.Name, err))
			continue
		}
		d.volumes = append(d.volumes, v)
		if state, ok := m.actual[p.UID][v.Name]; ok && k.content {
			state.remount = true
			m.actual[p.UID][v.Name] = state
		}
	}
	m.desired[p.UID] = d
}

// reprocessPod has a pod processed, for the first time or again.
func (m *Manager) reprocessPod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.desired[uid] == nil {
		m.desired[uid] = &desiredPod{}
	}
	m.desired[uid].processed = false
}

// popPodErrors returns why volumes of a pod are not in the desired state of world, once.
func (m *Manager) popPodErrors(uid types.UID) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.desired[uid]; d != nil {
		err, d.err = d.err, nil
	}
	return err
}

// getUnmountedVolumes returns the expected volumes of a pod that are not there.
func (m *Manager) getUnmountedVolumes(uid types.UID, expected []string) []string {
	mounted := m.Mounts(uid)
	return slices.DeleteFunc(slices.Clone(expected), func(name string) bool { return mounted[name].HostPath != "" })
}

// getVolumesNotInDSW returns the expected volumes of a pod that are not in the desired state of world.
func (m *Manager) getVolumesNotInDSW(uid types.UID, expected []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	missing := slices.Clone(expected)
	if d := m.desired[uid]; d != nil {
		for _, v := range d.volumes {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == v.Name })
		}
	}
	return missing
}

// reconcile starts what makes the actual state of world agree with the desired one: first unmounts, then mounts.
func (m *Manager) reconcile(ctx context.Context, readyToUnmount bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, volumes := range m.actual {
		busy := slices.ContainsFunc(slices.Collect(maps.Values(volumes)), func(v volumeState) bool {
			return v.pending || time.Now().Before(v.due)
		})
		if readyToUnmount && m.desired[uid] == nil && !busy && m.cfg.ShouldPodRuntimeBeRemoved(uid) {
			m.unmountVolumes(uid)
		}
	}
	for uid, d := range m.desired {
		for i := range d.volumes {
			v := &d.volumes[i]
			state := m.actual[uid][v.Name]
			if state.pending || time.Now().Before(state.due) || state.HostPath != "" && !state.remount {
				continue
			}
			before := state
			state.pending, state.remount = true, false
			m.set(uid, v.Name, state)
			m.operations.Go(func() { m.mountVolume(ctx, d.pod, v, before) })
		}
	}
}

// set notes the state of a volume. The lock is held.
func (m *Manager) set(uid types.UID, name string, state volumeState) {
	if m.actual[uid] == nil {
		m.actual[uid] = map[string]volumeState{}
	}
	m.actual[uid][name] = state
}

// unmountVolumes removes the volumes of a pod with their content, in an operation of its own. The lock is held.
func (m *Manager) unmountVolumes(uid types.UID) {
	const all = "" // stands for the pod's volumes together
	state := m.actual[uid][all]
	state.pending = true
	m.set(uid, all, state)
	m.operations.Go(func() {
		dir := m.podDir(uid)
		err := m.remove(dir, filepath.Join(dir, "volumes"), filepath.Join(dir, subPaths))
		m.mu.Lock()
		defer m.mu.Unlock()
		if err == nil {
			delete(m.actual, uid)
			return
		}
		m.cfg.Log.Error(err, "UnmountVolume.TearDown failed", "podUID", uid)
		state.failed()
		m.set(uid, all, state)
	})
}

// failed notes that an operation has failed: the next one has to wait.
func (v *volumeState) failed() {
	v.pending, v.pause = false, min(max(2*v.pause, firstRetry), mostRetry)
	v.due = time.Now().Add(v.pause)
}

// mountVolume makes or updates a volume. One that cannot be updated stays as it is.
func (m *Manager) mountVolume(ctx context.Context, pod *v1.Pod, v *v1.Volume, before volumeState) {
	volume, err := m.make(ctx, pod, v, before)
	switch {
	case err != nil && ctx.Err() != nil: // no failure of the volume's
		volume = before
	case err != nil:
		volume = before
		volume.failed()
		m.cfg.Log.Error(err, "MountVolume.SetUp failed for volume",
			"volumeName", v.Name, "pod", klog.KObj(pod), "podUID", pod.UID)
		m.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, "FailedMount",
			"MountVolume.SetUp failed for volume %q : %v", v.Name, err)
	case before.HostPath == "":
		m.cfg.Log.Info("MountVolume.SetUp succeeded for volume", "volumeName", v.Name, "pod", klog.KObj(pod))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	volume.remount = volume.remount || m.actual[pod.UID][v.Name].remount
	m.set(pod.UID, v.Name, volume)
}
