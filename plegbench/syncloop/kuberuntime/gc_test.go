package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// owned are the labels of something that belongs to a pod of this node.
func owned(uid, name string) map[string]string {
	return map[string]string{
		container.OwnerLabel: node, container.PodUIDLabel: uid, container.PodNameLabel: name,
		container.PodNamespaceLabel: "shop", container.ContainerNameLabel: "main",
	}
}

// addLogged adds a container of a pod, created so many seconds after the epoch, with a log.
func (r *harness) addLogged(
	t *testing.T, id, uid string, state runtimeapi.ContainerState, second int64,
) *runtimeapi.ContainerStatus {
	t.Helper()
	s := &runtimeapi.ContainerStatus{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "a"}, State: state, CreatedAt: second * 1e9,
		Labels: owned(uid, uid), LogPath: filepath.Join(r.podLogs("shop", uid, types.UID(uid)), id+".log"),
	}
	looptest.Write(t, s.LogPath, "")
	r.cri.containers = append(r.cri.containers, s)
	r.cri.inSandbox[id] = "sb-" + uid
	return s
}

// addSandbox adds one of this node, created later than those before it.
func (r *harness) addSandbox(id, uid string, state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, State: state, Labels: owned(uid, uid),
		CreatedAt: int64(len(r.cri.sandboxes)),
	}
	r.cri.sandboxes = append(r.cri.sandboxes, s)
	return s
}

// left returns what is left: containers, sandboxes and log files.
func (r *harness) left(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, c := range r.cri.containers {
		out = append(out, c.Id)
	}
	for _, s := range r.cri.sandboxes {
		out = append(out, s.Id)
	}
	logs, err := filepath.Glob(filepath.Join(r.LogDir, "pods", "*", "*.log"))
	looptest.Must(t, err)
	for _, log := range logs {
		out = append(out, filepath.Base(log))
	}
	slices.Sort(out)
	return out
}

// TestGarbageCollect has a pod that runs with older dead instances, one that has terminated, one that is gone, and one
// of another node.
func TestGarbageCollect(t *testing.T) {
	for name, tt := range map[string]struct {
		unseen  bool // not all sources have been seen
		collect func(*Manager, context.Context) error
		want    string
	}{
		"a pass": {
			collect: (*Manager).GarbageCollect,
			want:    "a2 a2.log a3 a3.log f0 o0 o0.log sb-foreign sb-live sb-over",
		},
		"for an eviction": {collect: (*Manager).DeleteAllUnused, want: "a2 a2.log a3 a3.log f0 sb-foreign sb-live"},
		"before all sources are seen": {
			unseen: true, collect: (*Manager).GarbageCollect,
			want: "a2 a2.log a3 a3.log f0 f0.log g0 g0.log o0 o0.log sb-foreign sb-gone sb-live sb-over",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			r.SourcesReady = func() bool { return !tt.unseen }
			r.gone, r.terminated = map[types.UID]bool{"gone": true, "foreign": true}, map[types.UID]bool{"over": true}
			for second, id := range []string{"a0", "a1", "a2"} {
				r.addLogged(t, id, "live", exited, int64(second))
			}
			r.addLogged(t, "a3", "live", running, 9)
			r.addLogged(t, "g0", "gone", exited, 0)
			r.addLogged(t, "o0", "over", exited, 0)
			r.addLogged(t, "f0", "foreign", exited, 0).Labels[container.OwnerLabel] = "other"
			r.addSandbox("old", "live", notReady)
			r.addSandbox("sb-live", "live", ready)
			r.addSandbox("sb-gone", "gone", notReady)
			r.addSandbox("sb-over", "over", notReady)
			r.addSandbox("sb-foreign", "foreign", notReady).Labels[container.OwnerLabel] = "other"
			looptest.Must(t, tt.collect(r.Manager, t.Context()))
			looptest.Equal(t, "left", strings.Fields(tt.want), r.left(t))
		})
	}
}

// TestGCPolicy has five dead instances of a container, three of another, and one that runs, of a second each; a0 and b0
// are the oldest. They are looked at ten seconds after the first.
func TestGCPolicy(t *testing.T) {
	for _, tt := range []struct {
		policy  GCPolicy
		removed string
	}{
		{DefaultGCPolicy(), "a0 b0 a1 b1 a2 a3"},
		{GCPolicy{MaxPerPodContainer: 0, MaxContainers: -1}, "a0 b0 a1 b1 a2 b2 a3 a4"},
		{GCPolicy{MaxPerPodContainer: -1, MaxContainers: 3}, "a0 b0 a1 b1 a2 a3"},
		{GCPolicy{MaxPerPodContainer: -1, MaxContainers: 1}, "a0 b0 a1 b1 a2 b2 a3"},
		{GCPolicy{MaxPerPodContainer: 1, MaxContainers: -1, MinAge: 8 * time.Second}, "a0 b0 a1 b1"},
	} {
		var all []*runtimeapi.Container
		for name, n := range map[string]int{"a": 5, "b": 3, "running": 1} {
			for i := range n {
				c := &runtimeapi.Container{
					Id: name + strconv.Itoa(i), CreatedAt: int64(i) * 1e9, State: exited, Labels: owned("live", "live"),
					Metadata: &runtimeapi.ContainerMetadata{Name: name},
				}
				if name == "running" {
					c.State = running
				}
				all = append(all, c)
			}
		}
		var got []string
		none := func(types.UID) bool { return false }
		for _, c := range chooseContainers(all, tt.policy, time.Unix(10, 0), none) {
			got = append(got, c.GetId())
		}
		looptest.Equal(t, fmt.Sprintf("%+v", tt.policy), tt.removed, strings.Join(got, " "))
	}
}

// TestCollectionOrder checks the order of the kubelet's calls: containers, then sandboxes, each stopped before it is
// removed. A failure does not stop the rest, and a log outside of the folder of logs is left alone.
func TestCollectionOrder(t *testing.T) {
	r := newHarness(t)
	r.gone = map[types.UID]bool{"gone": true}
	outside := filepath.Join(t.TempDir(), "0.log")
	looptest.Write(t, outside, "")
	for i, id := range []string{"c0", "c1", "c2"} {
		c := r.addLogged(t, id, "gone", exited, int64(i))
		c.Metadata.Name, c.LogPath = id, outside
	}
	r.addSandbox("s0", "gone", notReady)
	r.addSandbox("s1", "gone", notReady)
	for _, call := range []string{"ContainerStatus c0", "RemoveContainer c1", "StopPodSandbox s0"} {
		r.cri.fail[call] = errors.New("hung")
	}
	looptest.Must(t, r.GarbageCollect(t.Context()))
	looptest.Equal(t, "calls", []string{
		"ListContainers", "ContainerStatus c0", "ContainerStatus c1", "RemoveContainer c1", "ContainerStatus c2",
		"RemoveContainer c2", "ListContainers", "ListPodSandbox", "StopPodSandbox s0", "StopPodSandbox s1",
		"RemovePodSandbox s1",
	}, r.cri.took())
	_, err := os.Stat(outside)
	looptest.Must(t, err)
}
