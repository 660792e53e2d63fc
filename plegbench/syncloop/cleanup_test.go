package syncloop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
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

// TestCleanupSaysFolders wants the folders that have gone, and no others.
func TestCleanupSaysFolders(t *testing.T) {
	endpoint, _ := serveFake(t, fake.Scenario{Name: "idle"})
	for name, tt := range map[string]struct {
		files []string // ending in a slash: folders
		log   string
		want  []string
	}{
		"nothing there":        {nil, "root/log", nil},
		"all ours":             {[]string{"root/pods/", "root/log/pods/", "root/log/" + logMark + "=lab"}, "root/log", []string{"root"}},
		"others' files beside": {[]string{"root/notes=x", "root/log/pods/", "root/log/" + logMark + "=lab"}, "root/log", []string{"root/log"}},
		"logs elsewhere":       {[]string{"root/pods/", "log/syslog=x", "log/pods/", "log/" + logMark + "=lab"}, "log", []string{"root", "log/pods"}},
		"logs of another node": {[]string{"root/pods/", "log/pods/", "log/" + logMark + "=other"}, "log", []string{"root"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.files {
				file, content, isFile := strings.Cut(f, "=")
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if !isFile {
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
				Endpoint: endpoint, NodeName: "lab", RootDir: filepath.Join(dir, "root"), LogDir: filepath.Join(dir, tt.log),
			})
			if diff := cmp.Diff(want, done.Folders); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
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
