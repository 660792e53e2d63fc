package connection

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBelow follows the links below a host's root as the host does.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	socket := filepath.Join(root, "run/containerd/containerd.sock")
	must(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	write(t, socket, "")
	must(t, os.Mkdir(filepath.Join(root, "var"), 0o755))
	must(t, os.Symlink("/run", filepath.Join(root, "var/run")))
	ours := filepath.Join(t.TempDir(), "runtime.sock")
	write(t, ours, "")
	for _, tt := range []struct{ name, root, url, want string }{
		{"no other root", "/", "unix:///run/x.sock", "unix:///run/x.sock"},
		{"as it is", root, "unix:///run/containerd/containerd.sock", "unix://" + socket},
		{"through an absolute link", root, "unix:///var/run/containerd/containerd.sock", "unix://" + socket},
		{"up and out", root, "unix:///../../run/containerd/containerd.sock", "unix://" + socket},
		{"only without the root", root, "unix://" + ours, "unix://" + ours},
		{"nowhere", root, "unix:///run/none.sock", "unix://" + root + "/run/none.sock"},
		{"no socket", root, "tcp://127.0.0.1:1", "tcp://127.0.0.1:1"},
	} {
		if got := below(tt.root, tt.url); got != tt.want {
			t.Errorf("%s: below(%q, %q) = %q, want %q", tt.name, tt.root, tt.url, got, tt.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(text), 0o644))
}
