package syncloop

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// TestCleanupTriesAgain removes a sandbox that the runtime refuses to remove while it is at work on it, and gives up on
// one that it always refuses to remove.
func TestCleanupTriesAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		refused int
		within  time.Duration
		removed int
	}{
		"soon done":  {5, 10 * time.Minute, 1},
		"never done": {1 << 20, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, service := serveFake(t, fake.Scenario{Name: "busy", Faults: []fake.Fault{
				{RPC: "RemovePodSandbox", Error: "Unknown: container is already in removing state", First: tt.refused},
			}})
			sandbox := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "1"}, Labels: map[string]string{container.OwnerLabel: "node"},
			}
			if _, err := service.RunPodSandbox(t.Context(), sandbox, ""); err != nil {
				t.Fatal(err)
			}
			done, err := Cleanup(t.Context(), CleanupConfig{
				Endpoint: endpoint, NodeName: "node", RootDir: t.TempDir(), LogDir: t.TempDir(), Timeout: tt.within,
			})
			if done.Sandboxes != tt.removed || (err == nil) != (tt.removed == 1) {
				t.Errorf("removed %d, %v", done.Sandboxes, err)
			}
		})
	}
}

// TestCleanupFolders removes this node's folders, and no others' files in them.
func TestCleanupFolders(t *testing.T) {
	endpoint, _ := serveFake(t, fake.Scenario{Name: "idle"})
	for name, tt := range map[string]struct {
		files []string // ending in a slash: folders
		want  []string // removed
		left  []string
	}{
		"nothing there":        {},
		"all ours":             {files: []string{"root/pods/", "log/pods/x", "log/" + logMark + "=lab"}, want: []string{"log", "root"}},
		"others' files beside": {files: []string{"root/notes=x", "log/pods/", "log/" + logMark + "=lab"}, want: []string{"log"}, left: []string{"root/notes"}},
		"logs of another node": {files: []string{"root/pods/", "log/pods/x", "log/" + logMark + "=other"}, want: []string{"root"}, left: []string{"log/pods/x"}},
		"a kubelet's logs":     {files: []string{"log/pods/x", "log/syslog"}, left: []string{"log/pods/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.files {
				file, content, _ := strings.Cut(f, "=")
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(file, "/") {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			for _, f := range tt.want {
				want = append(want, filepath.Join(dir, f))
			}
			done, err := Cleanup(t.Context(), CleanupConfig{
				Endpoint: endpoint, NodeName: "lab", RootDir: filepath.Join(dir, "root"), LogDir: filepath.Join(dir, "log"),
			})
			if diff := cmp.Diff(want, done.Folders); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
			for _, f := range tt.left {
				if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestClaimLogs(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "of-a-kubelet/pods/default_web_1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := claimLogs(filepath.Join(dir, "of-a-kubelet"), "lab"); !errors.Is(err, ErrForeignLogs) {
		t.Errorf("claimed a kubelet's: %v", err)
	}
	for range 2 {
		if err := claimLogs(filepath.Join(dir, "new"), "lab"); err != nil {
			t.Error(err)
		}
	}
	if err := claimLogs(filepath.Join(dir, "new"), "other"); err == nil {
		t.Error("another node claimed it as well")
	}
}

// serveFake serves an embedded runtime until the test ends.
func serveFake(t *testing.T, s fake.Scenario) (endpoint string, service *remote.Service) {
	t.Helper()
	server, err := fake.New(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cri.sock")
	stop, err := fake.Listen(t.Context(), server, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	service, err = remote.Dial("unix://"+path, remote.Options{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Close() })
	return "unix://" + path, service
}

func TestLargestImages(t *testing.T) {
	all := []*runtimeapi.Image{
		{RepoTags: []string{"small:1"}, Size: 1},
		{RepoTags: []string{"large:1", "large:2", "large:3"}, RepoDigests: []string{"large@a", "large@b", "large@c"}, Size: 3},
		{RepoTags: []string{"middle:1"}, Size: 2},
	}
	large := v1.ContainerImage{Names: []string{"large@a", "large@b", "large@c", "large:1", "large:2"}, SizeBytes: 3}
	middle := v1.ContainerImage{Names: []string{"middle:1"}, SizeBytes: 2}
	small := v1.ContainerImage{Names: []string{"small:1"}, SizeBytes: 1}
	for most, want := range map[int][]v1.ContainerImage{-1: {large, middle, small}, 0: nil, 2: {large, middle}, 50: {large, middle, small}} {
		if diff := cmp.Diff(want, largestImages(all, most)); diff != "" {
			t.Errorf("at most %d (-want +got):\n%s", most, diff)
		}
	}
}

// TestImagesInUse wants the image of a container and that of the sandboxes, which none of the node's containers uses,
// to be kept.
func TestImagesInUse(t *testing.T) {
	_, service := serveFake(t, fake.Scenario{Name: "images", Pods: []fake.PodGroup{{
		Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app", Image: "docker.io/library/app:1"}},
	}}})
	sandbox, err := service.SandboxImage(t.Context())
	if err != nil || sandbox == "" {
		t.Fatalf("sandboxes are made of %q, %v", sandbox, err)
	}
	used, err := (&SyncLoop{service: service}).imagesInUse(t.Context())
	if err != nil || !used[sandbox] || !used["docker.io/library/app:1"] || used[""] {
		t.Errorf("in use: %v, %v; want %s and the container's", used, err, sandbox)
	}
}

// folders makes folders, files where a name ends in a dot, below a new folder.
func folders(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, filepath.Dir(name))
		if !strings.HasSuffix(name, ".") {
			path = filepath.Join(root, name)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if path != filepath.Join(root, name) {
			if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// leaves lists the folders and files that hold nothing.
func leaves(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if below, _ := os.ReadDir(path); len(below) == 0 && name != "." {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A file stands for processes: like them it keeps its folder from being removed.
func TestForgetCgroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		runs []string // folders
		root string
		left []string
	}{
		{name: "version 1", root: "/lab", runs: []string{"memory/system", "memory/lab/kubepods/besteffort/podu1/c1", "cpu/lab/kubepods/podu2"}, left: []string{"cpu", "memory/system"}},
		{name: "slices", root: "/k-diag", runs: []string{"k_diag.slice/k_diag-kubepods.slice/k_diag-kubepods-podu_1.slice"}},
		{name: "the top is another's", root: "/", runs: []string{"kubepods/besteffort/podother"}, left: []string{"kubepods/besteffort/podother"}},
		{name: "processes", root: "lab", runs: []string{"lab/kubepods/podu1/proc.", "lab/kubepods/podu2"}, left: []string{"lab/kubepods/podu1/proc."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mount, rootDir := folders(t, tt.runs...), t.TempDir()
			if err := os.WriteFile(filepath.Join(rootDir, cgroupRootFile), []byte(tt.root), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := forgetCgroups(mount, rootDir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.left, leaves(t, mount)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if left := leaves(t, rootDir); len(left) > 0 {
				t.Errorf("the file is left: %v", left)
			}
		})
	}
}

func TestCgroupParent(t *testing.T) {
	for _, tt := range []struct {
		root    string
		systemd bool
		class   v1.PodQOSClass
		want    string
	}{
		{"", false, v1.PodQOSBestEffort, "/kubepods/besteffort/poda-b"},
		{"/kdiag", false, v1.PodQOSGuaranteed, "/kdiag/kubepods/poda-b"},
		{"/", true, v1.PodQOSBurstable, "kubepods-burstable-poda_b.slice"},
		{"/k-diag.slice", true, v1.PodQOSGuaranteed, "k_diag-kubepods-poda_b.slice"},
	} {
		if got := cgroupParent(tt.root, tt.systemd, tt.class, "a-b"); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
