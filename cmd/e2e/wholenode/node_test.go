//go:build e2e

package wholenode

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// TestEndToEndNode uses one node: each test leaves it as it was, but for the agent's, which comes last.
func TestEndToEndNode(t *testing.T) {
	n := e2etest.BootNode(t)
	t.Run("damaged configuration", func(t *testing.T) { badConfig(t, n) })
	t.Run("documents", func(t *testing.T) { documents(t, n) })
	t.Run("slices", func(t *testing.T) { slicesGo(t, n) })
	t.Run("bundle", func(t *testing.T) { packNode(t, n) })
	t.Run("agent", func(t *testing.T) { runAgent(t, n) })
}

// badConfig has a containerd that ends with an error in its configuration, which systemd starts again and again.
func badConfig(t *testing.T, n e2etest.Node) {
	n.Sh(t, "cp /etc/containerd/config.toml /root/good.toml; echo 'foo = [' >> /etc/containerd/config.toml")
	n.Sh(t, "systemctl restart containerd || true")
	out := n.Sh(t, "kdiag pleg; echo exit code $?")
	n.Sh(t, "cp /root/good.toml /etc/containerd/config.toml; systemctl reset-failed containerd; systemctl start containerd")
	for _, want := range []string{"RuntimeDown", "failed to load TOML", "unterminated array", "exit code 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
