//go:build e2e

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndNodeHost breaks what is around a healthy containerd and its pods, in one way after the other.
func TestEndToEndNodeHost(t *testing.T) {
	c, p, victim, cgroup := startPods(t)
	ofPod := func(s checks.Subject) bool { return s.Pod == "pod-1" }

	t.Run("shim stopped", func(t *testing.T) {
		e2etest.Must(t, c.FreezeShim(t.Context(), victim.ID))
		defer func() { e2etest.Must(t, c.ThawShim(victim.ID)) }()
		shim, err := c.Shim(victim.ID)
		e2etest.Must(t, err)
		culprit := func(s checks.Subject) bool { return process(shim)(s) && ofPod(s) }
		step := fmt.Sprintf("kill -CONT %d", shim)
		p.steps().Repair(t, p.found(t, finding{checks.Warning, step, culprit, []string{"ShimStuck"}}), step)
	})

	t.Run("list held by a stopped shim", func(t *testing.T) {
		release, err := c.Wedge(t.Context(), victim.ID, victim.Containers[0].ID)
		e2etest.Must(t, err)
		defer func() { e2etest.Must(t, release()) }()
		waitInKernel(t, cgroupDir(t, "freezer", cgroup)) // a process of the container holds no list
		shim, err := c.Shim(victim.ID)
		e2etest.Must(t, err)
		step := fmt.Sprintf("kill -CONT %d", shim)
		p.steps().Repair(t, p.seen(t, finding{
			checks.Critical, step, process(shim), []string{"ShimStuck", "ListHang"},
		}, "--rpc-timeout", "2s"), step)
	})

	// Settings of the container's control group.
	for _, tt := range []struct {
		name, controller, file, value, before string
		step, code                            string
	}{
		{"frozen control group", "freezer", "freezer.state", "FROZEN", "THAWED", "echo THAWED > '%s'", "CgroupFrozen"},
		{
			"processes of a pod at their limit", "pids", "pids.max", "1", "max", "kubectl delete pod -n box pod-1%.0s",
			"PIDsExhausted",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(cgroupDir(t, tt.controller, cgroup), tt.file)
			e2etest.Must(t, os.WriteFile(file, []byte(tt.value), 0))
			defer func() { e2etest.Must(t, os.WriteFile(file, []byte(tt.before), 0)) }()
			culprit := func(s checks.Subject) bool { return (s.ID == cgroup || s.Name == cgroup) && ofPod(s) }
			step := fmt.Sprintf(tt.step, file)
			c := p.found(t, finding{checks.Warning, step, culprit, []string{tt.code}})
			if !strings.HasPrefix(step, "kubectl") {
				p.steps().Repair(t, c, step)
			}
		})
	}

	t.Run("who has the memory and the processes", func(t *testing.T) { nameConsumers(t, p, cgroup) })

	t.Run("in uninterruptible sleep", func(t *testing.T) {
		pid := waitInKernel(t, cgroupDir(t, "freezer", cgroup))
		got := p.node(t)
		names(t, got) // a single wait is no problem yet
		wantStatus(t, got, "host.tasks", checks.StatusWarning, strconv.Itoa(pid))
		wantStatus(t, got, "host.tasks", checks.StatusWarning, "box/pod-1")
	})

	t.Run("inotify", func(t *testing.T) { takeInotify(t, p) })
	t.Run("dead mount", func(t *testing.T) { deadMount(t, c, p, victim, cgroup) })
}

// startPods starts a containerd with two pods in control groups named as a kubelet names them, below the box's own, and
// returns the second pod and the group of its container.
func startPods(t *testing.T) (c *nodebox.Containerd, p program, second nodebox.Pod, cgroup string) {
	t.Helper()
	c = e2etest.StartContainerd(t, nodebox.Options{Network: true})
	parent := "/" + filepath.Base(c.Dir()) + "/kubepods"
	pods, err := nodebox.RunPods(t.Context(), c.Endpoint(), nodebox.Pods{
		Count: 2, Containers: 1, State: crictl.ContainerRunning, CgroupParent: parent,
	})
	e2etest.Must(t, err)
	second = pods[1]
	cgroup = fmt.Sprintf("%s/pod%s/%s", parent, second.Config.Metadata.Uid, second.Containers[0].ID)
	return c, program{path: e2etest.Program(t), endpoint: c.Endpoint()}, second, cgroup
}

// TestEndToEndNodeDisk has the runtime's folder on a disk that is slow, and then takes no write at all.
func TestEndToEndNodeDisk(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "kdiag-")
	e2etest.Must(t, err)
	t.Cleanup(func() { e2etest.Must(t, os.RemoveAll(dir)) })
	point := filepath.Join(dir, "disk")
	e2etest.Must(t, os.Mkdir(point, 0o755))
	sh := func(command string) string {
		t.Helper()
		out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	image := point + ".image"
	sh("truncate -s 128M " + image + " && mkfs.ext4 -q " + image + " && mount -o loop " + image + " " + point)
	// A child that was killed holds its file open for a moment after it can be seen no more.
	t.Cleanup(func() { eventually(t, "unmounted", func() bool { return unix.Unmount(point, 0) == nil }) })
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true, Parent: point})
	p := program{path: e2etest.Program(t), endpoint: c.Endpoint()}

	t.Run("slow", func(t *testing.T) {
		group := filepath.Join("/sys/fs/cgroup/blkio", filepath.Base(dir))
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal("needs a hierarchy of version 1 with the blkio controller")
		}
		t.Cleanup(func() { eventually(t, "the control group is gone", func() bool { return os.Remove(group) == nil }) })
		device := sh("mountpoint -d " + point)
		e2etest.Must(t, os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), []byte(device+" 4"), 0))
		slow := p
		slow.inside = []string{"/bin/sh", "-c", "echo $$ > " + group + `/cgroup.procs; exec "$@"`, "sh"}
		slow.seen(t, finding{checks.Warning, "iostat -x", filesystem(point), []string{"IOStall"}})
	})

	t.Run("frozen", func(t *testing.T) {
		sh("fsfreeze -f " + point)
		defer func() { _ = exec.Command("fsfreeze", "-u", point).Run() }() // it may be thawed
		step := "fsfreeze -u " + point
		f := finding{checks.Critical, step, filesystem(point), []string{"IOStall"}}
		p.seen(t, f)
		cause := f.check(t, p.node(t))
		if n := probesIn(point); n != 1 {
			t.Errorf("%d children of kdiag's wait for the disk, want 1", n)
		}
		p.steps().Repair(t, cause, step)
	})
	eventually(t, "no child of kdiag's is left", func() bool { return probesIn(point) == 0 })
	t.Run("throttled by its control group", func(t *testing.T) { throttleWrites(t, c, p, sh("mountpoint -d "+point)) })
	t.Run("read-only", func(t *testing.T) {
		p := p // containerd's own files are open for writing, so only kdiag sees it
		p.inside = inMounts("mount --bind " + point + " " + point + " && mount -o remount,bind,ro " + point)
		p.found(t, finding{checks.Critical, "/proc/mounts", filesystem(point), []string{"IOStall"}})
	})
}

// cgroupDir returns where a control group lies in the hierarchy of a controller, version 1.
func cgroupDir(t *testing.T, controller, cgroup string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, cgroup)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("needs a hierarchy of version 1 with the controller " + controller)
	}
	return dir
}

// vforkEnv makes the test binary the process that waitInKernel starts: TestMain looks for it.
const vforkEnv = "KDIAG_TEST_VFORK"

// vforkUntilStdinEnds stays in vfork, which is uninterruptible sleep, until its child has seen the end of standard
// input.
func vforkUntilStdinEnds() {
	os.Stdout.WriteString("up\n")
	var b byte
	flags := syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD)
	if pid, _, _ := syscall.RawSyscall(syscall.SYS_CLONE, flags, 0, 0); pid == 0 {
		// The child has one thread and no scheduler: nothing but system calls.
		syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	os.Exit(0)
}

// waitInKernel puts a process into a control group that sleeps uninterruptibly until the test ends, and returns its id.
func waitInKernel(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), vforkEnv+"=1")
	stdin, err := cmd.StdinPipe()
	e2etest.Must(t, err)
	awaitUp(t, cmd)
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	eventually(t, "a thread in vfork", func() bool {
		states, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", cmd.Process.Pid))
		return slices.ContainsFunc(states, func(name string) bool {
			b, _ := os.ReadFile(name)
			return strings.Contains(string(b), ") D ")
		})
	})
	return cmd.Process.Pid
}

// eventually waits until something is so, and gives up long after it should have been.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 10_000 {
		if so() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not so: %s", what)
}

// inMounts returns the command that runs another in a mount namespace, after some commands of a shell.
func inMounts(commands string) []string {
	return []string{"unshare", "-m", "--propagation", "private", "/bin/sh", "-c", commands + ` && exec "$@"`, "sh"}
}

// nameConsumers has a container start 300 processes and leave 300 MiB in a tmpfs, which no process shows. It makes
// kdiag alone see a machine of a gibibyte and 1,000 process ids, on which nobody else has memory.
func nameConsumers(t *testing.T, p program, cgroup string) {
	pids, memory := cgroupDir(t, "pids", cgroup), cgroupDir(t, "memory", cgroup)
	shell := crowd(t, pids, 300)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"meminfo": "MemTotal: 1048576 kB\nMemFree: 51200 kB\nMemAvailable: 51200 kB\nShmem: 307200 kB\n",
		"loadavg": "1.00 1.00 1.00 1/950 4711\n", "pid_max": "1000\n",
	} {
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	e2etest.Must(t, os.Mkdir(filepath.Join(dir, "tmpfs"), 0o755))
	p.inside = inMounts("cd " + dir + " && mount -t tmpfs none tmpfs && echo $$ > " + memory + `/cgroup.procs &&
		dd if=/dev/zero of=tmpfs/file bs=1M count=300 2>/dev/null && echo $$ > /sys/fs/cgroup/memory/cgroup.procs &&
		for other in /sys/fs/cgroup/memory/*/; do
			case "$other" in */` + strings.Split(cgroup, "/")[1] + `/) ;; *) mount -t tmpfs none "$other" ;; esac
		done
		mount --bind meminfo /proc/meminfo && mount --bind loadavg /proc/loadavg &&
		mount --bind pid_max /proc/sys/kernel/pid_max`)
	for _, got := range []e2etest.Outcome{p.node(t), p.pleg(t)} {
		processes := names(t, got, "PIDsExhausted", "MemoryPressure")
		causes := got.Report(t).Causes
		held := causes[slices.IndexFunc(causes, func(c checks.Cause) bool { return c.Code == "MemoryPressure" })]
		finding{processes.Severity, "kubectl delete pod -n box pod-1", process(shell.Process.Pid), nil}.of(t, processes)
		finding{held.Severity, "kubectl delete pod -n box pod-1", nil, nil}.of(t, held)
		p.steps().Check(t, processes) // what has memory may have ended
		if processes.Subject.Pod != "pod-1" || held.Subject.Pod != "pod-1" {
			t.Errorf("PIDsExhausted blames %+v, MemoryPressure %+v", processes.Subject, held.Subject)
		}
		if lines := strings.Join(held.Evidence.For, "\n"); !strings.Contains(lines, "box/pod-1 has 30") ||
			!strings.Contains(lines, "MiB are tmpfs or shared memory") {
			t.Errorf("evidence of MemoryPressure:\n%s", lines)
		}
	}
}

// takeInotify holds inotify instances, and shows kdiag alone a limit of as many: others on this machine need some too.
func takeInotify(t *testing.T, p program) {
	const held = 20
	for range held {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		e2etest.Must(t, err)
		defer unix.Close(fd)
	}
	limit := filepath.Join(t.TempDir(), "limit")
	e2etest.Must(t, os.WriteFile(limit, []byte(strconv.Itoa(held)+"\n"), 0o644))
	p.inside = inMounts("mount --bind " + limit + " /proc/sys/fs/inotify/max_user_instances")
	const step = "sysctl -w fs.inotify.max_user_instances="
	p.steps().Repair(t, p.seen(t, finding{
		checks.Critical, step, process(os.Getpid()), []string{"InotifyExhausted"},
	}), step)
}

// deadMount mounts a file system that never answers as a pod's volume, with a process of the container waiting in it,
// in a mount namespace that nobody else sees. kdiag is asked again and again, and at last with the runtime frozen
// too.
func deadMount(t *testing.T, c *nodebox.Containerd, p program, victim nodebox.Pod, cgroup string) {
	point := filepath.Join("/var/lib/kubelet/pods", victim.Config.Metadata.Uid, "volumes/kubernetes.io~csi/data/mount")
	dead := mountDead(t, point)
	p.inside = dead.enter

	reader := exec.Command(dead.enter[0], append(dead.enter[1:], "/bin/busybox", "sh", "-c",
		"echo $$ > "+cgroupDir(t, "freezer", cgroup)+"/cgroup.procs; exec busybox stat "+point)...)
	e2etest.Must(t, reader.Start())
	defer func() { dead.cut(); _ = reader.Wait() }()
	// It sleeps interruptibly until a signal comes, as that of a pod's end does, and then, if the server has its
	// request, until that answers.
	eventually(t, "a process in the dead mount", func() bool {
		stack, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stack", reader.Process.Pid))
		return strings.Contains(string(stack), "request_wait_answer") && dead.Held.Load() > 0
	})
	e2etest.Must(t, reader.Process.Kill())
	eventually(t, "the process in uninterruptible sleep", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", reader.Process.Pid))
		return strings.Contains(string(stat), ") D ")
	})

	cause := p.found(t, finding{
		checks.Critical, "stat -f " + point, filesystem(point), []string{"FilesystemHung", "TaskStuck"},
	})
	if n := probesIn(point); n != 1 {
		t.Errorf("%d children of kdiag's wait in the mount, want 1", n)
	}
	e2etest.Must(t, c.Pause(t.Context()))
	got := p.node(t, "--rpc-timeout", "1s")
	e2etest.Must(t, c.Resume())
	r := got.Report(t)
	for _, code := range []string{"FilesystemHung", "RuntimeHung"} {
		if !slices.Contains(e2etest.Codes(r), code) {
			t.Errorf("causes %v, want %s with a dead mount and a frozen runtime", e2etest.Codes(r), code)
		}
	}
	p.steps().Repair(t, cause, "umount -f "+point, "umount -l "+point)
	eventually(t, "no child of kdiag's is left", func() bool { return probesIn(point) == 0 })
}

// probesIn counts kdiag's children that wait in a mount. The first thread of one may be dead already.
func probesIn(point string) int {
	n := 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		threads, _ := filepath.Glob(dir + "/task/*/cmdline")
		if slices.ContainsFunc(threads, func(name string) bool {
			b, _ := os.ReadFile(name)
			return strings.Contains(string(b), "\x00"+host.ChildArgument+"\x00") && strings.Contains(string(b), point)
		}) {
			n++
		}
	}
	return n
}

// A deadFuse is a dead file system in a private mount namespace.
type deadFuse struct {
	*nodebox.DeadFuse
	point string
	enter []string // the command that enters the namespace
}

func mountDead(t *testing.T, point string) *deadFuse {
	t.Helper()
	f := &deadFuse{DeadFuse: nodebox.OpenDeadFuse(t), point: point}
	// The kubelet's folder is another one in there, so that nothing of the machine's is touched.
	mounter := exec.Command("/bin/sh", "-c",
		`mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && mkdir -p "$1" &&
		mount -i -t fuse -o "$2" dead.example:/bucket "$1" && exec 3>&- && echo up && read line`,
		"sh", point, f.Options(3))
	mounter.ExtraFiles = []*os.File{f.Dev}
	mounter.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	mounter.Stderr = os.Stderr
	stdin, err := mounter.StdinPipe()
	e2etest.Must(t, err)
	awaitUp(t, mounter)
	f.enter = []string{"nsenter", "-t", strconv.Itoa(mounter.Process.Pid), "-m", "--"}
	t.Cleanup(func() {
		f.cut()
		stdin.Close()
		_ = mounter.Wait()
	})
	go f.Serve()
	return f
}

// cut ends the connection: all that wait get an error, and end.
func (f *deadFuse) cut() {
	_ = exec.Command(f.enter[0], append(f.enter[1:], "umount", "-c", "-f", f.point)...).Run() // it may be gone
	_ = f.Dev.Close()
}
