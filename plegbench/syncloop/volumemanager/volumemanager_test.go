package volumemanager

import (
	"context"
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
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func newManager(t *testing.T, objects string) (*Manager, *record.FakeRecorder) {
	t.Helper()
	dir, recorder := t.TempDir(), record.NewFakeRecorder(1000)
	put(t, filepath.Join(dir, "objects", "all.yaml"), objects)
	m := New(Config{
		NodeName: "node-1", RootDir: filepath.Join(dir, "root"), Objects: NewFileObjects(filepath.Join(dir, "objects")), Recorder: recorder,
		Log: logr.Discard(), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	t.Cleanup(func() {
		mounts, err := mountsBelow(dir)
		if err != nil {
			t.Error(err)
		}
		for i := range mounts {
			if err := unix.Unmount(mounts[len(mounts)-1-i], 0); err != nil {
				t.Error(err)
			}
		}
	})
	return m, recorder
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

// newPod makes a pod whose container mounts each of the volumes at /v/<name>.
func newPod(volumes ...v1.Volume) *v1.Pod {
	c := v1.Container{Name: "c"}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/v/" + v.Name})
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-1", Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{Volumes: volumes, Containers: []v1.Container{c}},
	}
}

func volume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func configMapVolume(name, object string) v1.Volume {
	return volume(name, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}})
}

const shopObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast, size: small}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {pass: word}
`

func allKinds(host string) []v1.Volume {
	fields := []v1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "uid", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}, Mode: new(int32(0o400))},
	}
	reference := v1.LocalObjectReference{Name: "settings"}
	return []v1.Volume{
		volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi"))}}),
		volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host, Type: new(v1.HostPathDirectoryOrCreate)}}),
		configMapVolume("config", "settings"),
		volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "key", Items: []v1.KeyToPath{{Key: "pass", Path: "sub/pass", Mode: new(int32(0o440))}},
		}}),
		volume("down", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields}}),
		volume("both", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: new(int32(0o600)), Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: reference, Items: []v1.KeyToPath{{Key: "mode", Path: "mode"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "key"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: fields[:1]}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: new(true)}},
		}}}),
	}
}

func TestAllKindsOnARealDisk(t *testing.T) {
	needRoot(t)
	m, _ := newManager(t, shopObjects)
	host := filepath.Join(t.TempDir(), "made")
	pod := newPod(allKinds(host)...)
	if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	mounts := m.Mounts(pod.UID)
	at := func(folder, name string) string {
		return filepath.Join(filepath.Join(m.podDir(pod.UID), "volumes"), "kubernetes.io~"+folder, name)
	}
	want := map[string]source.Volume{
		"disk":   {HostPath: at("empty-dir", "disk"), Managed: true},
		"memory": {HostPath: at("empty-dir", "memory"), Managed: true},
		"host":   {HostPath: host},
		"config": {HostPath: at("configmap", "config"), Managed: true, ReadOnly: true},
		"secret": {HostPath: at("secret", "secret"), Managed: true, ReadOnly: true},
		"down":   {HostPath: at("downward-api", "down"), Managed: true, ReadOnly: true},
		"both":   {HostPath: at("projected", "both"), Managed: true, ReadOnly: true},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	contents := map[string]map[string]string{
		"config": {"mode": "-rw-r--r-- fast", "size": "-rw-r--r-- small"},
		"secret": {"sub/pass": "-r--r----- word"},
		"down":   {"labels": `-rw-r--r-- app="web"`, "uid": "-r-------- uid-1"},
		"both":   {"mode": "-rw------- fast", "pass": "-rw------- word", "labels": `-rw------- app="web"`},
	}
	for name, want := range contents {
		if diff := cmp.Diff(want, visible(t, mounts[name].HostPath)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	mounted, err := mountsBelow(m.cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, memory := range map[string]bool{"disk": false, "memory": true, "config": false, "secret": true, "down": true, "both": true} {
		var st unix.Statfs_t
		if err := unix.Statfs(mounts[name].HostPath, &st); err != nil {
			t.Fatal(err)
		}
		if (st.Type == unix.TMPFS_MAGIC && slices.Contains(mounted, mounts[name].HostPath)) != memory {
			t.Errorf("%s: file system %x, want one in memory %v", name, st.Type, memory)
		}
		if size := int64(st.Blocks) * int64(st.Bsize); name == "memory" && size != 1<<20 {
			t.Errorf("%s: %d bytes, want 1 MiB", name, size)
		}
	}
	put(t, filepath.Join(mounts["disk"].HostPath, "written by a container"), "x")
	put(t, filepath.Join(host, "of the host"), "x")
	if err := m.Unmount(pod); err != nil {
		t.Fatal(err)
	}
	if left := m.Mounts(pod.UID); len(left) > 0 {
		t.Errorf("mounts after the end: %v", left)
	}
	if left, _ := mountsBelow(m.cfg.RootDir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(m.podDir(pod.UID), "volumes", "*", "*")); len(left) > 0 {
		t.Errorf("volumes after the end: %v", left)
	}
	if !exists(filepath.Join(host, "of the host")) {
		t.Error("the host's file went with the pod")
	}
}

// TestAdoptsWhatAnEarlierRunMade has a second manager over the folders of the first.
func TestAdoptsWhatAnEarlierRunMade(t *testing.T) {
	needRoot(t)
	first, _ := newManager(t, shopObjects)
	second, pod := New(first.cfg), newPod(allKinds(t.TempDir())...)
	var mounts [2][]string
	for i, m := range []*Manager{first, second} {
		err := m.WaitForAttachAndMount(t.Context(), pod)
		if mounts[i], _ = mountsBelow(m.cfg.RootDir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"disk", "memory"} {
			dir := m.Mounts(pod.UID)[name].HostPath
			if info, err := os.Stat(dir); err != nil || i == 1 && (info.Mode().Perm() != 0o700 || !exists(filepath.Join(dir, "kept"))) {
				t.Errorf("%s: %v, %v, want it as the container left it", name, info, err)
			}
			put(t, filepath.Join(dir, "kept"), "x")
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(mounts[0], mounts[1]); diff != "" {
		t.Errorf("mounted twice (-before +after):\n%s", diff)
	}
	if err := New(first.cfg).Unmount(pod); err != nil { // a third, that knows of nothing
		t.Error(err)
	}
	if left, _ := mountsBelow(first.cfg.RootDir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

func TestMissingObjectIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, recorder := newManager(t, "")
		pod := newPod(configMapVolume("config", "settings"), volume("disk", v1.VolumeSource{}))
		start := time.Now()
		err := m.WaitForAttachAndMount(t.Context(), pod)
		want := "unmounted volumes=[config], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
		if err == nil || err.Error() != want || time.Since(start) != mountTimeout {
			t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
		}
		if n := len(recorder.Events); n != 8 { // at once and after .5, 1.5, 3.5, ... 63.5 s
			t.Errorf("%d events, want 8", n)
		}
		wantEvent := `Warning FailedMount MountVolume.SetUp failed for volume "config" : configmap "settings" not found`
		if got := <-recorder.Events; got != wantEvent {
			t.Errorf("event %q, want %q", got, wantEvent)
		}
		go func() {
			time.Sleep(3 * time.Second)
			put(t, filepath.Join(m.cfg.RootDir, "..", "objects", "more.yaml"), shopObjects)
		}()
		start = time.Now()
		if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil || time.Since(start) > 4*time.Second {
			t.Errorf("after %v: %v, want success at the next try", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = m.WaitForAttachAndMount(ctx, newPod(configMapVolume("other", "none")))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestUnsupportedEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newManager(t, shopObjects)
		for name, source := range map[string]v1.VolumeSource{
			"claim": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}},
			"huge":  {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}},
			"share": {NFS: &v1.NFSVolumeSource{}},
		} {
			start := time.Now()
			err := m.WaitForAttachAndMount(t.Context(), newPod(configMapVolume("config", "settings"), volume(name, source)))
			want := fmt.Sprintf("unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%[1]s]: "+
				"failed to get Plugin from volumeSpec for volume %[1]q err=no volume plugin matched", name)
			if err == nil || err.Error() != want || time.Since(start) != 0 {
				t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
			}
		}
		pod := newPod()
		pod.UID = "../../out"
		if err := m.WaitForAttachAndMount(t.Context(), pod); err == nil {
			t.Error("a uid that leads out of the root directory was taken")
		}
	})
}

// TestEachSyncRefreshes changes an object and a label behind the volumes of a pod that runs.
func TestEachSyncRefreshes(t *testing.T) {
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		m, recorder := newManager(t, shopObjects)
		kinds := allKinds(t.TempDir())
		pod := newPod(kinds[3], kinds[5])
		sync := func() {
			t.Helper()
			time.Sleep(time.Minute)
			if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		see := func(name, path, want string) {
			t.Helper()
			if got := visible(t, m.Mounts(pod.UID)[name].HostPath)[path]; got != "-rw-r--r-- "+want {
				t.Errorf("%s holds %q, want %q", path, got, want)
			}
		}
		sync()
		see("config", "mode", "fast")
		link := filepath.Join(m.Mounts(pod.UID)["config"].HostPath, dataLink)
		before, _ := os.Readlink(link)
		sync()
		if after, _ := os.Readlink(link); before != after || before == "" {
			t.Errorf("what did not change was written again: from %q to %q", before, after)
		}
		objects := filepath.Join(m.cfg.RootDir, "..", "objects", "all.yaml")
		put(t, objects, strings.ReplaceAll(shopObjects, "fast", "slower"))
		pod.Labels["app"] = "shop"
		sync()
		see("config", "mode", "slower")
		see("down", "labels", `app="shop"`)
		put(t, objects, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")
		sync()
		see("config", "mode", "slower") // it stays, with an event
		if got := <-recorder.Events; !strings.Contains(got, `FailedMount MountVolume.SetUp failed for volume "config"`) {
			t.Errorf("event %q", got)
		}
		if err := m.Unmount(pod); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMountInsideKeepsAVolume(t *testing.T) {
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		m, _ := newManager(t, shopObjects)
		pod := newPod(volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), configMapVolume("config", "settings"))
		if err := m.WaitForAttachAndMount(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		precious := t.TempDir()
		put(t, filepath.Join(precious, "file"), "x")
		inside := filepath.Join(m.Mounts(pod.UID)["disk"].HostPath, "inside")
		put(t, filepath.Join(inside, "hidden"), "x")
		if err := unix.Mount(precious, inside, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		err := m.Unmount(pod)
		if want := "something is mounted at " + inside; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := m.CleanupOrphans(nil); err == nil {
			t.Error("a pod with a foreign mount was taken for clean")
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
	})
}

func TestCleanupOrphans(t *testing.T) {
	needRoot(t)
	m, _ := newManager(t, shopObjects)
	pods := map[types.UID]*v1.Pod{}
	for _, uid := range []types.UID{"kept", "in-use", "ended", "earlier-run"} {
		pods[uid] = newPod(allKinds(t.TempDir())...)
		pods[uid].UID = uid
		if err := m.WaitForAttachAndMount(t.Context(), pods[uid]); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(m.podDir(uid), "etc-hosts"), "x")
	}
	put(t, filepath.Join(m.cfg.RootDir, "pods", "of-a-real-kubelet", "volumes", "file"), "x")
	put(t, filepath.Join(m.cfg.RootDir, "pods", "of-another-node", ownerMark), "node-2")
	if err := m.Unmount(pods["ended"]); err != nil {
		t.Fatal(err)
	}
	delete(m.pods, "earlier-run")
	if err := m.CleanupOrphans(map[types.UID]bool{"kept": true}); err == nil || strings.Contains(err.Error(), "ended") {
		t.Errorf("got %v, want an error of in-use", err)
	}
	for uid, want := range map[types.UID]bool{
		"kept": true, "in-use": true, "ended": false, "earlier-run": false, "of-a-real-kubelet": true, "of-another-node": true,
	} {
		if exists(m.podDir(uid)) != want {
			t.Errorf("%s: there %v, want %v", uid, !want, want)
		}
	}
	for _, file := range []string{
		filepath.Join(m.cfg.RootDir, "pods", "of-a-real-kubelet", "volumes", "file"),
		filepath.Join(m.Mounts("in-use")["config"].HostPath, "mode"),
	} {
		if !exists(file) {
			t.Errorf("%s is gone", file)
		}
	}
	if diff := cmp.Diff([]types.UID{"in-use", "kept"}, m.PodDirs()); diff != "" {
		t.Errorf("folders of ours (-want +got):\n%s", diff)
	}
	for _, uid := range []types.UID{"kept", "in-use"} {
		if err := m.Unmount(pods[uid]); err != nil {
			t.Error(err)
		}
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
	m, _ := newManager(t, shopObjects)
	projected := func(source v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{source}}}
	}
	reference := v1.LocalObjectReference{Name: "settings"}
	items := []v1.KeyToPath{{Key: "none", Path: "x"}}
	tests := []struct {
		source v1.VolumeSource
		want   string // "" is an empty volume
	}{
		{v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: reference, Items: items}}, "references non-existent config key: none"},
		{v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: reference, Items: items, Optional: new(true)}}, ""},
		{v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}, `secret "none" not found`},
		{v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none", Optional: new(true)}}, ""},
		{projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}), "needs an API server"},
		{projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}), "none of"},
		{projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
			{Path: "x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}},
		}}}), "unsupported fieldPath: status.podIP"},
		{projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
			{Path: "x", ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}},
		}}}), "unsupported fieldPath"},
	}
	for _, tt := range tests {
		v := volume("v", tt.source)
		got, err := m.content(t.Context(), newPod(v), &v)
		if tt.want == "" && (err != nil || len(got) > 0) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, %v, want %q", tt.source, got, err, tt.want)
		}
	}
}
