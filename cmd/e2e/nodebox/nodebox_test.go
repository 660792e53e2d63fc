//go:build e2e

package nodebox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEndToEndOfBox(t *testing.T) {
	const dir = "/tmp/kdiag-box-1"
	tests := []struct {
		args string
		want bool
	}{
		{"containerd --config /tmp/kdiag-box-1/config.toml", true},
		{"/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id x -address /tmp/kdiag-box-1/c.sock", true},
		{"runc --root /tmp/kdiag-box-1/runc/k8s.io kill x 9", true},
		{"/bin/busybox sh /tmp/kdiag-box-1/cni/bin/bridge", true},
		{"less /tmp/kdiag-box-1/containerd.log", false},
		{"kdiag pleg --runtime-endpoint /tmp/kdiag-box-1/c.sock", false},
		{"containerd --config /tmp/kdiag-box-12/config.toml", false},
	}
	for _, tt := range tests {
		if got := ofBox(strings.Fields(tt.args), dir); got != tt.want {
			t.Errorf("ofBox(%q) = %v, want %v", tt.args, got, tt.want)
		}
	}
}

func TestEndToEndSweepTrustsOnlyOwnFolders(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"box-locked", "box-dead", "box-new", "other"} {
		must(t, os.Mkdir(filepath.Join(parent, name), 0o755))
		if name != "box-new" {
			must(t, os.WriteFile(filepath.Join(parent, name, "owner"), nil, 0o600))
		}
	}
	must(t, os.Symlink(filepath.Join(parent, "other"), filepath.Join(parent, "box-link")))
	lock, err := lockOwner(filepath.Join(parent, "box-locked", "owner"))
	must(t, err)
	defer lock.Close()
	var swept []string
	sweep(parent, "box-", func(dir string) error {
		swept = append(swept, filepath.Base(dir))
		return nil
	})
	if diff := cmp.Diff([]string{"box-dead"}, swept); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
}

// must ends a test or a benchmark that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
