package connection

import (
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestBelow follows the links below a host's root as the host does.
func TestBelow(t *testing.T) {
	host, here := testkit.NewTree(t), testkit.NewTree(t)
	host.Write("run/containerd/containerd.sock", "")
	host.Link("var/run", "/run")
	here.Write("runtime.sock", "")
	root, socket, ours := host.Root, host.Path("run/containerd/containerd.sock"), here.Path("runtime.sock")
	for _, tt := range []struct{ name, root, url, want string }{
		{"no other root", "/", "unix:///run/x.sock", "unix:///run/x.sock"},
		{"as it is", root, "unix:///run/containerd/containerd.sock", "unix://" + socket},
		{"through an absolute link", root, "unix:///var/run/containerd/containerd.sock", "unix://" + socket},
		{"up and out", root, "unix:///../../run/containerd/containerd.sock", "unix://" + socket},
		{"only without the root", root, "unix://" + ours, "unix://" + ours},
		{"nowhere", root, "unix:///run/none.sock", "unix://" + root + "/run/none.sock"},
		{"no socket", root, "tcp://127.0.0.1:1", "tcp://127.0.0.1:1"},
	} {
		testkit.Equal(t, tt.name, tt.want, below(tt.root, tt.url))
	}
}
