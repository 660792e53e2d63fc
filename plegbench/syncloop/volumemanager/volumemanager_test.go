package volumemanager

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// memory is a mounter that needs no root: the options of each mount by its path. The mounts of the kernel count too.
type memory map[string]string

func (m memory) tmpfs(dir, options string) error {
	m[dir] = options
	return nil
}

func (m memory) unmount(dir string) error {
	delete(m, dir)
	return nil
}

func (m memory) below(dir string) ([]string, error) {
	all, err := kernel{}.below(dir)
	for _, path := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(path, dir+"/") {
			all = append(all, path)
		}
	}
	return all, err
}

// A harness is a Manager whose mounts are in memory.
type harness struct {
	*Manager
	mounts  memory
	events  *record.FakeRecorder
	objects string // folder
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	dir := t.TempDir()
	h := &harness{mounts: memory{}, events: record.NewFakeRecorder(1000), objects: filepath.Join(dir, "objects")}
	looptest.Write(t, filepath.Join(h.objects, "all.yaml"), testdata(t, "objects.yaml"))
	h.Manager = New(Config{
		NodeName: "node-1", RootDir: filepath.Join(dir, "root"), Recorder: h.events, Log: logr.Discard(),
		Objects: NewFileObjects(h.objects), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	h.Manager.mounts = h.mounts
	return h
}

// mount makes the volumes of a pod.
func (m *Manager) mount(t *testing.T, pod *v1.Pod) {
	t.Helper()
	looptest.Must(t, errors.Join(m.MakePodDataDirs(pod.UID), m.WaitForAttachAndMount(t.Context(), pod)))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func newPod(volumes ...v1.Volume) *v1.Pod {
	return looptest.Pod("web", func(p *v1.Pod) {
		p.Namespace, p.Labels, p.Spec.Volumes = "default", map[string]string{"app": "web"}, volumes
	})
}

func volume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func configMapVolume(name, object string) v1.Volume {
	from := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}
	return volume(name, v1.VolumeSource{ConfigMap: from})
}

// testdata is the text of a file.
func testdata(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	looptest.Must(t, err)
	return string(data)
}

func allKinds(t *testing.T, host string) (volumes []v1.Volume) {
	t.Helper()
	looptest.Decode(t, testdata(t, "volumes.yaml"), &volumes)
	volumes[2].HostPath.Path = host
	return volumes
}

func TestAllKinds(t *testing.T) {
	m := newHarness(t)
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
		looptest.Equal(t, name, volume, mounts[name])
		looptest.Equal(t, name, want.content, visible(t, path), cmpopts.EquateEmpty())
		if _, mounted := m.mounts[path]; mounted != want.memory {
			t.Errorf("%s: want one in memory %v, mounted are %v", name, want.memory, m.mounts)
		}
	}
	if want := (source.Volume{HostPath: host}); mounts["host"] != want {
		t.Errorf("host path %+v, want %+v", mounts["host"], want)
	}
	looptest.Equal(t, "options", "size=1048576", m.mounts[mounts["memory"].HostPath])
	looptest.Write(t, filepath.Join(mounts["disk"].HostPath, "written by a container"), "x")
	looptest.Write(t, filepath.Join(host, "of the host"), "x")
	looptest.Must(t, m.Unmount(pod))
	volumes, _ := filepath.Glob(filepath.Join(m.podDir(pod.UID), "volumes", "*", "*"))
	if len(m.mounts)+len(volumes)+len(m.Mounts(pod.UID)) > 0 {
		t.Errorf("left are mounts %v, folders %v, volumes %v", m.mounts, volumes, m.Mounts(pod.UID))
	}
	if !exists(filepath.Join(host, "of the host")) {
		t.Error("the host's file was removed with the pod")
	}
}

// TestAdoptsWhatAnEarlierRunMade runs a second manager over the folders of the first.
func TestAdoptsWhatAnEarlierRunMade(t *testing.T) {
	first := newHarness(t)
	again := func() *Manager {
		m := New(first.cfg)
		m.mounts = first.mounts
		return m
	}
	second, pod := again(), newPod(allKinds(t, t.TempDir())...)
	first.mount(t, pod)
	for _, name := range []string{"disk", "memory"} { // as a container leaves them
		dir := first.Mounts(pod.UID)[name].HostPath
		looptest.Write(t, filepath.Join(dir, "kept"), "x")
		looptest.Must(t, os.Chmod(dir, 0o700))
	}
	first.mounts[first.Mounts(pod.UID)["memory"].HostPath] += ",of the first run" // which mounting again would replace
	before := maps.Clone(first.mounts)
	second.mount(t, pod)
	for _, name := range []string{"disk", "memory"} {
		dir := second.Mounts(pod.UID)[name].HostPath
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || !exists(filepath.Join(dir, "kept")) {
			t.Errorf("%s has changed: %v, %v", name, info, err)
		}
	}
	looptest.Equal(t, "mounts", before, first.mounts)
	if err := again().Unmount(pod); err != nil || len(first.mounts) > 0 { // a third, which did not mount them
		t.Errorf("%v, still mounted: %v", err, first.mounts)
	}
}

func TestMissingObjectIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHarness(t)
		pod := newPod(configMapVolume("config", "late"), volume("disk", v1.VolumeSource{}))
		start := time.Now()
		err := m.WaitForAttachAndMount(t.Context(), pod)
		const want = "unmounted volumes=[config], unattached volumes=[], failed to process volumes=[]: " +
			"context deadline exceeded"
		if looptest.Text(err) != want || time.Since(start) != mountTimeout {
			t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
		}
		if n := len(m.events.Events); n != 8 { // at once and after .5, 1.5, 3.5, ... 63.5 s
			t.Errorf("%d events, want 8", n)
		}
		// The next call goes on with the pauses of the last one.
		if err := m.WaitForAttachAndMount(t.Context(), pod); err == nil || len(m.events.Events) != 9 { // after 127.5 s
			t.Errorf("%v and %d events, want 9", err, len(m.events.Events))
		}
		const event = `Warning FailedMount MountVolume.SetUp failed for volume "config" : configmap "late" not found`
		if got := <-m.events.Events; got != event {
			t.Errorf("event %q, want %q", got, event)
		}
		looptest.Write(t, filepath.Join(m.objects, "more.yaml"), "kind: ConfigMap\nmetadata: {name: late}\n")
		err = m.WaitForAttachAndMount(t.Context(), pod)
		if at := time.Since(start).Round(time.Second); err != nil || at != 250*time.Second {
			t.Errorf("after %v: %v, want success at the try after 249.5 s", at, err)
		}
	})
}

func TestMountInsideKeepsAVolume(t *testing.T) {
	m := newHarness(t)
	pod := newPod(volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	m.mount(t, pod)
	inside := filepath.Join(m.Mounts(pod.UID)["disk"].HostPath, "inside")
	looptest.Write(t, filepath.Join(inside, "precious"), "x")
	m.mounts[inside] = ""
	if err, want := m.Unmount(pod), "something is mounted at "+inside; looptest.Text(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := m.CleanupOrphans(nil); err == nil {
		t.Error("a pod with a mount inside of its volume was taken for clean")
	}
	if !exists(filepath.Join(inside, "precious")) {
		t.Fatal("a folder behind a mount was emptied")
	}
	delete(m.mounts, inside)
	if err := m.CleanupOrphans(nil); err != nil || exists(m.podDir(pod.UID)) {
		t.Errorf("when it is unmounted: %v, want it gone", err)
	}
}

func TestCleanupOrphans(t *testing.T) {
	m := newHarness(t)
	pods := map[types.UID]*v1.Pod{}
	for _, uid := range []types.UID{"kept", "in-use", "ended", "earlier-run"} {
		pods[uid] = newPod(allKinds(t, t.TempDir())...)
		pods[uid].UID = uid
		m.mount(t, pods[uid])
		looptest.Write(t, filepath.Join(m.podDir(uid), "etc-hosts"), "x")
	}
	looptest.Write(t, filepath.Join(m.podDir("of-a-real-kubelet"), "volumes", "file"), "x")
	looptest.Write(t, filepath.Join(m.podDir("of-another-node"), ownerMark), "node-2")
	looptest.Must(t, m.Unmount(pods["ended"]))
	delete(m.pods, "earlier-run")
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
	looptest.Equal(t, "files left", want, left)
}

func TestContentErrors(t *testing.T) {
	m := newHarness(t)
	for from, want := range map[string]string{ // "" is an empty volume
		"configMap: {name: settings, items: [{key: none, path: x}]}":                 "non-existent config key: none",
		"configMap: {name: settings, items: [{key: none, path: x}], optional: true}": "",
		"secret: {name: settings}":                                                    `secret "settings" not found`,
		"secret: {name: settings, optional: true}":                                    "",
		"serviceAccountToken: {path: x}":                                              "needs an API server",
		"clusterTrustBundle: {path: x}":                                               "none of",
		"downwardAPI: {items: [{path: x, fieldRef: {fieldPath: status.podIP}}]}":      "fieldPath: status.podIP",
		"downwardAPI: {items: [{path: x, resourceFieldRef: {resource: limits.cpu}}]}": "unsupported fieldPath",
	} {
		var v v1.Volume
		looptest.Decode(t, "{name: v, projected: {sources: [{"+from+"}]}}", &v)
		got, err := m.content(t.Context(), newPod(v), &v)
		if (err == nil) != (want == "") || !strings.Contains(looptest.Text(err), want) || len(got) > 0 {
			t.Errorf("%s: %v, %v, want %q", from, got, err, want)
		}
	}
}
