//go:build e2e

package wholenode

import (
	"fmt"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// slicesGo runs pods with the systemd driver. The slice of one that is removed is unloaded, and those of all others by
// --cleanup.
func slicesGo(t *testing.T, n e2etest.Node) {
	for _, name := range []string{"one", "two"} {
		n.Write(t, "pods/"+name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"+
			"spec: {hostNetwork: true, terminationGracePeriodSeconds: 1, "+
			"containers: [{name: c, image: %q, imagePullPolicy: Never}]}\n", name, nodebox.ImagePause))
	}
	// That a slice is loaded is not seen in a folder of cgroups.
	const loaded = "systemctl list-units --all --no-legend --plain '%s' | wc -l"
	count := func(pattern string) string { return n.Sh(t, fmt.Sprintf(loaded, pattern)) }
	await := func(pattern string, want int) {
		t.Helper()
		n.Await(t, fmt.Sprintf("test $("+loaded+") = %d", pattern, want))
	}
	const pods, all = "kdiag_syncloop-kubepods-besteffort-pod*.slice", "kdiag_syncloop*.slice"
	n.Sh(t, "systemd-run --unit loop kdiag syncloop --manifests /pods --cgroup-driver systemd --node-name box")
	await(pods, 2)
	n.Await(t, "test $(ctr -n k8s.io tasks ls -q | wc -l) = 4")
	n.Sh(t, "rm /pods/one.yaml")
	await(pods, 1)
	n.Sh(t, "systemctl stop loop")
	if got := count(all); got != "4" {
		t.Errorf("%s slices while a pod runs, want 4", got)
	}
	n.Sh(t, "kdiag syncloop --cleanup --node-name box")
	n.Sh(t, "systemctl daemon-reload") // which makes the cgroups of each unit again
	await(all, 0)
	if left := n.Sh(t, "find /sys/fs/cgroup -name 'kdiag_syncloop*'"); left != "" {
		t.Errorf("cgroups are left:\n%s", left)
	}
}
