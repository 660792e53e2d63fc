//go:build e2e

// Package host makes faults, and load that is no fault, which the one kernel shows to all that runs on the machine: it
// must run alone.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

type (
	fault = e2etest.Fault
	place = e2etest.Place
)

func TestMain(m *testing.M) { nodebox.Main(m) }

// A rig is a private containerd with methods that starve it.
type rig struct{ *e2etest.Rig }

func startRig(t *testing.T, opts nodebox.Options) rig {
	t.Helper()
	r := rig{e2etest.StartRig(t, opts)}
	r.Alone = true
	return r
}

// TestEndToEndStarvation takes processors and memory from a containerd and its pods.
func TestEndToEndStarvation(t *testing.T) {
	r := startRig(t, nodebox.Options{})
	r.CheckFile(t, "starvation.yaml", map[string]e2etest.Maker{
		"a pod that is OOM-killed again and again":    r.killForMemory,
		"processor hogs beside a niced daemon":        r.hogs,
		"a CPU quota of 1 percent":                    r.throttle("/" + filepath.Base(r.Dir()) + "/throttled"),
		"a pod that has the memory and the processes": r.consume,
	})
}

// advisesDelete checks that the pod is blamed for the memory too.
func advisesDelete(t *testing.T, r *checks.Report) {
	for _, c := range r.Causes {
		deletes := func(s checks.NextStep) bool {
			return strings.Contains(s.Command, "kubectl delete pod -n box pod-1")
		}
		if c.Subject.Pod != "pod-1" || !slices.ContainsFunc(c.NextSteps, deletes) {
			t.Errorf("%s blames %+v and advises %+v", c.Code, c.Subject, c.NextSteps)
		}
	}
}

// TestEndToEndLoad makes load that is no fault.
func TestEndToEndLoad(t *testing.T) {
	r := startRig(t, nodebox.Options{})
	r.CheckControls(t, []fault{
		{Name: "nothing", Make: e2etest.Nothing},
		{Name: "a rollout of 50 pods", Make: r.rollout},
		{Name: "50 pods that terminate", Make: r.terminate},
		{Name: "batch load on all processors", Make: func(t *testing.T, _ *place) {
			for range 4 {
				r.Exec(t, "timeout 12 busybox sh -c 'while :; do :; done'")
			}
		}},
		{Name: "a container over its CPU quota", Make: func(t *testing.T, _ *place) {
			dir := e2etest.Cgroup(t, "cpu", r.Group)
			e2etest.Shell("echo 2000 >"+dir+"/cpu.cfs_quota_us", "echo -1 >"+dir+"/cpu.cfs_quota_us")(t, nil)
			r.Exec(t, "timeout 8 busybox sh -c 'while :; do :; done'")
			awaitCount(t, dir+"/cpu.stat", "nr_throttled", 20)
		}},
		{Name: "a container that the kernel kills for memory again and again", Make: func(t *testing.T, _ *place) {
			dir := e2etest.Cgroup(t, "memory", r.Group) // runc itself needs a half of the limit
			e2etest.Shell("echo 32M >"+dir+"/memory.limit_in_bytes", "echo -1 >"+dir+"/memory.limit_in_bytes")(t, nil)
			r.Exec(t, "for i in 1 2 3; do tail /dev/zero; done") // one after the other: beside one, runc had too little
			awaitCount(t, dir+"/memory.oom_control", "oom_kill", 3)
		}},
		{Name: "much writing to the disk", Make: func(t *testing.T, _ *place) {
			file := filepath.Join(t.TempDir(), "copy")
			e2etest.Behind(t, func(ctx context.Context) {
				_ = exec.CommandContext(ctx, "/bin/busybox", "dd", "if=/dev/zero", "of="+file, "bs=1M", "count=300",
					"conv=fsync").Run()
			})
			e2etest.Eventually(t, "it writes", func() bool {
				info, err := os.Stat(file)
				return err == nil && info.Size() > 0
			})
		}},
	})
}

// awaitCount waits until a file of the kernel's has a line of a name and at least this number.
func awaitCount(t *testing.T, file, name string, least int) {
	t.Helper()
	e2etest.Eventually(t, fmt.Sprintf("%s has %s %d", file, name, least), func() bool {
		for line := range strings.Lines(e2etest.Read(t, file)) {
			if value, found := strings.CutPrefix(line, name+" "); found {
				n, _ := strconv.Atoi(strings.TrimSpace(value))
				return n >= least
			}
		}
		return false
	})
}

// killForMemory has a process of the second pod's container need more than its limit, four times.
func (r rig) killForMemory(t *testing.T, _ *place) {
	dir := e2etest.Cgroup(t, "memory", r.Group)
	e2etest.Shell("echo 16M >"+dir+"/memory.limit_in_bytes", "echo -1 >"+dir+"/memory.limit_in_bytes")(t, nil)
	for range 4 {
		// tail keeps the last line of what has none. The shell is the one that enters.
		hog := exec.CommandContext(t.Context(), "/bin/busybox", "sh", "-c",
			"echo $$ > "+dir+"/cgroup.procs; exec busybox tail /dev/zero")
		if out, err := hog.CombinedOutput(); err == nil {
			t.Fatalf("was not killed: %s", out)
		}
	}
}

// many runs a command many times at once.
func many(t *testing.T, n int, command ...string) {
	t.Helper()
	for range n {
		cmd := exec.Command(command[0], command[1:]...)
		e2etest.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
}

// callers keep the daemon busy, as a kubelet does.
func (r rig) callers(t *testing.T) {
	many(t, 3, "nice", r.Program, "relist", "--for", "10m", "--interval", "1ms", "--runtime-endpoint", r.Endpoint())
}

// hogs pins the daemon to one processor, gives it the lowest priority there is, and starts others there which never
// pause, in one control group, so that the other work of the machine gets its share.
func (r rig) hogs(t *testing.T, at *place) {
	dir := e2etest.MakeCgroup(t, "cpu", "/"+filepath.Base(r.Dir())+"/crowd")
	e2etest.Enter(t, dir, r.PID()) // without it the kernel gives each session its share (autogroup)
	e2etest.Sh(t, fmt.Sprintf("taskset -apc 0 %d && chrt -a -i -p 0 %[1]d", r.PID()))
	t.Cleanup(func() { e2etest.Sh(t, fmt.Sprintf("chrt -a -o -p 0 %d && taskset -apc 0-1 %[1]d", r.PID())) })
	many(t, 40, "taskset", "-c", "0", "busybox", "sh", "-c", "echo $$ > "+dir+"/cgroup.procs; while :; do :; done")
	r.callers(t)
	before := waited(r.PID())
	e2etest.Eventually(t, "the daemon waits for a processor", func() bool { return waited(r.PID()) > before+3e9 })
	at.Culprit = strconv.Itoa(r.PID())
}

// waited returns for how many nanoseconds the threads of a process have waited for a processor.
func waited(pid int) int {
	sum := 0
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range threads {
		var ran, waited int
		text, _ := os.ReadFile(name)
		_, _ = fmt.Sscan(string(text), &ran, &waited)
		sum += waited
	}
	return sum
}

// throttle gives the daemon hardly any processor time.
func (r rig) throttle(group string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		dir := e2etest.MakeCgroup(t, "cpu", group)
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("1000"), 0)) // of 100,000
		e2etest.Enter(t, dir, r.PID())
		r.callers(t)
		awaitCount(t, dir+"/cpu.stat", "nr_throttled", 30)
	}
}

// consume has a container start 300 processes and leave 300 MiB in a tmpfs, which no process shows. It makes kdiag
// alone see a machine of a gibibyte and 1,000 process ids, on which nobody else has memory.
func (r rig) consume(t *testing.T, at *place) {
	pids, memory := e2etest.Cgroup(t, "pids", r.Group), e2etest.Cgroup(t, "memory", r.Group)
	shell := e2etest.Crowd(t, pids, 300)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"meminfo": "MemTotal: 1048576 kB\nMemFree: 51200 kB\nMemAvailable: 51200 kB\nShmem: 307200 kB\n",
		"loadavg": "1.00 1.00 1.00 1/950 4711\n", "pid_max": "1000\n",
	} {
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	e2etest.Must(t, os.Mkdir(filepath.Join(dir, "tmpfs"), 0o755))
	at.Inside = e2etest.InMounts("cd " + dir + " && mount -t tmpfs none tmpfs && " +
		"echo $$ > " + memory + `/cgroup.procs &&
		dd if=/dev/zero of=tmpfs/file bs=1M count=300 2>/dev/null && echo $$ > /sys/fs/cgroup/memory/cgroup.procs &&
		for other in /sys/fs/cgroup/memory/*/; do
			case "$other" in */` + strings.Split(r.Group, "/")[1] + `/) ;; *) mount -t tmpfs none "$other" ;; esac
		done
		mount --bind meminfo /proc/meminfo && mount --bind loadavg /proc/loadavg &&
		mount --bind pid_max /proc/sys/kernel/pid_max`)
	at.Culprit, at.Also = strconv.Itoa(shell.Process.Pid), advisesDelete
}

// rollout makes pods, which stay, while kdiag looks.
func (r rig) rollout(t *testing.T, _ *place) {
	behind(t, func() error {
		_, err := r.Run(context.Background(), nodebox.Pods{
			Count: 50, Containers: 1, State: crictl.ContainerRunning, Prefix: "rollout",
		})
		return err
	})
	e2etest.Eventually(t, "the first pods are there", func() bool { return len(r.sandboxes(t)) > 4+len(r.Pods) })
}

// terminate stops and removes the pods of the rollout, while kdiag looks.
func (r rig) terminate(t *testing.T, _ *place) {
	all := r.sandboxes(t)
	cri, err := remote.Dial(r.Endpoint(), remote.Options{Timeout: 2 * time.Minute})
	e2etest.Must(t, err)
	t.Cleanup(func() { e2etest.Must(t, cri.Close()) })
	behind(t, func() error {
		g, ctx := errgroup.WithContext(context.Background())
		g.SetLimit(8)
		for _, s := range all {
			if s.Pod.Name != "pod-0" && s.Pod.Name != "pod-1" {
				g.Go(func() error { return errors.Join(cri.StopPodSandbox(ctx, s.ID), cri.RemovePodSandbox(ctx, s.ID)) })
			}
		}
		return g.Wait()
	})
	e2etest.Eventually(t, "the first pods are gone", func() bool { return len(r.sandboxes(t)) < len(all) })
}

// behind runs a function in the background, which must end well before the test ends.
func behind(t *testing.T, run func() error) {
	done := make(chan error, 1)
	go func() { done <- run() }()
	t.Cleanup(func() { e2etest.Must(t, <-done) })
}

func (r rig) sandboxes(t *testing.T) []crictl.PodSandbox {
	t.Helper()
	client, err := crictl.Dial(r.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	e2etest.Must(t, err)
	defer client.Close()
	return client.ListPodSandbox(t.Context(), crictl.Filter{}, crictl.ModeUnary).Sandboxes
}
