package syncloop

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// TestCleanupTriesAgain removes a sandbox that the runtime refuses to remove while it is at work on it, and gives up on one that it
// always refuses to remove.
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
			server, err := fake.New(fake.Scenario{Name: "busy", Faults: []fake.Fault{
				{RPC: "RemovePodSandbox", Error: "Unknown: container is already in removing state", First: tt.refused},
			}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "cri.sock")
			stop, err := fake.Listen(t.Context(), server, path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			service, err := remote.Dial("unix://"+path, remote.Options{Log: logr.Discard()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = service.Close() })
			sandbox := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "1"}, Labels: map[string]string{container.OwnerLabel: "node"},
			}
			if _, err := service.RunPodSandbox(t.Context(), sandbox, ""); err != nil {
				t.Fatal(err)
			}
			done, err := Cleanup(t.Context(), CleanupConfig{
				Endpoint: "unix://" + path, NodeName: "node", RootDir: t.TempDir(), LogDir: t.TempDir(), Timeout: tt.within,
			})
			if done.Sandboxes != tt.removed || (err == nil) != (tt.removed == 1) {
				t.Errorf("removed %d, %v", done.Sandboxes, err)
			}
		})
	}
}
