//go:build e2e

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// TestEndToEndNodeControls makes what is odd and no fault of the node, one after the other on one runtime. kdiag must
// exit with 0 each time and name nothing critical. What other tests break on this machine meanwhile is no excuse.
func TestEndToEndNodeControls(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true})
	p := program{path: e2etest.Program(t), endpoint: c.Endpoint()}
	group := "/" + filepath.Base(c.Dir()) + "/kubepods"
	run := func(pods nodebox.Pods) ([]nodebox.Pod, error) {
		pods.CgroupParent = group
		return nodebox.RunPods(t.Context(), c.Endpoint(), pods)
	}
	pods, err := run(nodebox.Pods{Count: 3, Containers: 1, State: crictl.ContainerRunning})
	e2etest.Must(t, err)
	victim := pods[1]
	id := victim.Containers[0].ID
	cgroup := fmt.Sprintf("%s/pod%s/%s", group, victim.Config.Metadata.Uid, id)
	ctr := func(args ...string) {
		t.Helper()
		args = append([]string{"--address", c.Socket(), "--namespace", "k8s.io"}, args...)
		if out, err := exec.CommandContext(t.Context(), "ctr", args...).CombinedOutput(); err != nil {
			t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	execs := 0
	inside := func(command string) {
		t.Helper()
		execs++
		ctr("tasks", "exec", "--detach", "--exec-id", fmt.Sprint("control", execs), id,
			"/bin/busybox", "sh", "-c", command)
	}
	limit := func(controller, file, value string) func() {
		t.Helper()
		name := filepath.Join(cgroupDir(t, controller, cgroup), file)
		before, err := os.ReadFile(name)
		e2etest.Must(t, err)
		e2etest.Must(t, os.WriteFile(name, []byte(value), 0))
		return func() { e2etest.Must(t, os.WriteFile(name, before, 0)) }
	}
	// meanwhile does something with pods until the test has looked.
	meanwhile := func(do func(ctx context.Context) error) func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- do(ctx) }()
		time.Sleep(300 * time.Millisecond) // until it is under way
		return func() { cancel(); <-done }
	}
	none := func() {}

	for _, tt := range []struct {
		name string
		make func() (undo func())
	}{
		{"a healthy node", func() func() { return none }},
		{"a rollout of 50 pods", func() func() {
			return meanwhile(func(context.Context) error {
				_, err := run(nodebox.Pods{Count: 50, Containers: 1, State: crictl.ContainerRunning, Prefix: "rollout"})
				return err
			})
		}},
		{"50 pods that terminate", func() func() {
			cri, err := remote.Dial(c.Endpoint(), remote.Options{Timeout: time.Minute})
			e2etest.Must(t, err)
			return meanwhile(func(ctx context.Context) error {
				defer cri.Close()
				return stopAll(ctx, cri, "rollout")
			})
		}},
		{"a container that ctr paused", func() func() {
			ctr("tasks", "pause", id)
			return func() { ctr("tasks", "resume", id) }
		}},
		{"batch load on all CPUs", func() func() {
			for range 4 {
				inside("timeout 12 busybox sh -c 'while :; do :; done'")
			}
			return none
		}},
		{"batch load of the host", func() func() {
			return many(t, 4, "nice", "-n", "5", "busybox", "sh", "-c", "while :; do :; done")
		}},
		{"40 open execs", func() func() {
			for range 40 {
				inside("sleep 20")
			}
			return none
		}},
		{"zombies in a container", func() func() {
			for range 5 {
				inside("true & exec sleep 60")
			}
			return none
		}},
		{"a stopped process in a container", func() func() { inside("kill -STOP $$"); return none }},
		{"300 exited containers", func() func() {
			_, err := run(nodebox.Pods{
				Count: 100, Containers: 3, State: crictl.ContainerExited, NeverRan: true, Prefix: "job",
			})
			e2etest.Must(t, err)
			return none
		}},
		{"containers that were created and never started", func() func() {
			_, err := run(nodebox.Pods{Count: 3, Containers: 1, State: crictl.ContainerCreated, Prefix: "created"})
			e2etest.Must(t, err)
			return none
		}},
		{"sandboxes without containers", func() func() {
			_, err := run(nodebox.Pods{Count: 3, State: crictl.ContainerRunning, Prefix: "empty"})
			e2etest.Must(t, err)
			return none
		}},
		{"a kubelet in a container", func() func() {
			inside("cp /bin/busybox /tmp/sleep; cd /tmp; ln -s sleep kubelet; exec -a kubelet /tmp/sleep 60")
			return none
		}},
		{"a container over its CPU quota", func() func() {
			undo := limit("cpu", "cpu.cfs_quota_us", "2000")
			inside("timeout 8 busybox sh -c 'while :; do :; done'")
			time.Sleep(2 * time.Second) // of being throttled
			return undo
		}},
		{"a container at its limit of processes", func() func() {
			inside("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 15 & done; wait")
			return limit("pids", "pids.max", "14")
		}},
		{"a container that the kernel kills for memory again and again", func() func() {
			undo := limit("memory", "memory.limit_in_bytes", "32M") // of which runc itself needs a half
			for range 3 {
				inside("tail /dev/zero")
			}
			time.Sleep(time.Second) // until the kernel has killed
			return undo
		}},
		{"a full volume in memory", func() func() {
			dir := t.TempDir()
			mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=64k", "none", dir)
			e2etest.Must(t, mount.Run())
			_ = os.WriteFile(filepath.Join(dir, "full"), make([]byte, 128<<10), 0o600) // it has half of the room
			return func() { e2etest.Must(t, exec.Command("umount", dir).Run()) }
		}},
		{"much writing to the disk", func() func() {
			file := filepath.Join(t.TempDir(), "copy")
			return meanwhile(func(ctx context.Context) error {
				return exec.CommandContext(ctx, "/bin/busybox", "dd", "if=/dev/zero", "of="+file, "bs=1M", "count=300",
					"conv=fsync").Run()
			})
		}},
		{"a runc of somebody else", func() func() { return elsewhere(t, "runc", false) }},
		{"a stopped shim of somebody else", func() func() { return elsewhere(t, "containerd-shim-runc-v2", true) }},
		{"a stopped containerd of somebody else", func() func() { return elsewhere(t, "containerd", true) }},
		{"another containerd, frozen, with a stopped shim", func() func() {
			other := e2etest.StartContainerd(t, nodebox.Options{})
			theirs := e2etest.RunPods(t, other, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
			e2etest.Must(t, other.FreezeShim(t.Context(), theirs[0].ID))
			e2etest.Must(t, other.Pause(t.Context()))
			return func() {
				e2etest.Must(t, other.Resume())
				e2etest.Must(t, other.ThawShim(theirs[0].ID))
			}
		}},
		{"a runtime that was just restarted", func() func() { e2etest.Must(t, c.Restart(t.Context())); return none }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer tt.make()()
			for command, o := range map[string]e2etest.Outcome{"node": p.node(t), "pleg": p.pleg(t)} {
				r := o.Report(t)
				for _, c := range r.Causes {
					if c.Severity == checks.Critical {
						t.Errorf("%s: %s is critical (%.2f): %s\n%s", command, c.Code, c.Confidence, c.Summary,
							strings.Join(c.Evidence.For, "\n"))
					}
				}
				if o.Code != 0 {
					t.Errorf("%s exits with %d, %s: %v %v", command, o.Code, r.Status, e2etest.Codes(r), r.Problems)
				}
			}
		})
	}
}

// elsewhere runs a process with the name of a part of a runtime, which belongs to none.
func elsewhere(t *testing.T, name string, stopped bool) (undo func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	b, err := os.ReadFile("/bin/busybox")
	e2etest.Must(t, err)
	e2etest.Must(t, os.WriteFile(program, b, 0o755))
	cmd := exec.Command(program, "600")
	cmd.Args[0] = "sleep" // the applet
	e2etest.Must(t, cmd.Start())
	if stopped {
		e2etest.Must(t, cmd.Process.Signal(syscall.SIGSTOP))
	}
	return func() {
		e2etest.Must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

// stopAll stops and removes all pods with a name that begins so.
func stopAll(ctx context.Context, cri *remote.Service, prefix string) error {
	all, err := cri.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, s := range all {
		if !strings.HasPrefix(s.GetMetadata().GetName(), prefix) {
			continue
		}
		g.Go(func() error {
			if err := cri.StopPodSandbox(gctx, s.GetId()); err != nil {
				return err
			}
			return cri.RemovePodSandbox(gctx, s.GetId())
		})
	}
	return g.Wait()
}
