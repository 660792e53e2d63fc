//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

const systemdCgroups = `
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
`

// TestNodeLeavesNoSlices runs pods with the systemd driver in a whole node. The slice of one that is removed is
// unloaded, and those of all others by --cleanup.
func TestEndToEndLeavesNoSlices(t *testing.T) {
	t.Parallel()
	box := e2etest.NewBox(t)
	config := filepath.Join(box.Root(), "etc/containerd/config.toml")
	before, err := os.ReadFile(config)
	e2etest.Must(t, err)
	e2etest.Must(t, os.WriteFile(config, append(before, systemdCgroups...), 0o644))
	for _, name := range []string{"one", "two"} {
		manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {hostNetwork: true, "+
			"terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, imagePullPolicy: Never}]}\n",
			name, nodebox.ImagePause)
		e2etest.Must(t, os.MkdirAll(filepath.Join(box.Root(), "pods"), 0o755))
		e2etest.Must(t, os.WriteFile(filepath.Join(box.Root(), "pods", name+".yaml"), []byte(manifest), 0o644))
	}
	e2etest.Must(t, box.Boot(t.Context()))
	in := func(args ...string) string {
		t.Helper()
		out, err := box.Exec(t.Context(), args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	// slices returns how many slices of pods are loaded, which a folder of cgroups alone does not show.
	slices := func(pattern string) int {
		t.Helper()
		return strings.Count(in("systemctl", "list-units", "--all", "--no-legend", "--plain", pattern), "\n")
	}
	await := func(what, pattern string, want int) {
		t.Helper()
		got := -1
		deadline := time.Now().Add(2 * time.Minute)
		for ; time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			if got = slices(pattern); got == want {
				return
			}
		}
		t.Fatalf("%s: %d units like %s, want %d\n%s", what, got, pattern, want, in("journalctl", "-n", "50"))
	}
	const pods, all = "kdiag_syncloop-kubepods-besteffort-pod*.slice", "kdiag_syncloop*.slice"
	in("systemd-run", "--unit", "loop", "kdiag", "syncloop", "--manifests", "/pods", "--cgroup-driver", "systemd",
		"--node-name", "box")
	await("both pods run", pods, 2)
	in("sh", "-c", "until [ $(ctr -n k8s.io tasks ls -q | wc -l) = 4 ]; do sleep 0.1; done")
	in("rm", "/pods/one.yaml")
	await("one pod is removed", pods, 1)
	in("systemctl", "stop", "loop")
	if got := slices(all); got != 4 {
		t.Errorf("%d slices while a pod runs, want 4", got)
	}
	in("kdiag", "syncloop", "--cleanup", "--node-name", "box")
	in("systemctl", "daemon-reload") // which makes the cgroups of each unit again
	await("after the cleanup", all, 0)
	if left := in("sh", "-c", "find /sys/fs/cgroup -name 'kdiag_syncloop*'"); left != "" {
		t.Errorf("cgroups are left:\n%s", left)
	}
}
