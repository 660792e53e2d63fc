package kuberuntime

import (
	"context"
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

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// add adds the sandbox of a pod, with instances of a container that have logs. The last of them runs if the sandbox is
// ready.
func (r *harness) add(t *testing.T, name, uid, owner string, ready bool, instances int) {
	t.Helper()
	labels := map[string]string{container.OwnerLabel: owner, container.PodUIDLabel: uid}
	logs := r.podLogs("shop", uid, types.UID(uid))
	testkit.Must(t, os.MkdirAll(logs, 0o755))
	sandbox, err := r.cri.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop", Uid: uid}, Labels: labels, LogDirectory: logs,
	}, "")
	testkit.Must(t, err)
	last := ""
	for i := range instances {
		testkit.Must(t, r.cri.StopContainer(t.Context(), last, 0))
		last, err = r.cri.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: uint32(i)}, Labels: labels,
			Image: &runtimeapi.ImageSpec{Image: "image:1"}, LogPath: fmt.Sprint(uid, i, ".log"),
		}, nil)
		testkit.Must(t, err)
		testkit.Must(t, r.cri.StartContainer(t.Context(), last))
	}
	if !ready {
		testkit.Must(t, r.cri.StopPodSandbox(t.Context(), sandbox))
	}
}

// left returns what is left: containers by pod and attempt, sandboxes and log files.
func (r *harness) left(t *testing.T) []string {
	t.Helper()
	containers, err := r.cri.ListContainers(t.Context(), nil)
	testkit.Must(t, err)
	sandboxes, err := r.cri.ListPodSandbox(t.Context(), nil)
	testkit.Must(t, err)
	logs, err := filepath.Glob(filepath.Join(r.LogDir, "pods", "*", "*.log"))
	testkit.Must(t, err)
	var out []string
	for _, c := range containers {
		out = append(out, fmt.Sprint(c.GetLabels()[container.PodUIDLabel], c.GetMetadata().GetAttempt()))
	}
	for _, s := range sandboxes {
		out = append(out, s.GetMetadata().GetName())
	}
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
			want:    "foreign0 live2 live2.log live3 live3.log over0 over0.log sb-foreign sb-live sb-over",
		},
		"for an eviction": {
			collect: (*Manager).DeleteAllUnused, want: "foreign0 live2 live2.log live3 live3.log sb-foreign sb-live",
		},
		"before all sources are seen": {
			unseen: true, collect: (*Manager).GarbageCollect,
			want: "foreign0 foreign0.log gone0 gone0.log live2 live2.log live3 live3.log over0 over0.log " +
				"sb-foreign sb-gone sb-live sb-over",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			r.SourcesReady = func() bool { return !tt.unseen }
			r.gone, r.terminated = map[types.UID]bool{"gone": true, "foreign": true}, map[types.UID]bool{"over": true}
			r.add(t, "old", "live", node, false, 0)
			r.add(t, "sb-live", "live", node, true, 4)
			r.add(t, "sb-gone", "gone", node, false, 1)
			r.add(t, "sb-over", "over", node, false, 1)
			r.add(t, "sb-foreign", "foreign", "other", false, 1)
			testkit.Must(t, tt.collect(r.Manager, t.Context()))
			testkit.Equal(t, "left", strings.Fields(tt.want), r.left(t))
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
					Id: name + strconv.Itoa(i), CreatedAt: int64(i) * 1e9, State: exited,
					Labels:   map[string]string{container.PodUIDLabel: "live"},
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
		testkit.Equal(t, fmt.Sprintf("%+v", tt.policy), tt.removed, strings.Join(got, " "))
	}
}

// TestCollectionOrder checks the order of the kubelet's calls: containers, then sandboxes, each stopped before it is
// removed. A failure does not stop the rest, and a log outside of the folder of logs is left alone.
func TestCollectionOrder(t *testing.T) {
	r := newHarness(t,
		fake.Fault{RPC: "ContainerStatus", Object: fake.Object{Container: "c0"}, Error: "Unknown: hung"},
		fake.Fault{RPC: "RemoveContainer", Object: fake.Object{Container: "c1"}, Error: "Unknown: hung"},
		fake.Fault{RPC: "StopPodSandbox", Object: fake.Object{Pod: "s0"}, After: 1, Error: "Unknown: hung"})
	r.gone = map[types.UID]bool{"gone": true}
	for _, name := range []string{"c0", "c1", "c2"} {
		r.add(t, name, "gone", node, false, 1)
	}
	r.add(t, "s0", "gone", node, false, 0)
	r.add(t, "s1", "gone", node, false, 0)
	outside := filepath.Join(r.podLogs("shop", "gone", "gone"), "gone0.log")
	r.LogDir = t.TempDir()
	r.cri.took()
	testkit.Must(t, r.GarbageCollect(t.Context()))
	testkit.Equal(t, "calls", []string{
		"ListContainers", "ContainerStatus c0", "ContainerStatus c1", "RemoveContainer c1", "ContainerStatus c2",
		"RemoveContainer c2", "ListContainers", "ListPodSandbox", "StopPodSandbox c2 0", "RemovePodSandbox c2 0",
		"StopPodSandbox s0 0", "StopPodSandbox s1 0", "RemovePodSandbox s1 0",
	}, r.cri.took())
	_, err := os.Stat(outside)
	testkit.Must(t, err)
}
