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
	t.Run("frozen runtime", func(t *testing.T) { frozen(t, n) })
	t.Run("documents", func(t *testing.T) { documents(t, n) })
	t.Run("slices", func(t *testing.T) { slicesGo(t, n) })
	t.Run("bundle", func(t *testing.T) { packNode(t, n) })
	t.Run("agent", func(t *testing.T) { runAgent(t, n) })
}

// frozen asks as a person would: without flags, about a daemon that is stopped.
func frozen(t *testing.T, n e2etest.Node) {
	n.Sh(t, "kdiag pleg -o brief")
	n.Sh(t, "systemctl kill -s STOP containerd")
	out := n.Sh(t, "kdiag pleg --rpc-timeout 1s; echo exit code $?")
	n.Sh(t, "systemctl kill -s CONT containerd")
	for _, want := range []string{"RuntimeHung", "is stopped", "kill -CONT", "exit code 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
