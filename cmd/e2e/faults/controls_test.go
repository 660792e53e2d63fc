//go:build e2e

package faults

import (
	"context"
	"fmt"
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
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	inside := func(times int, command string) e2etest.Maker {
		return func(t *testing.T, _ *place) {
			for range times {
				r.Exec(t, command)
			}
		}
	}
	pods := func(p nodebox.Pods) e2etest.Maker {
		return func(t *testing.T, _ *place) {
			_, err := r.Run(t.Context(), p)
			e2etest.Must(t, err)
		}
	}
	task := "ctr -a " + r.Socket() + " -n k8s.io tasks %s " + r.Pods[1].Containers[0].ID
	full := r.Folder + "/full"
	r.CheckControls(t, []fault{
		{Name: "a paused container", Make: e2etest.Shell(fmt.Sprintf(task, "pause"), fmt.Sprintf(task, "resume"))},
		{Name: "40 open execs", Make: inside(40, "sleep 20")},
		{Name: "zombies in a container", Make: inside(5, "true & exec sleep 60")},
		{Name: "a stopped process in a container", Make: inside(1, "kill -STOP $$")},
		{Name: "a kubelet in a container", Make: inside(1,
			"cp /bin/busybox /tmp/sleep; cd /tmp; ln -s sleep kubelet; exec -a kubelet /tmp/sleep 60")},
		{Name: "a container at its limit of processes", Make: func(t *testing.T, at *place) {
			r.Exec(t, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 15 & done; wait")
			limit := "/sys/fs/cgroup/pids" + r.Group + "/pids.max"
			e2etest.Shell("echo 14 >"+limit, "echo max >"+limit)(t, at)
		}},
		{Name: "300 exited containers", Make: pods(nodebox.Pods{
			Count: 100, Containers: 3, State: crictl.ContainerExited, NeverRan: true, Prefix: "job",
		})},
		{Name: "containers that never started", Make: pods(nodebox.Pods{Count: 3, Containers: 1, Prefix: "created"})},
		{Name: "sandboxes without containers", Make: pods(nodebox.Pods{Count: 3, Prefix: "empty"})},
		{Name: "a full volume in memory", Make: e2etest.Shell(
			"mkdir "+full+" && mount -t tmpfs -o size=64k none "+full+" && ! head -c 128k /dev/zero >"+full+"/file",
			"umount "+full)},
		{Name: "a runc of somebody else", Make: elsewhere("runc", false)},
		{Name: "a stopped shim of somebody else", Make: elsewhere("containerd-shim-runc-v2", true)},
		{Name: "a stopped containerd of somebody else", Make: elsewhere("containerd", true)},
		{Name: "a listener that answers after a while", Make: r.watchRoot(answerEnv + "=1000000")},
		{Name: "a runtime that was just restarted", Make: func(t *testing.T, _ *place) {
			e2etest.Must(t, r.Restart(context.Background()))
		}},
	})
}

// elsewhere runs a process with the name of a part of a runtime, which belongs to none.
func elsewhere(name string, stopped bool) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		program := filepath.Join(t.TempDir(), name)
		e2etest.Must(t, exec.Command("cp", "/bin/busybox", program).Run())
		cmd := exec.Command(program, "600")
		cmd.Args[0] = "sleep" // the applet
		e2etest.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if stopped {
			e2etest.Must(t, cmd.Process.Signal(syscall.SIGSTOP))
		}
	}
}
