package syncloop

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// inMemory is the endpoint of embedded runtimes: their dialers ignore it.
const inMemory = "unix:///run/fake.sock"

// serveFake serves an embedded runtime until the test ends.
func serveFake(t *testing.T, s fake.Scenario) (crictl.Dialer, *remote.Service) {
	t.Helper()
	dialer := faketest.Serve(t, s)
	service, err := remote.Dial(inMemory, remote.Options{Log: logr.Discard(), Dialer: dialer})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = service.Close() })
	return dialer, service
}

// tree makes a new folder with folders, and files where a name has content after an equals sign.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path, content, isFile := strings.Cut(filepath.Join(root, name), "=")
		if isFile {
			testkit.Write(t, path, content)
			continue
		}
		testkit.Must(t, os.MkdirAll(path, 0o755))
	}
	return root
}

// leaves lists the files, and the folders that are empty.
func leaves(t *testing.T, root string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if below, _ := os.ReadDir(path); len(below) == 0 && path != root {
			out = append(out, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	testkit.Must(t, err)
	return out
}

// TestCleanupTriesAgain removes a sandbox that the runtime refuses to remove while it is at work on it, and gives up on
// one that it always refuses to remove.
func TestCleanupTriesAgain(t *testing.T) {
	for _, tt := range []struct {
		refused int
		within  time.Duration
		removed int
	}{
		{5, 10 * time.Minute, 1},
		{1 << 20, time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			dialer, service := serveFake(t, fake.Scenario{Name: "busy", Faults: []fake.Fault{
				{RPC: "RemovePodSandbox", Error: "Unknown: container is already in removing state", First: tt.refused},
			}})
			sandbox := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "1"},
				Labels:   map[string]string{container.OwnerLabel: "node"},
			}
			_, err := service.RunPodSandbox(t.Context(), sandbox, "")
			testkit.Must(t, err)
			done, err := Cleanup(t.Context(), CleanupConfig{
				Endpoint: inMemory, NodeName: "node", RootDir: t.TempDir(), LogDir: t.TempDir(), Timeout: tt.within,
				Dialer: dialer,
			})
			if done.Sandboxes != tt.removed || (err == nil) != (tt.removed == 1) {
				t.Errorf("refused %d times: removed %d, %v", tt.refused, done.Sandboxes, err)
			}
		})
	}
}

// TestCleanupFolders removes this node's folders, and no others' files in them.
func TestCleanupFolders(t *testing.T) {
	dialer, _ := serveFake(t, fake.Scenario{Name: "idle"})
	const ours, others = "log/" + logMark + "=lab", "log/" + logMark + "=other"
	for name, tt := range map[string]struct{ files, removed, left []string }{
		"nothing there":        {},
		"all ours":             {[]string{"root/pods", "log/pods/x=", ours}, []string{"log", "root"}, nil},
		"others' files beside": {[]string{"root/notes=x", "log/pods", ours}, []string{"log"}, []string{"root/notes"}},
		"logs of another node": {
			[]string{"root/pods", "log/pods/x=", others}, []string{"root"}, []string{"log/" + logMark, "log/pods/x"},
		},
		"a kubelet's logs": {[]string{"log/pods/x=", "log/syslog="}, nil, []string{"log/pods/x", "log/syslog"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, tt.files...)
			var removed []string
			for _, f := range tt.removed {
				removed = append(removed, filepath.Join(dir, f))
			}
			done, err := Cleanup(t.Context(), CleanupConfig{
				Endpoint: inMemory, NodeName: "lab", RootDir: dir + "/root", LogDir: dir + "/log", Dialer: dialer,
			})
			want, got := [][]string{removed, tt.left}, [][]string{done.Folders, leaves(t, dir)}
			testkit.Must(t, err)
			testkit.Equal(t, "removed and left", want, got)
		})
	}
}

// A file stands for processes: like them it keeps its folder from being removed.
func TestForgetCgroups(t *testing.T) {
	for root, tt := range map[string]struct{ cgroups, left, stopped []string }{
		"/lab": { // version 1
			[]string{"memory/system", "memory/lab/kubepods/besteffort/podu1/c1", "cpu/lab/kubepods/podu2"},
			[]string{"cpu", "memory/system"},
			[]string{"lab-kubepods.slice", "lab.slice"},
		},
		"/b": { // with something else in the slice
			[]string{"b.slice/b-kubepods.slice", "b.slice/other.scope"},
			[]string{"b.slice/other.scope"},
			[]string{"b-kubepods.slice"},
		},
		"/": {[]string{"kubepods/besteffort/podother"}, []string{"kubepods/besteffort/podother"}, nil}, // a kubelet's
		"lab": {
			[]string{"lab/kubepods/podu1/proc=", "lab/kubepods/podu2"},
			[]string{"lab/kubepods/podu1/proc"},
			[]string{"lab-kubepods.slice", "lab.slice"},
		},
	} {
		t.Run(root, func(t *testing.T) {
			mount, rootDir := tree(t, tt.cgroups...), tree(t, cgroupRootFile+"="+root)
			var stopped []string
			stop := func(slice string) error { stopped = append(stopped, slice); return nil }
			testkit.Must(t, forgetCgroups(mount, rootDir, stop))
			want, got := [][]string{tt.left, tt.stopped}, append(leaves(t, mount), leaves(t, rootDir)...)
			testkit.Equal(t, "left and stopped", want, [][]string{got, stopped})
		})
	}
}
