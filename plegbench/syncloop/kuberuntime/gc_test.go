package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// addContainer adds a container of this node, created so many seconds after the epoch, with a log.
func (r *rig) addContainer(t *testing.T, id, uid, name string, state runtimeapi.ContainerState, second int64) *runtimeapi.ContainerStatus {
	t.Helper()
	labels := owned(uid, uid)
	labels[container.ContainerNameLabel] = name
	log := filepath.Join(r.podLogs("shop", uid, types.UID(uid)), name, id+".log")
	put(t, log)
	put(t, r.logLink(uid, "shop", name, id))
	s := &runtimeapi.ContainerStatus{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: state, CreatedAt: second * 1e9, Labels: labels, LogPath: log,
	}
	r.cri.containers = append(r.cri.containers, s)
	r.cri.inSandbox[id] = "sb-" + uid
	return s
}

func (r *rig) addSandbox(id, uid string, state runtimeapi.PodSandboxState, second int64) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, State: state, CreatedAt: second * 1e9, Labels: owned(uid, uid),
	}
	r.cri.sandboxes = append(r.cri.sandboxes, s)
	return s
}

// left returns what is left: containers, sandboxes and log files.
func (r *rig) left(t *testing.T) string {
	t.Helper()
	var out []string
	for _, c := range r.cri.containers {
		out = append(out, c.Id)
	}
	for _, s := range r.cri.sandboxes {
		out = append(out, s.Id)
	}
	err := filepath.WalkDir(r.LogDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// garbageRig has a pod that runs with older dead instances, one that has terminated, one that is gone, and another
// node's.
func garbageRig(t *testing.T) *rig {
	r := newRig(t)
	r.world.gone, r.world.terminated = map[types.UID]bool{"gone": true, "foreign": true}, map[types.UID]bool{"over": true}
	for second, id := range []string{"a0", "a1", "a2"} {
		r.addContainer(t, id, "live", "a", exited, int64(second))
	}
	r.addContainer(t, "a3", "live", "a", running, 9)
	r.addContainer(t, "g0", "gone", "a", exited, 0)
	r.addContainer(t, "o0", "over", "a", exited, 0)
	r.addContainer(t, "f0", "foreign", "a", exited, 0).Labels[container.OwnerLabel] = "other"
	r.addSandbox("sb-live", "live", ready, 3)
	r.addSandbox("old", "live", notReady, 1)
	r.addSandbox("sb-gone", "gone", notReady, 1)
	r.addSandbox("sb-over", "over", notReady, 1)
	r.addSandbox("sb-foreign", "foreign", notReady, 1).Labels[container.OwnerLabel] = "other"
	return r
}

func TestCollectGarbage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		before  func(*rig)
		collect func(*rig, context.Context) error
		want    string
	}{
		{
			"a pass", func(*rig) {}, func(r *rig, ctx context.Context) error { return r.CollectGarbage(ctx) },
			"a2 a2.log a3 a3.log f0 live_shop_a-a2.log live_shop_a-a3.log o0 o0.log over_shop_a-o0.log sb-foreign sb-live sb-over foreign_shop_a-f0.log",
		},
		{
			"for an eviction", func(*rig) {}, func(r *rig, ctx context.Context) error { return r.DeleteAllUnused(ctx) },
			"a2 a2.log a3 a3.log f0 live_shop_a-a2.log live_shop_a-a3.log sb-foreign sb-live foreign_shop_a-f0.log",
		},
		{
			"before all sources are seen", func(r *rig) { r.SourcesReady = func() bool { return false } },
			func(r *rig, ctx context.Context) error { return r.CollectGarbage(ctx) },
			"a2 a2.log a3 a3.log f0 f0.log g0 g0.log gone_shop_a-g0.log live_shop_a-a2.log live_shop_a-a3.log o0 o0.log over_shop_a-o0.log " +
				"sb-foreign sb-gone sb-live sb-over foreign_shop_a-f0.log",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := garbageRig(t)
			tt.before(r)
			if err := tt.collect(r, t.Context()); err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(tt.want)
			slices.Sort(want)
			same(t, "left", strings.Join(want, " "), r.left(t))
		})
	}
}

// The order is that of the kubelet's calls: containers, then sandboxes, each stopped before it is removed. What fails
// does not stop the rest; a container in an unknown state may run, and is stopped first.
func TestCollectionOrder(t *testing.T) {
	r := newRig(t)
	r.world.gone = map[types.UID]bool{"gone": true}
	r.addContainer(t, "u0", "gone", "u0", unknown, 0)
	r.addContainer(t, "u1", "gone", "u1", unknown, 1)
	r.addContainer(t, "c2", "gone", "c2", exited, 2)
	r.addContainer(t, "c3", "gone", "c3", exited, 3)
	r.addSandbox("old", "gone", notReady, 1)
	r.cri.fail["StopContainer u1"], r.cri.fail["RemoveContainer c2"] = errors.New("hung"), errors.New("hung")
	if err := r.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "calls", []string{
		"ListContainers", "StopContainer u0", "ContainerStatus u0", "RemoveContainer u0", "StopContainer u1",
		"ContainerStatus c2", "RemoveContainer c2", "ContainerStatus c3", "RemoveContainer c3",
		"ListContainers", "ListPodSandbox", "StopPodSandbox old", "RemovePodSandbox old",
	}, r.cri.took())
	if got := r.cri.stops["u0"]; got != 2*time.Second {
		t.Errorf("grace %v", got)
	}
}

// A log outside of the folder of logs is left alone, and a long link is cut.
func TestRemoveContainer(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(t.TempDir(), "0.log")
	put(t, outside)
	r.addContainer(t, "c0", "web", "a", exited, 0).LogPath = outside
	if err := r.removeContainer(t.Context(), "c0"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if err := r.removeContainer(t.Context(), "c0"); err == nil {
		t.Error("a container that is gone was removed")
	}
	link := filepath.Base(r.logLink(strings.Repeat("n", 200), "shop", "main", strings.Repeat("c", 64)))
	if len(link) != 255 || !strings.HasSuffix(link, "c.log") {
		t.Errorf("%d bytes: %s", len(link), link)
	}
}

func TestRunGC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cri.fail["ListContainers"] = errors.New("down")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.RunGC(ctx) }()
		time.Sleep(2*time.Minute + time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if events := r.happened(); len(events) != 3 || events[0] != "Warning ContainerGCFailed down" {
			t.Errorf("events %q", events)
		}
	})
}

// While a removal hangs 50 more fit into the queue; the rest is dropped without blocking the caller.
func TestDeletor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := &container.PodStatus{}
		add := func(id, name string, state container.State) {
			pod.ContainerStatuses = append(pod.ContainerStatuses, &container.Status{ID: r.id(id), Name: name, State: state})
		}
		add("b0", "b", container.Exited)
		add("a61", "a", container.Running)
		for i := range 60 { // newest first
			add(fmt.Sprint("a", 60-i), "a", container.Exited)
		}
		r.DeleteContainersInPod("gone", pod)
		r.DeleteContainersInPod("a60", pod)
		if got := len(r.queue); got != deletorQueue || <-r.queue != "a59" {
			t.Errorf("%d in the queue, without the newest", got)
		}
		r.queue = make(chan string, deletorQueue)
		pod.ContainerStatuses = pod.ContainerStatuses[:3]
		r.DeleteContainersInPod("", pod)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.RunDeletor(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		same(t, "calls for all of the pod", []string{"ContainerStatus b0", "ContainerStatus a60"}, r.cri.took())
	})
}
