//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// TestEndToEndHangs has pods that do not start or stop, while PLEG is well. Nothing that is young counts as stuck, so
// this waits.
func TestEndToEndHangs(t *testing.T) {
	t.Parallel() // it waits for minutes
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	r.CheckFile(t, "hangs.yaml", map[string]e2etest.Maker{
		"pods come and go": r.busy, "runc kill hangs": r.killHangs, "a container without a process": r.gone,
		"runc update hangs": r.updateHangs, "runc create hangs": r.createHangs,
		"a CNI plugin of any name hangs": r.cniHangs,
	}, "${CONTAINER}", r.Pods[1].Containers[0].ID)
}

// busy makes pods for as long as the test runs.
func (r rig) busy(t *testing.T, _ *place) {
	e2etest.Behind(t, func(ctx context.Context) {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = r.Run(ctx, nodebox.Pods{
				Prefix: fmt.Sprint("busy", i), Count: 2, Containers: 1, Attempts: 2, State: crictl.ContainerExited,
			})
		}
	})
}

func (r rig) killHangs(t *testing.T, _ *place) {
	r.Hang(t, "kill")
	id := r.Pods[0].Containers[0].ID
	e2etest.Behind(t, func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "ctr", "-a", r.Socket(), "-n", "k8s.io", "tasks", "kill", id).Run()
	})
	await(t, 1, facts.LastingWork, r.Folder, " kill ", id)
}

// gone kills a container's process while a tracer holds it: a zombie whose end its shim is not told.
func (r rig) gone(t *testing.T, _ *place) {
	await(t, 1, facts.ShimSettled, r.Pods[1].ID)
	out, err := exec.Command("pgrep", "-x", "-P", r.SecondShim(t), "sleep").Output()
	e2etest.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	e2etest.Must(t, err)
	runtime.LockOSThread()
	t.Cleanup(func() {
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &status, 0, nil)
		runtime.UnlockOSThread()
	})
	e2etest.Must(t, unix.PtraceSeize(pid))
	e2etest.Must(t, unix.Kill(pid, unix.SIGKILL))
	e2etest.Eventually(t, "it is a zombie", func() bool { return e2etest.ThreadHas(pid, "stat", ") Z ") })
}

// updateHangs holds the lists, also where those of the runtime do not wait for a stopped shim, as in containerd 2.
func (r rig) updateHangs(t *testing.T, _ *place) {
	pod := r.start(t, nodebox.Pods{Prefix: "update"})
	r.Hang(t, "update")
	end, err := r.Update(t.Context(), pod.Containers[0].ID)
	e2etest.Must(t, err)
	t.Cleanup(end)
	await(t, 1, facts.StuckWork, r.Folder, " update ", pod.Containers[0].ID)
}

// start makes one running pod.
func (r rig) start(t *testing.T, pods nodebox.Pods) nodebox.Pod {
	t.Helper()
	pods.Count, pods.Containers, pods.State = 1, 1, crictl.ContainerRunning
	made, err := r.Run(t.Context(), pods)
	e2etest.Must(t, err)
	return made[0]
}

func (r rig) createHangs(t *testing.T, _ *place) {
	r.Hang(t, "create")
	r.RunBehind(t, nodebox.Pods{Prefix: "slow"})
	await(t, 1, facts.StuckWork, r.Folder, " create ")
}

// cniHangs has a plugin hang of which the configuration alone has the name, while a pod starts and another one stops.
func (r rig) cniHangs(t *testing.T, _ *place) {
	bin, conf := r.Dir()+"/cni/bin", r.Dir()+"/cni/net.d/10-stub.conflist"
	before := e2etest.Read(t, conf)
	e2etest.Must(t, os.Link(filepath.Join(bin, "bridge"), filepath.Join(bin, "zzz")))
	write := func(text string) {
		e2etest.Must(t, os.WriteFile(conf, []byte(text), 0o644))
		e2etest.Must(t, r.Restart(context.Background())) // which reads it
	}
	write(`{"cniVersion":"0.4.0","name":"n","plugins":[{"type":"zzz"}]}`)
	t.Cleanup(func() { write(before) })
	gone := r.start(t, nodebox.Pods{Prefix: "gone", PodNetwork: true})
	e2etest.Must(t, r.HangCNI())
	r.RunBehind(t, nodebox.Pods{Prefix: "net", PodNetwork: true})
	e2etest.Behind(t, func(ctx context.Context) {
		cri, err := remote.Dial(r.Endpoint(), remote.Options{Timeout: time.Hour})
		if err == nil {
			defer cri.Close()
			_ = cri.StopPodSandbox(ctx, gone.ID)
		}
	})
	t.Cleanup(func() { e2etest.Must(t, r.ReleaseCNI()) })
	await(t, 3, facts.StuckWork, bin) // two for the pod that starts
}
