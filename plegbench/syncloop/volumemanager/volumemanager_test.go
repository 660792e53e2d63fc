package volumemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func newManager(t *testing.T) (*Manager, *record.FakeRecorder) {
	t.Helper()
	dir, recorder := t.TempDir(), record.NewFakeRecorder(1000)
	put(t, filepath.Join(dir, "objects", "all.yaml"), testdata(t, "objects.yaml"))
	m := New(Config{
		NodeName: "node-1", RootDir: filepath.Join(dir, "root"), Recorder: recorder, Log: logr.Discard(),
		Objects: NewFileObjects(filepath.Join(dir, "objects")),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	t.Cleanup(func() {
		for _, mount := range slices.Backward(m.mounted(t)) {
			if err := unix.Unmount(mount, 0); err != nil {
				t.Error(err)
			}
		}
	})
	return m, recorder
}

// mounted is what is mounted below the manager's folders.
func (m *Manager) mounted(t *testing.T) []string {
	t.Helper()
	mounts, err := mountsBelow(m.cfg.RootDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return mounts
}

// mount makes the volumes of a pod.
func (m *Manager) mount(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		nodebox.Need(t, "mounting needs root")
	}
}

func newPod(volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "uid-1", Labels: map[string]string{"app": "web"},
		},
		Spec: v1.PodSpec{Volumes: volumes},
	}
}

func volume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func configMapVolume(name, object string) v1.Volume {
	from := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}
	return volume(name, v1.VolumeSource{ConfigMap: from})
}

// decode reads YAML.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// testdata is the text of a file.
func testdata(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func allKinds(t *testing.T, host string) (volumes []v1.Volume) {
	t.Helper()
	decode(t, testdata(t, "volumes.yaml"), &volumes)
	volumes[2].HostPath.Path = host
	return volumes
}

func TestAllKindsOnARealDisk(t *testing.T) {
	needRoot(t)
	m, _ := newManager(t)
	host := filepath.Join(t.TempDir(), "made")
	pod := newPod(allKinds(t, host)...)
	m.mount(t, pod)
	mounts, mounted := m.Mounts(pod.UID), m.mounted(t)
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
			"labels": `-rw-r--r-- app="web"`, "uid": "-r-------- uid-1",
		}},
		"both": {"projected", true, map[string]string{
			"mode": "-rw------- fast", "pass": "-rw------- word", "labels": `-rw------- app="web"`,
		}},
	} {
		path := filepath.Join(m.podDir(pod.UID), "volumes", "kubernetes.io~"+want.folder, name)
		volume := source.Volume{HostPath: path, Managed: true, ReadOnly: want.content != nil}
		if diff := cmp.Diff(volume, mounts[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want.content, visible(t, path), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if slices.Contains(mounted, path) != want.memory {
			t.Errorf("%s: want one in memory %v, mounted are %v", name, want.memory, mounted)
		}
	}
	if want := (source.Volume{HostPath: host}); mounts["host"] != want {
		t.Errorf("host path %+v, want %+v", mounts["host"], want)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mounts["memory"].HostPath, &st); err != nil || int64(st.Blocks)*st.Bsize != 1<<20 {
		t.Errorf("%d blocks of %d bytes, %v, want 1 MiB", st.Blocks, st.Bsize, err)
	}
	put(t, filepath.Join(mounts["disk"].HostPath, "written by a container"), "x")
	put(t, filepath.Join(host, "of the host"), "x")
	if err := m.Unmount(pod); err != nil {
		t.Fatal(err)
	}
	volumes, _ := filepath.Glob(filepath.Join(m.podDir(pod.UID), "volumes", "*", "*"))
	if left := m.mounted(t); len(left)+len(volumes)+len(m.Mounts(pod.UID)) > 0 {
		t.Errorf("left are mounts %v, folders %v, volumes %v", left, volumes, m.Mounts(pod.UID))
	}
	if !exists(filepath.Join(host, "of the host")) {
		t.Error("the host's file was removed with the pod")
	}
}

// TestAdoptsWhatAnEarlierRunMade runs a second manager over the folders of the first.
func TestAdoptsWhatAnEarlierRunMade(t *testing.T) {
	needRoot(t)
	first, _ := newManager(t)
	second, pod := New(first.cfg), newPod(allKinds(t, t.TempDir())...)
	first.mount(t, pod)
	before := first.mounted(t)
	for _, name := range []string{"disk", "memory"} { // as a container leaves them
		dir := first.Mounts(pod.UID)[name].HostPath
		put(t, filepath.Join(dir, "kept"), "x")
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	second.mount(t, pod)
	for _, name := range []string{"disk", "memory"} {
		dir := second.Mounts(pod.UID)[name].HostPath
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || !exists(filepath.Join(dir, "kept")) {
			t.Errorf("%s has changed: %v, %v", name, info, err)
		}
	}
	if diff := cmp.Diff(before, second.mounted(t)); diff != "" {
		t.Errorf("mounted twice (-before +after):\n%s", diff)
	}
	if err := New(first.cfg).Unmount(pod); err != nil { // a third, which did not mount them
		t.Error(err)
	}
	if left := first.mounted(t); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

func TestMissingObjectIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, recorder := newManager(t)
		pod := newPod(configMapVolume("config", "late"), volume("disk", v1.VolumeSource{}))
		start := time.Now()
		err := m.WaitForAttachAndMount(t.Context(), pod)
		const want = "unmounted volumes=[config], unattached volumes=[], failed to process volumes=[]: " +
			"context deadline exceeded"
		if text(err) != want || time.Since(start) != mountTimeout {
			t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
		}
		if n := len(recorder.Events); n != 8 { // at once and after .5, 1.5, 3.5, ... 63.5 s
			t.Errorf("%d events, want 8", n)
		}
		// The next call goes on with the pauses of the last one.
		if err := m.WaitForAttachAndMount(t.Context(), pod); err == nil || len(recorder.Events) != 9 { // after 127.5 s
			t.Errorf("%v and %d events, want 9", err, len(recorder.Events))
		}
		const event = `Warning FailedMount MountVolume.SetUp failed for volume "config" : configmap "late" not found`
		if got := <-recorder.Events; got != event {
			t.Errorf("event %q, want %q", got, event)
		}
		objects := filepath.Join(m.cfg.RootDir, "..", "objects")
		put(t, filepath.Join(objects, "more.yaml"), "kind: ConfigMap\nmetadata: {name: late}\n")
		err = m.WaitForAttachAndMount(t.Context(), pod)
		if at := time.Since(start).Round(time.Second); err != nil || at != 250*time.Second {
			t.Errorf("after %v: %v, want success at the try after 249.5 s", at, err)
		}
	})
}

func TestUnsupportedEndsAtOnce(t *testing.T) {
	m, _ := newManager(t)
	for name, source := range map[string]v1.VolumeSource{
		"claim": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}},
		"huge":  {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}},
	} {
		err := m.WaitForAttachAndMount(t.Context(), newPod(configMapVolume("config", "settings"), volume(name, source)))
		want := fmt.Sprintf("unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%[1]s]: "+
			"failed to get Plugin from volumeSpec for volume %[1]q err=no volume plugin matched", name)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	pod := newPod()
	pod.UID = "../../out"
	if err := m.WaitForAttachAndMount(t.Context(), pod); err == nil {
		t.Error("a uid that leads out of the root directory was taken")
	}
}

// TestEachSyncRefreshes changes an object and a label behind the volumes of a pod that runs.
func TestEachSyncRefreshes(t *testing.T) {
	needRoot(t)
	m, recorder := newManager(t)
	kinds := allKinds(t, t.TempDir())
	pod := newPod(kinds[3], kinds[5])
	// sync syncs the pod and returns where its config map is.
	sync := func(mode, labels string) (folder string) {
		t.Helper()
		m.mount(t, pod)
		config := m.Mounts(pod.UID)["config"].HostPath
		got := []string{visible(t, config)["mode"], visible(t, m.Mounts(pod.UID)["down"].HostPath)["labels"]}
		if diff := cmp.Diff([]string{"-rw-r--r-- " + mode, "-rw-r--r-- " + labels}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		folder, _ = os.Readlink(filepath.Join(config, dataLink))
		return folder
	}
	before := sync("fast", `app="web"`)
	if after := sync("fast", `app="web"`); before != after || before == "" {
		t.Errorf("unchanged content was written again: from %q to %q", before, after)
	}
	objects := filepath.Join(m.cfg.RootDir, "..", "objects", "all.yaml")
	put(t, objects, strings.ReplaceAll(testdata(t, "objects.yaml"), "fast", "slower"))
	pod.Labels["app"] = "shop"
	sync("slower", `app="shop"`)
	put(t, objects, "")
	sync("slower", `app="shop"`) // it stays, with an event
	if got := <-recorder.Events; !strings.Contains(got, `FailedMount MountVolume.SetUp failed for volume "config"`) {
		t.Errorf("event %q", got)
	}
	if err := m.Unmount(pod); err != nil {
		t.Fatal(err)
	}
}

func TestMountInsideKeepsAVolume(t *testing.T) {
	needRoot(t)
	m, _ := newManager(t)
	pod := newPod(volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	m.mount(t, pod)
	precious := t.TempDir()
	put(t, filepath.Join(precious, "file"), "x")
	inside := filepath.Join(m.Mounts(pod.UID)["disk"].HostPath, "inside")
	put(t, filepath.Join(inside, "hidden"), "x")
	if err := unix.Mount(precious, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err, want := m.Unmount(pod), "something is mounted at "+inside; text(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := m.CleanupOrphans(nil); err == nil {
		t.Error("a pod with a mount inside of its volume was taken for clean")
	}
	if !exists(filepath.Join(precious, "file")) {
		t.Fatal("a folder behind a mount was emptied")
	}
	if err := unix.Unmount(inside, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.CleanupOrphans(nil); err != nil || exists(m.podDir(pod.UID)) {
		t.Errorf("when it is unmounted: %v, want it gone", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCleanupOrphans(t *testing.T) {
	needRoot(t)
	m, _ := newManager(t)
	pods := map[types.UID]*v1.Pod{}
	for _, uid := range []types.UID{"kept", "in-use", "ended", "earlier-run"} {
		pods[uid] = newPod(allKinds(t, t.TempDir())...)
		pods[uid].UID = uid
		m.mount(t, pods[uid])
		put(t, filepath.Join(m.podDir(uid), "etc-hosts"), "x")
	}
	put(t, filepath.Join(m.podDir("of-a-real-kubelet"), "volumes", "file"), "x")
	put(t, filepath.Join(m.podDir("of-another-node"), ownerMark), "node-2")
	if err := m.Unmount(pods["ended"]); err != nil {
		t.Fatal(err)
	}
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
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "x")
	for _, tt := range []struct {
		kind v1.HostPathType
		path string
		ok   bool
		made fs.FileMode // of what is there then
	}{
		{"", "missing", true, 0},
		{v1.HostPathDirectory, "missing", false, 0},
		{v1.HostPathFile, "file", true, 0},
		{v1.HostPathFileOrCreate, "file", true, 0},
		{v1.HostPathDirectoryOrCreate, "new/dir", true, fs.ModeDir},
		{v1.HostPathFileOrCreate, "new/file", true, 0},
	} {
		path := filepath.Join(dir, tt.path)
		if err := checkHostPath(&v1.HostPathVolumeSource{Path: path, Type: &tt.kind}); (err == nil) != tt.ok {
			t.Errorf("%s %s: %v, want ok %v", tt.kind, tt.path, err, tt.ok)
		}
		if info, err := os.Stat(path); tt.path != "missing" && (err != nil || info.Mode().Type() != tt.made) {
			t.Errorf("%s %s: %v, %v", tt.kind, tt.path, info, err)
		}
	}
}

func TestContentErrors(t *testing.T) {
	m, _ := newManager(t)
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
		decode(t, "{name: v, projected: {sources: [{"+from+"}]}}", &v)
		got, err := m.content(t.Context(), newPod(v), &v)
		if (err == nil) != (want == "") || !strings.Contains(text(err), want) || len(got) > 0 {
			t.Errorf("%s: %v, %v, want %q", from, got, err, want)
		}
	}
}
