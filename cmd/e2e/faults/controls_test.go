//go:build e2e

package faults

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndControls makes what is odd and no fault of the node. kdiag must exit with 0 each time and name nothing
// critical. The load that is no fault either is in package host.
func TestEndToEndControls(t *testing.T) {
	t.Parallel()
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	inside := func(times int, command string) e2etest.Maker {
		return func(t *testing.T, _ *place) string {
			for range times {
				r.Exec(t, command)
			}
			return ""
		}
	}
	pods := func(p nodebox.Pods) e2etest.Maker {
		return func(t *testing.T, _ *place) string {
			_, err := r.Run(t.Context(), p)
			e2etest.Must(t, err)
			return ""
		}
	}
	r.CheckControls(t, []fault{
		{Name: "a container that ctr paused", Make: func(t *testing.T, _ *place) string {
			id := r.Pods[1].Containers[0].ID
			r.Ctr(t, "tasks", "pause", id)
			t.Cleanup(func() { r.Ctr(t, "tasks", "resume", id) })
			return ""
		}},
		{Name: "40 open execs", Make: inside(40, "sleep 20")},
		{Name: "zombies in a container", Make: inside(5, "true & exec sleep 60")},
		{Name: "a stopped process in a container", Make: inside(1, "kill -STOP $$")},
		{Name: "a kubelet in a container", Make: inside(1,
			"cp /bin/busybox /tmp/sleep; cd /tmp; ln -s sleep kubelet; exec -a kubelet /tmp/sleep 60")},
		{Name: "a container at its limit of processes", Make: func(t *testing.T, at *place) string {
			r.Exec(t, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 15 & done; wait")
			return r.limit("pids", "pids.max", "14")(t, at)
		}},
		{Name: "300 exited containers", Make: pods(nodebox.Pods{
			Count: 100, Containers: 3, State: crictl.ContainerExited, NeverRan: true, Prefix: "job",
		})},
		{Name: "containers that never started", Make: pods(nodebox.Pods{Count: 3, Containers: 1, Prefix: "created"})},
		{Name: "sandboxes without containers", Make: pods(nodebox.Pods{Count: 3, Prefix: "empty"})},
		{Name: "a full volume in memory", Make: func(t *testing.T, _ *place) string {
			dir := t.TempDir()
			e2etest.Sh(t, "mount -t tmpfs -o size=64k none "+dir)
			t.Cleanup(func() { e2etest.Sh(t, "umount "+dir) })
			_ = os.WriteFile(filepath.Join(dir, "full"), make([]byte, 128<<10), 0o600) // it has half of the room
			return ""
		}},
		{Name: "a runc of somebody else", Make: elsewhere("runc", false)},
		{Name: "a stopped shim of somebody else", Make: elsewhere("containerd-shim-runc-v2", true)},
		{Name: "a stopped containerd of somebody else", Make: elsewhere("containerd", true)},
		{Name: "a runtime that was just restarted", Make: func(t *testing.T, _ *place) string {
			e2etest.Must(t, r.Restart(context.Background()))
			return ""
		}},
	})
}

// elsewhere runs a process with the name of a part of a runtime, which belongs to none.
func elsewhere(name string, stopped bool) e2etest.Maker {
	return func(t *testing.T, _ *place) string {
		program := filepath.Join(t.TempDir(), name)
		e2etest.Must(t, exec.Command("cp", "/bin/busybox", program).Run())
		cmd := exec.Command(program, "600")
		cmd.Args[0] = "sleep" // the applet
		e2etest.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if stopped {
			e2etest.Must(t, cmd.Process.Signal(syscall.SIGSTOP))
		}
		return ""
	}
}
