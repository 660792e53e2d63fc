package volumemanager

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// memory is a mounter that needs no root: the options of each mount by its path. The mounts of the kernel count too.
type memory struct {
	mu     *sync.Mutex
	mounts map[string]string
}

func (m memory) set(path, options string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mounts[path] = options
	return nil
}

func (m memory) tmpfs(dir, options string) error { return m.set(dir, options) }

func (m memory) bind(f *os.File, path string) error { return m.set(path, f.Name()) }

func (m memory) unmount(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mounts, dir)
	return nil
}

func (m memory) below(dir string) ([]string, error) {
	all, err := kernel{}.below(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(m.mounts)) {
		if strings.HasPrefix(path, dir+"/") {
			all = append(all, path)
		}
	}
	return all, err
}

// A harness is a Manager that runs, in a bubble, and whose mounts are in memory.
type harness struct {
	*Manager
	mounts  map[string]string
	objects string // folder

	mu   sync.Mutex
	pods map[types.UID]*v1.Pod // that the node should run
}

func newHarness(t *testing.T) *harness { return newHarnessIn(t, t.TempDir(), map[string]string{}) }

// newHarnessIn makes one with the folder and the mounts that another left, and pods that the node should run.
func newHarnessIn(t *testing.T, dir string, mounts map[string]string, pods ...*v1.Pod) *harness {
	t.Helper()
	h := &harness{mounts: mounts, objects: filepath.Join(dir, "objects")}
	h.pods = map[types.UID]*v1.Pod{}
	gone := func(uid types.UID) bool { h.mu.Lock(); defer h.mu.Unlock(); return h.pods[uid] == nil }
	testkit.Write(t, filepath.Join(h.objects, "all.yaml"), testkit.Read(t, "testdata/objects.yaml"))
	h.Manager = New(Config{
		NodeName: "node-1", RootDir: filepath.Join(dir, "root"), Recorder: record.NewFakeRecorder(1000), Log: logr.Discard(),
		Objects: NewFileObjects(h.objects), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		Pods:         func() []*v1.Pod { h.mu.Lock(); defer h.mu.Unlock(); return slices.Collect(maps.Values(h.pods)) },
		SourcesReady: func() bool { return true }, ShouldPodContainersBeTerminating: gone, ShouldPodRuntimeBeRemoved: gone,
	})
	h.Manager.mounts = memory{&sync.Mutex{}, mounts}
	for _, p := range pods {
		h.pods[p.UID] = p
	}
	looptest.Run(t, h.Run)
	return h
}

// mount makes the volumes of a pod.
func (h *harness) mount(t *testing.T, pod *v1.Pod) {
	t.Helper()
	h.want(pod)
	testkit.Must(t, h.WaitForAttachAndMount(t.Context(), pod))
	synctest.Wait()
}

func (h *harness) want(pod *v1.Pod) {
	_ = h.MakePodDataDirs(pod.UID) // mounting fails without them
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[pod.UID] = pod
}

// end ends a pod, and waits until its volumes are removed.
func (h *harness) end(t *testing.T, pod *v1.Pod) error {
	t.Helper()
	h.mu.Lock()
	delete(h.pods, pod.UID)
	h.mu.Unlock()
	return h.WaitForUnmount(t.Context(), pod)
}

// bubble makes a test with a harness in fake time.
func bubble(test func(t *testing.T, h *harness)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newHarness(t)) })
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func newPod(volumes ...v1.Volume) *v1.Pod {
	return looptest.Pod("web", func(p *v1.Pod) {
		p.Namespace, p.Labels, p.Spec.Volumes = "default", map[string]string{"app": "web"}, volumes
		for _, v := range volumes {
			c := &p.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
		}
	})
}

func volume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func configMapVolume(name, object string) v1.Volume {
	from := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}
	return volume(name, v1.VolumeSource{ConfigMap: from})
}

func allKinds(t *testing.T, host string) (volumes []v1.Volume) {
	t.Helper()
	looptest.Decode(t, testkit.Read(t, "testdata/volumes.yaml"), &volumes)
	volumes[2].HostPath.Path = host
	return volumes
}

func TestAllKinds(t *testing.T) { bubble(testAllKinds)(t) }

func testAllKinds(t *testing.T, m *harness) {
	host := filepath.Join(t.TempDir(), "made")
	pod := newPod(allKinds(t, host)...)
	m.mount(t, pod)
	mounts := m.Mounts(pod.UID)
	for name, want := range map[string]struct {
		folder  string
		memory  bool
		content map[string]string
	}{
		"disk":   {"empty-dir", false, nil},
		"memory": {"empty-dir", true, nil},
		"config": {"configmap", false, map[string]string{"mode": "-rw-r--r-- fast", "size": "-rw-r--r-- small"}},
		"secret": {"secret", true, map[string]string{"sub/pass": "-r--r----- word"}},
		"down": {"downward-api", true, map[string]string{
			"labels": `-rw-r--r-- app="web"`, "uid": "-r-------- web",
		}},
		"both": {"projected", true, map[string]string{
			"mode": "-rw------- fast", "pass": "-rw------- word", "labels": `-rw------- app="web"`,
		}},
	} {
		path := filepath.Join(m.podDir(pod.UID), "volumes", "kubernetes.io~"+want.folder, name)
		volume := source.Volume{HostPath: path, Managed: true, ReadOnly: want.content != nil}
		testkit.Equal(t, name, volume, mounts[name])
		testkit.Equal(t, name, want.content, visible(t, path), cmpopts.EquateEmpty())
		_, mounted := m.mounts[path]
		testkit.Equal(t, name+" is in memory", want.memory, mounted)
	}
	testkit.Equal(t, "host path", source.Volume{HostPath: host}, mounts["host"])
	testkit.Equal(t, "options", "size=1048576", m.mounts[mounts["memory"].HostPath])
	testkit.Write(t, filepath.Join(mounts["disk"].HostPath, "written by a container"), "x")
	testkit.Write(t, filepath.Join(host, "of the host"), "x")
	testkit.Must(t, m.end(t, pod))
	volumes, _ := filepath.Glob(filepath.Join(m.podDir(pod.UID), "volumes", "*", "*"))
	if len(m.mounts)+len(volumes)+len(m.Mounts(pod.UID)) > 0 {
		t.Errorf("left are mounts %v, folders %v, volumes %v", m.mounts, volumes, m.Mounts(pod.UID))
	}
	if !exists(filepath.Join(host, "of the host")) {
		t.Error("the host's file was removed with the pod")
	}
}

// TestAdoptsWhatAnEarlierRunMade runs a second manager over the folders of the first, and a third that finds the pod
// gone.
func TestAdoptsWhatAnEarlierRunMade(t *testing.T) {
	var first *harness
	pod := newPod(allKinds(t, t.TempDir())...)
	dir := t.TempDir()
	run := func(then func(t *testing.T, h *harness)) {
		synctest.Test(t, func(t *testing.T) {
			mounts := map[string]string{}
			if first != nil {
				maps.Copy(mounts, first.mounts)
			}
			first = newHarnessIn(t, dir, mounts, pod)
			then(t, first)
		})
	}
	run(func(t *testing.T, h *harness) {
		h.mount(t, pod)
		for _, name := range []string{"disk", "memory"} { // as a container leaves them
			dir := h.Mounts(pod.UID)[name].HostPath
			testkit.Write(t, filepath.Join(dir, "kept"), "x")
			testkit.Must(t, os.Chmod(dir, 0o700))
		}
		h.mounts[h.Mounts(pod.UID)["memory"].HostPath] += ",of the first run" // which mounting again would replace
	})
	before := maps.Clone(first.mounts)
	run(func(t *testing.T, h *harness) {
		h.mount(t, pod)
		for _, name := range []string{"disk", "memory"} {
			dir := h.Mounts(pod.UID)[name].HostPath
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || !exists(filepath.Join(dir, "kept")) {
				t.Errorf("%s has changed: %v, %v", name, info, err)
			}
		}
		testkit.Equal(t, "mounts", before, h.mounts)
	})
	run(func(t *testing.T, h *harness) {
		time.Sleep(time.Second)
		testkit.Must(t, h.end(t, pod))
		testkit.Equal(t, "mounts", map[string]string{}, h.mounts)
	})
}

// TestMissingObjectIsWaitedFor has a volume whose object comes late, when no worker waits for it any more, and one that
// no container mounts.
func TestMissingObjectIsWaitedFor(t *testing.T) { bubble(testMissingObject)(t) }

func testMissingObject(t *testing.T, m *harness) {
	pod := newPod(configMapVolume("config", "late"), volume("disk", v1.VolumeSource{}))
	pod.Spec.Volumes = append(pod.Spec.Volumes, configMapVolume("unused", "never"))
	m.want(pod)
	start := time.Now()
	err := m.WaitForAttachAndMount(t.Context(), pod)
	const want = "unmounted volumes=[config], unattached volumes=[], failed to process volumes=[]: " +
		"context deadline exceeded"
	if testkit.Text(err) != want || time.Since(start) != podAttachAndMountTimeout {
		t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
	}
	testkit.Write(t, filepath.Join(m.objects, "more.yaml"), "kind: ConfigMap\nmetadata: {name: late}\n")
	time.Sleep(2 * time.Minute) // beyond the try after 249.5 s
	again := time.Now()
	if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil || time.Since(again) > 0 {
		t.Errorf("after %v: %v, want success at once", time.Since(again), err)
	}
}

// TestFSGroup has a group that may read all volumes but those of the host, and write an emptyDir. Who runs the test may
// not be able to change the group; the modes are set all the same.
func TestFSGroup(t *testing.T) { bubble(testFSGroup)(t) }

func testFSGroup(t *testing.T, m *harness) {
	host := t.TempDir()
	pod := newPod(allKinds(t, host)...)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
	m.mount(t, pod)
	mounts := m.Mounts(pod.UID)
	for path, want := range map[string]string{
		mounts["disk"].HostPath: "dgrwxrwxrwx", mounts["memory"].HostPath: "dgrwxrwxrwx", host: "drwxr-xr-x",
		mounts["secret"].HostPath + "/sub/pass": "-r--r-----", mounts["both"].HostPath + "/mode": "-rw-r-----",
		mounts["down"].HostPath + "/uid": "-r--r-----",
	} {
		info, err := os.Stat(path)
		testkit.Must(t, err)
		testkit.Equal(t, path, want, info.Mode().String())
	}
}

// TestPrepareSafeSubpath mounts parts of a volume at places of their own. What leads out of the volume is refused.
func TestPrepareSafeSubpath(t *testing.T) { bubble(testPrepareSafeSubpath)(t) }

func testPrepareSafeSubpath(t *testing.T, m *harness) {
	pod := newPod(volume("disk", v1.VolumeSource{}))
	m.mount(t, pod)
	dir := m.Mounts(pod.UID)["disk"].HostPath
	testkit.Write(t, filepath.Join(dir, "file"), "x")
	testkit.Must(t, os.Symlink("/etc", filepath.Join(dir, "out")))
	for path, want := range map[string]string{ // the mounted path below the volume, or an error
		"made/deep": "made/deep", "file": "file",
		"out": "path escapes from parent", "/abs": "must not be an absolute path", "a/../b": "must not contain '..'",
	} {
		at, err := m.PrepareSafeSubpath(pod.UID, "disk", "c", 1, path)
		place := filepath.Join(m.podDir(pod.UID), subPaths, "disk", "c", "1")
		switch {
		case err != nil:
			testkit.Contains(t, path, want, err.Error())
		case at != place || m.mounts[place] != filepath.Join(dir, want) || !exists(filepath.Join(dir, want)):
			t.Errorf("%s: %s at %s, want %s", path, m.mounts[place], at, want)
		}
	}
	if err := m.end(t, pod); err != nil || len(m.mounts) > 0 || exists(filepath.Join(m.podDir(pod.UID), subPaths)) {
		t.Errorf("%v; mounted are %v", err, m.mounts)
	}
}

func TestMountInsideKeepsAVolume(t *testing.T) { bubble(testMountInside)(t) }

func testMountInside(t *testing.T, m *harness) {
	pod := newPod(volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	m.mount(t, pod)
	inside := filepath.Join(m.Mounts(pod.UID)["disk"].HostPath, "inside")
	testkit.Write(t, filepath.Join(inside, "precious"), "x")
	m.mounts[inside] = ""
	testkit.Equal(t, "error", "mounted volumes=[disk]: context deadline exceeded", testkit.Text(m.end(t, pod)))
	if err := m.CleanupOrphans(nil); err == nil {
		t.Error("a pod with a mount inside of its volume was taken for clean")
	}
	if !exists(filepath.Join(inside, "precious")) {
		t.Fatal("a folder behind a mount was emptied")
	}
	delete(m.mounts, inside)
	testkit.Must(t, m.end(t, pod))
	testkit.Must(t, m.CleanupOrphans(nil))
	testkit.Equal(t, "a folder of the pod", false, exists(m.podDir(pod.UID)))
}

func TestCleanupOrphans(t *testing.T) { bubble(testCleanupOrphans)(t) }

func testCleanupOrphans(t *testing.T, m *harness) {
	pods := map[types.UID]*v1.Pod{}
	for _, uid := range []types.UID{"kept", "in-use", "ended", "earlier-run"} {
		pods[uid] = newPod(allKinds(t, t.TempDir())...)
		pods[uid].UID = uid
		m.mount(t, pods[uid])
		testkit.Write(t, filepath.Join(m.podDir(uid), "etc-hosts"), "x")
	}
	testkit.Write(t, filepath.Join(m.podDir("of-a-real-kubelet"), "volumes", "file"), "x")
	testkit.Write(t, filepath.Join(m.podDir("of-another-node"), ownerMark), "node-2")
	testkit.Must(t, m.end(t, pods["ended"]))
	m.Manager.mu.Lock()
	delete(m.actual, "earlier-run")
	delete(m.desired, "earlier-run")
	m.Manager.mu.Unlock()
	m.mu.Lock()
	delete(m.pods, "earlier-run")
	m.mu.Unlock()
	if err := m.CleanupOrphans(map[types.UID]bool{"kept": true}); err == nil || strings.Contains(err.Error(), "ended") {
		t.Errorf("got %v, want an error of in-use", err)
	}
	var left []string
	const mode = "volumes/kubernetes.io~configmap/config/mode"
	for _, file := range []string{"etc-hosts", mode, "volumes/file", ownerMark} {
		found, _ := filepath.Glob(m.podDir("*") + "/" + file)
		for _, path := range found {
			left = append(left, strings.TrimPrefix(path, m.podDir("")+"/"))
		}
	}
	want := []string{
		"in-use/etc-hosts", "kept/etc-hosts", "in-use/" + mode, "kept/" + mode, "of-a-real-kubelet/volumes/file",
		"in-use/" + ownerMark, "kept/" + ownerMark, "of-another-node/" + ownerMark,
	}
	testkit.Equal(t, "files left", want, left)
}

func TestContentErrors(t *testing.T) { bubble(testContentErrors)(t) }

func testContentErrors(t *testing.T, m *harness) {
	for from, want := range map[string]string{ // "" is an empty volume
		"configMap: {name: settings, items: [{key: none, path: x}]}":                  "non-existent config key: none",
		"secret: {name: settings}":                                                    `secret "settings" not found`,
		"secret: {name: settings, optional: true}":                                    "",
		"configMap: {name: settings, items: [{key: none, path: x}], optional: true}":  "",
		"serviceAccountToken: {path: x}":                                              "needs an API server",
		"clusterTrustBundle: {path: x}":                                               "none of",
		"downwardAPI: {items: [{path: x, resourceFieldRef: {resource: limits.cpu}}]}": "unsupported fieldPath",
		"downwardAPI: {items: [{path: x, fieldRef: {fieldPath: status.podIP}}]}":      "fieldPath: status.podIP",
	} {
		var v v1.Volume
		looptest.Decode(t, "{name: v, projected: {sources: [{"+from+"}]}}", &v)
		got, err := m.content(t.Context(), newPod(v), &v)
		if (err == nil) != (want == "") || !strings.Contains(testkit.Text(err), want) || len(got) > 0 {
			t.Errorf("%s: %v, %v, want %q", from, got, err, want)
		}
	}
}
