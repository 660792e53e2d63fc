//go:build e2e

package nodebox

import (
	"testing"

	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndNodeBox boots a node, runs a pod in it, and closes it with its containerd frozen.
func TestEndToEndNodeBox(t *testing.T) {
	var b *Box
	t.Cleanup(func() { // after the node has ended
		if b != nil {
			checkNothingLeft(t, b.dir)
		}
	})
	b = TestBox(t)
	must(t, b.Boot(t.Context()))
	_, err := RunPods(t.Context(), b.Endpoint(), Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	must(t, err)
	_, err = b.Exec(t.Context(), "systemctl", "kill", "--signal=STOP", "containerd")
	must(t, err)
}
