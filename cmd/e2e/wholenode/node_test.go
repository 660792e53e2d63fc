//go:build e2e

package wholenode

import (
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// TestEndToEndNode uses one node: each test leaves it as it was, but for the agent's, which comes last.
func TestEndToEndNode(t *testing.T) {
	n := e2etest.BootNode(t)
	t.Run("documents", func(t *testing.T) { documents(t, n) })
	t.Run("slices", func(t *testing.T) { slicesGo(t, n) })
	t.Run("bundle", func(t *testing.T) { packNode(t, n) })
	t.Run("agent", func(t *testing.T) { runAgent(t, n) })
}
