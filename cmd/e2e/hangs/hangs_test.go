//go:build e2e

// Package hangs has the paths of a node hang one after the other, and looks whether each process of kdiag ends.
package hangs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

func TestMain(m *testing.M) { nodebox.Main(m) }

// patience is for a command with --timeout 5s on a busy machine.
const patience = time.Minute

// TestEndToEndEndsOnTime has each path hang that a command may read. The process of the command, and its hold on its
// output, must end while the path still hangs.
func TestEndToEndEndsOnTime(t *testing.T) {
	c := node(t)
	hung, config := t.TempDir(), t.TempDir()
	e2etest.Must(t, os.WriteFile(config+"/crictl.yaml", []byte("runtime-endpoint: "+c.Endpoint()+"\n"), 0o600))
	e2etest.Must(t, os.Symlink(config+"/crictl.yaml", crictl.CrictlConfig))
	commands := []string{
		"pleg ENDPOINT", "node ENDPOINT", "runtime ENDPOINT", "relist ENDPOINT", "exited ENDPOINT",
		"gc-exited --yes ENDPOINT", "stacks ENDPOINT", "canary ENDPOINT", "bundle - ENDPOINT", "pleg", "journal", "history",
		"explain settings",
	}
	t.Run("flags", func(t *testing.T) {
		hang(t, hung)
		all(t, map[string]int{
			"pleg --from HUNG/f": 2, "pleg --simulate HUNG/f": 2, "pleg --runtime-endpoint HUNG/f.sock": 2,
			"node --host-root HUNG": 2, "node --kubelet-token HUNG/f": 2, "stacks --from HUNG/f": 2, "stacks HUNG/f": 2,
			"journal HUNG/f": 2, "journal --root HUNG/f": 2, "journal --file HUNG/*": 2, "journal --directory HUNG/f": 2,
			"journal --html HUNG/f.html": 2, "history --data-dir HUNG/f": 2, "history --root HUNG/f": 2,
			"history --html HUNG/f.html": 2, "fleet --kubeconfig HUNG/f": 2, "relist --against HUNG/f": 2,
			"relist --save HUNG/f": 2, "bundle --list HUNG/f": 2, "bundle HUNG/f ENDPOINT": 2,
			"exited --pods HUNG/f ENDPOINT":           2,
			"gc-exited --yes --audit HUNG/f ENDPOINT": 2,
			// What is not known is kept.
			"gc-exited --manifests HUNG/f ENDPOINT": 0, "gc-exited --kubelet-root HUNG/f ENDPOINT": 0,
		}, "HUNG", hung, "ENDPOINT", "--runtime-endpoint "+c.Endpoint())
	})
	for _, path := range []string{
		c.Dir() + "/cni/net.d", c.Dir() + "/cni/bin", "/var/lib/kubelet", "/var/lib/kubelet/pki", "/etc/kubernetes",
		"/etc/kubernetes/manifests", "/var/log", "/var/log/pods", "/var/log/containers", "/var/lib/kdiag", config,
		c.Dir() + "/root", c.Dir() + "/state",
	} {
		t.Run(strings.ReplaceAll(path, "/", "_"), func(t *testing.T) {
			hang(t, path)
			wants := map[string]int{}
			for _, command := range commands {
				wants[command] = anyCode
			}
			all(t, wants, "ENDPOINT", "--runtime-endpoint "+c.Endpoint())
		})
	}
}

// hang has folders hang until the end of the test, and ensures then that no process of kdiag's is left.
func hang(t *testing.T, paths ...string) {
	t.Helper()
	t.Cleanup(func() {
		e2etest.Eventually(t, "no process of kdiag's is left", func() bool { return len(left()) == 0 })
	})
	for _, path := range paths {
		fuse := nodebox.OpenDeadFuse(t)
		fuse.Mount(t, path)
		t.Cleanup(func() {
			if fuse.Held.Load() == 0 {
				t.Errorf("nothing hung in %s", path)
			}
		})
	}
}

// anyCode is for a command whose verdict depends on the machine.
const anyCode = -1

// all runs commands at the same time, in which words stand for others, and checks that each ends with its exit code.
func all(t *testing.T, wants map[string]int, words ...string) {
	t.Helper()
	var group sync.WaitGroup
	for command, want := range wants {
		group.Go(func() {
			args := strings.Fields(strings.NewReplacer(words...).Replace(command) + " --timeout 5s")
			ended := make(chan e2etest.Outcome, 1)
			go func() { ended <- e2etest.Start(t, nil, args...).Wait() }() // and nobody holds its output
			select {
			case o := <-ended:
				if o.Code < 0 || want != anyCode && o.Code != want || want == 2 && strings.Count(o.Stderr, "\n") > 2 {
					t.Errorf("kdiag %s: exit code %d, want %d", command, o.Code, want)
				}
				t.Logf("kdiag %s: %d: %s", command, o.Code, o.Stderr)
			case <-time.After(patience):
				t.Errorf("kdiag %s has not ended", command)
			}
		})
	}
	group.Wait()
}

// left returns the processes of commands that have not ended.
func left() (pids []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if comm, _ := os.ReadFile(name); strings.HasPrefix(string(comm), "kdiag-") {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// node starts a containerd with a pod, and what looks like a kubelet, with folders of its own.
func node(t *testing.T) *nodebox.Containerd {
	t.Helper()
	for _, dir := range []string{"/etc", "/var/lib", "/var/log"} {
		over := t.TempDir()
		e2etest.Must(t, os.Mkdir(over+"/upper", 0o755))
		e2etest.Must(t, os.Mkdir(over+"/work", 0o755))
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", dir, over, over)
		e2etest.Must(t, unix.Mount("overlay", dir, "overlay", 0, options))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	c := nodebox.Start(t, nodebox.Options{})
	c.RunPods(t, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	e2etest.StartKubelet(t, "", "--config=/var/lib/kubelet/config.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--pod-manifest-path=/etc/kubernetes/manifests")
	return c
}

// TestEndToEndSignals sends signals to kdiag, of which a worker that it has started does the work.
func TestEndToEndSignals(t *testing.T) {
	c := nodebox.Start(t, nodebox.Options{})
	supervisor, group := func(p *os.Process) int { return p.Pid }, func(p *os.Process) int { return -p.Pid }
	worker := func(p *os.Process) int {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Pid))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				return pid
			}
		}
		return 0
	}
	for _, tt := range []struct {
		name string
		to   func(*os.Process) int
		send []unix.Signal
		want string
	}{
		{"an interrupt of the terminal", group, []unix.Signal{unix.SIGINT}, "exit status"},
		{"SIGTERM", supervisor, []unix.Signal{unix.SIGTERM}, "exit status"},
		{"SIGTERM to the worker", worker, []unix.Signal{unix.SIGTERM}, "exit status"},
		{"stopped and continued", group, []unix.Signal{unix.SIGTSTP, unix.SIGCONT, unix.SIGINT}, "exit status"},
		{"SIGQUIT, which prints where each goroutine is", supervisor, []unix.Signal{unix.SIGQUIT}, "exit status 2"},
		{"SIGKILL", supervisor, []unix.Signal{unix.SIGKILL}, "signal: killed"},
		{"SIGKILL to the worker", worker, []unix.Signal{unix.SIGKILL}, "signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, e2etest.Program(t), "pleg", "--watch", "--runtime-endpoint", c.Endpoint())
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			e2etest.Must(t, err)
			e2etest.Must(t, cmd.Start())
			_, err = io.ReadFull(stdout, make([]byte, 1)) // it is at work
			e2etest.Must(t, err)
			pid := worker(cmd.Process)
			for _, s := range tt.send {
				e2etest.Must(t, unix.Kill(tt.to(cmd.Process), s))
				if s == unix.SIGTSTP {
					e2etest.Eventually(t, "both have stopped", func() bool {
						return e2etest.ThreadHas(pid, "stat", ") T ") && e2etest.ThreadHas(cmd.Process.Pid, "stat", ") T ")
					})
				}
			}
			_, err = io.Copy(io.Discard, stdout)
			e2etest.Must(t, err)
			_ = cmd.Wait() // with the verdict, or by a signal
			if got := cmd.ProcessState.String(); !strings.HasPrefix(got, tt.want) {
				t.Errorf("it ended with %s, want %s\n%s", got, tt.want, &stderr)
			}
			if tt.send[0] == unix.SIGQUIT && !strings.Contains(stderr.String(), "goroutine ") {
				t.Errorf("it printed %s", &stderr)
			}
			e2etest.Eventually(t, "the worker is gone", func() bool { return len(left()) == 0 })
		})
	}
	t.Run("a second interrupt ends what hangs", func(t *testing.T) {
		hung := t.TempDir()
		hang(t, hung)
		cmd := exec.CommandContext(t.Context(), e2etest.Program(t), "stacks", hung+"/f", "--timeout", "1h")
		e2etest.Must(t, cmd.Start())
		pid := 0
		e2etest.Eventually(t, "the worker hangs", func() bool {
			pid = worker(cmd.Process)
			return pid > 0 && e2etest.ThreadHas(pid, "stack", "request_wait_answer")
		})
		e2etest.Must(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Process.Signal(os.Interrupt) // the first may be enough
		if err := cmd.Wait(); err == nil {
			t.Error("it ended well")
		}
	})
}
