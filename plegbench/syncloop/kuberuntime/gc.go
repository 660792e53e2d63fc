package kuberuntime

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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A GCPolicy says which dead containers are kept, of pods that exist (pkg/kubelet/container/container_gc.go upstream).
type GCPolicy struct {
	MinAge             time.Duration // of a container since its creation (--minimum-container-ttl-duration)
	MaxPerPodContainer int           // of a container's instances (--maximum-dead-containers-per-container)
	MaxContainers      int           // on the node (--maximum-dead-containers); below 0, also of the other: no limit
}

// DefaultGCPolicy returns the kubelet's.
func DefaultGCPolicy() GCPolicy { return GCPolicy{MaxPerPodContainer: 1, MaxContainers: -1} }

// RunGC collects garbage at once and then every GCPeriod, until ctx ends. Its error is always nil.
func (m *Manager) RunGC(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.GarbageCollect(ctx); err != nil {
			m.Log.Error(err, "Container garbage collection failed")
			m.Recorder.Event(pod.NodeReference(m.NodeName), v1.EventTypeWarning, "ContainerGCFailed", err.Error())
		}
	}, m.GCPeriod)
	return nil
}

// GarbageCollect makes one pass. Its error comes from a list or from logs. Containers and sandboxes that cannot be
// removed are logged and left for the next pass.
func (m *Manager) GarbageCollect(ctx context.Context) error {
	return m.collect(ctx, m.ShouldPodContentBeRemoved)
}

// DeleteAllUnused makes one pass that also removes everything of pods that have merely terminated, for an eviction.
func (m *Manager) DeleteAllUnused(ctx context.Context) error {
	m.Log.Info("Attempting to delete unused containers")
	return m.collect(ctx, func(uid types.UID) bool {
		return m.ShouldPodContentBeRemoved(uid) || m.ShouldPodRuntimeBeRemoved(uid)
	})
}

// collect makes the three steps of a pass; one that fails does not stop the next.
func (m *Manager) collect(ctx context.Context, removable func(types.UID) bool) error {
	return utilerrors.NewAggregate([]error{
		m.evictContainers(ctx, removable), m.evictSandboxes(ctx, removable), m.evictPodLogsDirectories(),
	})
}

func (m *Manager) evictContainers(ctx context.Context, removable func(types.UID) bool) error {
	all, err := m.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	if !m.SourcesReady() {
		removable = func(types.UID) bool { return false }
	}
	all = slices.DeleteFunc(all, func(d *runtimeapi.Container) bool { return !m.owns(d.GetLabels()) })
	for _, d := range chooseContainers(all, m.GCPolicy, time.Now(), removable) {
		if err := m.removeContainer(ctx, d.GetId()); err != nil {
			m.Log.Error(err, "Failed to remove container", "containerID", d.GetId())
			continue
		}
		m.Metrics.ContainerGCRemoved.Inc()
	}
	return nil
}

func (m *Manager) owns(labels map[string]string) bool {
	return labels[container.OwnerLabel] == m.NodeName
}

// chooseContainers returns the dead containers to remove: first all of pods that are removable, then of each other unit
// what the policy does not keep, and then what is too much on the node; each oldest first.
func chooseContainers(
	all []*runtimeapi.Container, policy GCPolicy, now time.Time, removable func(types.UID) bool,
) []*runtimeapi.Container {
	all = slices.SortedFunc(slices.Values(all), container.NewerFirst)
	type evictUnit struct{ uid, name string } // all instances of one container of one pod
	units := map[evictUnit][]*runtimeapi.Container{}
	var gone, surplus []*runtimeapi.Container
	for _, d := range all {
		young := now.Add(-policy.MinAge).Before(time.Unix(0, d.GetCreatedAt()))
		if d.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING || young {
			continue
		}
		u := evictUnit{d.GetLabels()[container.PodUIDLabel], d.GetMetadata().GetName()}
		if removable(types.UID(u.uid)) {
			gone = append(gone, d)
		} else {
			units[u] = append(units[u], d)
		}
	}
	enforceMaxContainersPerEvictUnit := func(most int) (left []*runtimeapi.Container) {
		for u, list := range units {
			keep := min(most, len(list))
			surplus, units[u] = append(surplus, list[keep:]...), list[:keep]
			left = append(left, units[u]...)
		}
		return left
	}
	if policy.MaxPerPodContainer < 0 {
		policy.MaxPerPodContainer = len(all)
	}
	left := enforceMaxContainersPerEvictUnit(policy.MaxPerPodContainer)
	if policy.MaxContainers >= 0 && len(left) > policy.MaxContainers {
		left = enforceMaxContainersPerEvictUnit(max(1, policy.MaxContainers/len(units)))
		slices.SortFunc(left, container.NewerFirst)
		surplus = append(surplus, left[min(policy.MaxContainers, len(left)):]...)
	}
	slices.SortFunc(surplus, container.NewerFirst)
	slices.Reverse(gone)
	slices.Reverse(surplus)
	return append(gone, surplus...)
}

func (m *Manager) evictSandboxes(ctx context.Context, removable func(types.UID) bool) error {
	containers, err := m.CRI.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	all, err := m.CRI.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *runtimeapi.PodSandbox) bool { return !m.owns(s.GetLabels()) })
	for _, id := range chooseSandboxes(all, containers, removable) {
		// It should be stopped since the end of its pod; removing one with a network would leak the network.
		if err := m.CRI.StopPodSandbox(ctx, id); err != nil {
			m.Log.Error(err, "Failed to stop sandbox before removing", "sandboxID", id)
			continue
		}
		if err := m.CRI.RemovePodSandbox(ctx, id); err != nil {
			m.Log.Error(err, "Failed to remove sandbox", "sandboxID", id)
		}
	}
	return nil
}

// chooseSandboxes returns the sandboxes to remove, oldest first: those that are not ready and have no container, except
// the newest sandbox of each pod that is not removable.
func chooseSandboxes(
	all []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, removable func(types.UID) bool,
) []string {
	all = slices.SortedFunc(slices.Values(all), container.NewerFirst)
	occupied := map[string]bool{}
	for _, d := range containers {
		occupied[d.GetPodSandboxId()] = true
	}
	seen := map[string]bool{}
	var ids []string
	for _, s := range all {
		uid := s.GetMetadata().GetUid()
		newest := !seen[uid]
		seen[uid] = true
		active := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY || occupied[s.GetId()]
		if !active && (!newest || removable(types.UID(uid))) {
			ids = append(ids, s.GetId())
		}
	}
	slices.Reverse(ids)
	return ids
}

// evictPodLogsDirectories removes the log directories of pods that are removable.
func (m *Manager) evictPodLogsDirectories() error {
	if !m.SourcesReady() {
		return nil
	}
	dirs, err := os.ReadDir(filepath.Join(m.LogDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, dir := range dirs {
		parts := strings.Split(dir.Name(), "_") // namespace_name_uid
		if len(parts) != 3 || !m.ShouldPodContentBeRemoved(types.UID(parts[2])) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(m.LogDir, "pods", dir.Name())))
	}
	return err
}

// DeleteContainer removes a dead container and its log.
func (m *Manager) DeleteContainer(ctx context.Context, id container.ID) error {
	return m.removeContainer(ctx, id.ID)
}

// podLogs is the folder of a pod's logs. It has a folder for each container.
func (m *Manager) podLogs(namespace, name string, uid types.UID) string {
	return filepath.Join(m.LogDir, "pods", namespace+"_"+name+"_"+string(uid))
}

// removeContainer removes a dead container and its log, if that is below the folder of logs. The log goes first: a
// container whose log could not be removed is tried again, a log without its container would not be.
func (m *Manager) removeContainer(ctx context.Context, id string) error {
	status, err := m.CRI.ContainerStatus(ctx, id)
	if err != nil {
		return fmt.Errorf("getting the status of container %q: %w", id, err)
	}
	log := status.GetLogPath()
	if rel, err := filepath.Rel(filepath.Join(m.LogDir, "pods"), log); err == nil && filepath.IsLocal(rel) {
		if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return m.CRI.RemoveContainer(ctx, id)
}
