package nodecmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// TestEndToEndHostFaults starves a containerd in one way after the other, breaks what lies around it, and shows what is
// odd and does the node no harm.
func TestEndToEndHostFaults(t *testing.T) {
	c := apptest.StartContainerd(t, nodebox.Options{Network: true})
	p := program{path: apptest.BuildKdiag(t), endpoint: c.Endpoint()}
	box := filepath.Base(c.Dir())
	pods, err := nodebox.RunPods(t.Context(), c.Endpoint(), nodebox.Pods{
		Count: 2, Containers: 1, State: crictl.ContainerRunning, CgroupParent: "/" + box + "/kubepods",
	})
	apptest.Must(t, err)
	pod := pods[1]
	cgroup := fmt.Sprintf("/%s/kubepods/pod%s/%s", box, pod.Config.Metadata.Uid, pod.Containers[0].ID)

	t.Run("a pod that is OOM-killed again and again", func(t *testing.T) {
		memory := cgroupDir(t, "memory", cgroup)
		apptest.Must(t, os.WriteFile(filepath.Join(memory, "memory.limit_in_bytes"), []byte("16M"), 0))
		for range 4 {
			hog := exec.CommandContext(t.Context(), "/bin/busybox", "sh", "-c",
				"echo $$ > "+memory+"/cgroup.procs; exec busybox tail /dev/zero")
			if out, err := hog.CombinedOutput(); err == nil {
				t.Fatalf("was not killed: %s", out)
			}
		}
		got := p.node(t)
		names(t, got)
		const want = "box/pod-1 (c-0) was OOM-killed 4 times"
		if notes := strings.Join(got.Report(t).Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("notes %q, want %q", notes, want)
		}
		wantStatus(t, got, "journal.kernel", checks.StatusOK, "was OOM-killed")
	})

	t.Run("CPU hogs beside a niced daemon", func(t *testing.T) {
		release := hogs(t, c.PID())
		defer release()
		for _, o := range []apptest.Outcome{p.node(t, "--rpc-timeout", "2s"), p.pleg(t, "--rpc-timeout", "2s")} {
			starved(t, o, process(c.PID()))
		}
	})

	t.Run("batch work on all CPUs", func(t *testing.T) {
		var all []*exec.Cmd
		for range 4 {
			cmd := exec.Command("nice", "-n", "5", "busybox", "sh", "-c", "while :; do :; done")
			apptest.Must(t, cmd.Start())
			all = append(all, cmd)
		}
		defer end(all)
		time.Sleep(2 * time.Second)
		harmless(t, p.node(t))
	})

	t.Run("a CPU quota of 1 percent", func(t *testing.T) {
		group := "/" + box + "/throttled"
		dir := makeCgroup(t, "cpu", group)
		apptest.Must(t, os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("1000"), 0))
		enter(t, dir, c.PID())
		defer enter(t, filepath.Dir(filepath.Dir(dir)), c.PID())
		culprit := func(s checks.Subject) bool { return s.Name == group }
		for _, o := range []apptest.Outcome{p.node(t, "--rpc-timeout", "2s"), p.pleg(t, "--rpc-timeout", "2s")} {
			starved(t, o, culprit)
		}
	})

	t.Run("a dead mount of a user", func(t *testing.T) {
		dead := mountDead(t, "/home/somebody/cloud")
		defer dead.cut()
		inside := p
		inside.inside = dead.enter
		got := inside.node(t)
		c := names(t, got, "FilesystemHung")
		if c.Severity != checks.Warning || got.Code != 0 {
			t.Errorf("%s, exit code %d: %s", c.Severity, got.Code, c.Summary)
		}
	})

	t.Run("a mount under another", func(t *testing.T) {
		volumes := "/var/lib/kubelet/pods/" + pod.Config.Metadata.Uid + "/volumes"
		inside := p
		inside.inside = inMounts("mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && mkdir -p " + volumes +
			"/kubernetes.io~csi/data/mount && mount -t tmpfs none " + volumes + "/kubernetes.io~csi/data/mount && " +
			"mount -t tmpfs none " + volumes)
		got := inside.node(t)
		names(t, got)
		wantStatus(t, got, "host.mounts", checks.StatusWarning, volumes+"/kubernetes.io~csi/data/mount")
		wantStatus(t, got, "host.mounts", checks.StatusWarning, "box/pod-1")
	})
}

// starved checks that a report has the CPU as the root, a culprit, and no hang beside it that is not a consequence.
func starved(t *testing.T, o apptest.Outcome, culprit func(checks.Subject) bool) {
	t.Helper()
	r := o.Report(t)
	i := slices.Index(apptest.Codes(r), "CPUStarved")
	if i < 0 || r.Status != checks.Unhealthy || o.Code != 1 {
		t.Fatalf("status %s, causes %v\n%s", r.Status, apptest.Codes(r), o.Stdout)
	}
	if c := r.Causes[i]; c.Severity != checks.Critical || c.Confidence < 0.8 || !culprit(*c.Subject) {
		t.Errorf("CPUStarved is %s with %v and names %+v", c.Severity, c.Confidence, c.Subject)
	}
	for _, c := range r.Causes {
		if c.Code != "CPUStarved" && c.CausedBy == "" && c.Severity == checks.Critical {
			t.Errorf("%s is no consequence: %s", c.Code, c.Summary)
		}
	}
}

// harmless checks that nothing critical is named and the exit code is 0.
func harmless(t *testing.T, o apptest.Outcome) {
	t.Helper()
	r := o.Report(t)
	for _, c := range r.Causes {
		if c.Severity == checks.Critical {
			t.Errorf("%s: %s", c.Code, c.Summary)
		}
	}
	if o.Code != 0 {
		t.Errorf("exit code %d, status %s", o.Code, r.Status)
	}
}

// hogs pins a process to one CPU, gives it the lowest priority there is, and starts others there which never pause. They
// leave room for the other work of the machine. It returns what ends them.
func hogs(t *testing.T, pid int) (release func()) {
	t.Helper()
	sh := func(command string) {
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	sh(fmt.Sprintf("taskset -apc 0 %d && chrt -a -i -p 0 %[1]d", pid))
	var all []*exec.Cmd
	for range 8 {
		cmd := exec.Command("taskset", "-c", "0", "nice", "-n", "4", "busybox", "sh", "-c", "while :; do :; done")
		apptest.Must(t, cmd.Start())
		all = append(all, cmd)
	}
	time.Sleep(time.Second)
	return func() {
		end(all)
		sh(fmt.Sprintf("chrt -a -o -p 0 %d && taskset -apc 0-1 %[1]d", pid))
	}
}

func end(all []*exec.Cmd) {
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// makeCgroup makes a control group of version 1 that the test removes.
func makeCgroup(t *testing.T, controller, group string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		nodebox.Need(t, "needs a hierarchy of version 1 with the controller "+controller)
	}
	t.Cleanup(func() { eventually(t, "the control group is gone", func() bool { return unix.Rmdir(dir) == nil }) })
	return dir
}

// enter puts a process with all its threads into a control group.
func enter(t *testing.T, dir string, pid int) {
	t.Helper()
	apptest.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
}
