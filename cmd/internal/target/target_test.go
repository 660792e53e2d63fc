package target

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBelow wants the links of a host's root to lead where they lead on the host.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"run/containerd", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(root, "run/containerd/containerd.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	ours := filepath.Join(t.TempDir(), "runtime.sock")
	if err := os.WriteFile(ours, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
