//go:build e2e

package nodebox

import (
	"strings"
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
	sh := func(command string) string {
		out, err := b.Exec(t.Context(), "sh", "-c", command)
		must(t, err)
		return strings.TrimSpace(string(out))
	}
	if got := sh("systemctl is-active containerd systemd-journald dbus"); got != "active\nactive\nactive" {
		t.Errorf("units: %q, want all active", got)
	}
	if got := sh("cat /proc/1/comm"); got != "systemd" {
		t.Errorf("process 1 in the box is %q", got)
	}
	pods, err := RunPods(t.Context(), b.Endpoint(), Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	must(t, err)
	if len(pods) != 1 {
		t.Errorf("%d pods were made", len(pods))
	}
	sh("systemctl kill --signal=STOP containerd")
}
