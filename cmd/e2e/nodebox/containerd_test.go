//go:build e2e

package nodebox

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kdiag/kdiag/crictl"
)

// start starts a runtime whose leftovers are looked for at the end.
func start(t *testing.T, opts Options) *Containerd {
	t.Helper()
	c, err := Start(t.Context(), opts)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of containerd ends with:\n%s", tail(c.Log()))
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		checkNothingLeft(t, c.Dir())
	})
	return c
}

// checkNothingLeft looks for what a box may leave.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if pids := processesOf(dir); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	if points, err := mountsBelow(dir); len(points) > 0 || err != nil {
		t.Errorf("mounts are left: %v, %v", points, err)
	}
	if dirs := cgroupDirs(map[string]bool{filepath.Base(dir): true}); len(dirs) > 0 {
		t.Errorf("cgroups are left: %v", dirs)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// processesOf returns the processes with this text in their arguments.
func processesOf(text string) map[int][]string {
	found := processes()
	maps.DeleteFunc(found, func(_ int, args []string) bool { return !strings.Contains(strings.Join(args, " "), text) })
	return found
}

func mustRun(t *testing.T, c *Containerd, p Pods) []Pod {
	t.Helper()
	pods, err := c.RunPods(t.Context(), p)
	must(t, err)
	return pods
}

// TestEndToEndNodeFrozen closes a runtime that is frozen, with a frozen shim and a dead one.
func TestEndToEndNodeFrozen(t *testing.T) {
	c := start(t, Options{})
	pods := mustRun(t, c, Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	must(t, c.FreezeShim(t.Context(), pods[0].ID))
	shim, err := c.Shim(pods[1].ID)
	must(t, err)
	must(t, syscall.Kill(shim, syscall.SIGKILL))
	for _, pod := range pods {
		if _, err := os.Stat(c.shimSocket(pod.ID)); err != nil {
			t.Errorf("the socket of a shim: %v", err)
		}
	}
	must(t, c.Pause(t.Context()))
}

func TestEndToEndNodeSweepsAfterADeadOwner(t *testing.T) {
	parent, err := os.MkdirTemp("", "kdiag-sweep-")
	must(t, err)
	defer os.Remove(parent)
	c, err := Start(t.Context(), Options{Parent: parent})
	must(t, err)
	defer c.Close()
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})

	sweepNow := func() { sweep(parent, folderPrefix, func(dir string) error { return clean(t.Context(), dir) }) }
	sweepNow()
	if !c.Running() {
		t.Fatal("a box was swept away while its owner lived")
	}
	c.lock.Close() // what the kernel does when the owner dies
	sweepNow()
	<-c.done
	checkNothingLeft(t, c.Dir())
}

// TestEndToEndStartFails checks that the error has the reason.
func TestEndToEndStartFails(t *testing.T) {
	for want, opts := range map[string]Options{
		"its CRI plugin did not load":     {RootSize: 4 << 10},
		"containerd ended: exit status 1": {DisabledPlugins: []string{"\a"}},
	} {
		if _, err := Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
