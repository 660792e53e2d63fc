//go:build e2e

package node

import (
	"encoding/binary"
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
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// TestEndToEndHostFaults starves a containerd in one way after the other, and breaks what lies around it.
func TestEndToEndHostFaults(t *testing.T) {
	c, p, pod, cgroup := startPods(t)
	box := filepath.Base(c.Dir())

	t.Run("a pod that is OOM-killed again and again", func(t *testing.T) {
		memory := cgroupDir(t, "memory", cgroup)
		e2etest.Must(t, os.WriteFile(filepath.Join(memory, "memory.limit_in_bytes"), []byte("16M"), 0))
		for range 4 {
			// tail keeps the last line of what has none. The shell is the one that enters.
			hog := exec.CommandContext(t.Context(), "/bin/busybox", "sh", "-c",
				"echo $$ > "+memory+"/cgroup.procs; exec busybox tail /dev/zero")
			if out, err := hog.CombinedOutput(); err == nil {
				t.Fatalf("was not killed: %s", out)
			}
		}
		got := p.node(t)
		names(t, got)
		const want = "box/pod-1 (c0) was OOM-killed " // other tests kill in pods of this name
		if notes := strings.Join(got.Report(t).Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("notes %q, want %q", notes, want)
		}
		if s := status(t, got, "journal.kernel"); !strings.Contains(s.Summary, "kill") {
			t.Errorf("the kernel's log: %s, %s", s.Status, s.Summary)
		}
	})

	t.Run("CPU hogs beside a niced daemon", func(t *testing.T) {
		dir := makeCgroup(t, "cpu", "/"+box+"/crowd") // without it the kernel gives each session its share (autogroup)
		enter(t, dir, c.PID())
		defer enter(t, filepath.Dir(filepath.Dir(dir)), c.PID())
		defer hogs(t, dir, c.PID())()
		defer p.callers(t)()
		starved(t, p.pleg(t, "--rpc-timeout", "2s"), process(c.PID()))
		cause := starved(t, p.node(t, "--rpc-timeout", "2s"), process(c.PID()))
		p.steps().Check(t, cause)
		p.steps().Repair(t, cause, "renice")
	})

	t.Run("memory map locked", func(t *testing.T) {
		pid := lockMap(t, cgroupDir(t, "freezer", cgroup))
		for _, o := range []e2etest.Outcome{p.node(t), p.pleg(t)} {
			c := names(t, o, "TaskStuck")
			p.steps().Check(t, c)
			if c.Subject.ID != strconv.Itoa(pid) || c.Subject.Pod != "pod-1" ||
				!strings.Contains(strings.Join(c.Evidence.For, " "), "memory map is locked") {
				t.Errorf("%s: %+v %q", c.Summary, c.Subject, c.Evidence.For)
			}
		}
	})

	t.Run("a mount under another", func(t *testing.T) {
		volumes := "/var/lib/kubelet/pods/" + pod.Config.Metadata.Uid + "/volumes"
		inside := p
		inside.inside = inMounts("mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && " +
			"mkdir -p " + volumes + "/kubernetes.io~csi/data/mount && " +
			"mount -t tmpfs none " + volumes + "/kubernetes.io~csi/data/mount && " +
			"mount -t tmpfs none " + volumes)
		got := inside.node(t)
		names(t, got)
		wantStatus(t, got, "host.mounts", checks.StatusWarning, volumes+"/kubernetes.io~csi/data/mount")
		wantStatus(t, got, "host.mounts", checks.StatusWarning, "box/pod-1")
	})

	t.Run("a CPU quota of 1 percent", func(t *testing.T) {
		group := "/" + box + "/throttled"
		dir := makeCgroup(t, "cpu", group)
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("1000"), 0)) // of 100,000
		enter(t, dir, c.PID())
		defer enter(t, filepath.Dir(filepath.Dir(dir)), c.PID())
		defer p.callers(t)()
		culprit := func(s checks.Subject) bool { return s.Name == group }
		p.steps().Check(t, starved(t, p.node(t, "--rpc-timeout", "2s"), culprit))
		starved(t, p.pleg(t, "--rpc-timeout", "2s"), culprit)
	})

	t.Run("the daemon is frozen in a group that is no unit", func(t *testing.T) {
		group := "/" + box + "/lab"
		dir := makeCgroup(t, "freezer", group)
		enter(t, dir, c.PID())
		defer enter(t, filepath.Dir(filepath.Dir(dir)), c.PID())
		state := filepath.Join(dir, "freezer.state")
		e2etest.Must(t, os.WriteFile(state, []byte("FROZEN"), 0))
		defer func() { e2etest.Must(t, os.WriteFile(state, []byte("THAWED"), 0)) }()
		culprit := func(s checks.Subject) bool { return s.Kind == "Cgroup" && s.ID == group }
		p.found(t, finding{
			checks.Critical, "echo THAWED > '" + state + "'", culprit, []string{"CgroupFrozen", "RuntimeHung"},
		}, "--rpc-timeout", "2s")
	})

	for _, folder := range []string{"root", "state"} {
		t.Run("the daemon's "+folder+" folder is moved away", func(t *testing.T) {
			dir := filepath.Join(c.Dir(), folder)
			e2etest.Must(t, os.Rename(dir, dir+".away"))
			defer func() { e2etest.Must(t, os.Rename(dir+".away", dir)) }()
			step := fmt.Sprintf("ls -l /proc/%d/fd", c.PID())
			p.found(t, finding{checks.Critical, step, process(c.PID()), []string{"RuntimeNotReady"}})
		})
	}

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
		// What the kernel reports of kdiag's child two minutes later has this name, by which it is left out.
		names, _ := exec.Command("sh", "-c", "for t in /proc/[0-9]*/task/*; do grep -qs "+dead.point+
			" $t/cmdline && grep -qs 'State:.D' $t/status && cat $t/comm; done").Output()
		if !strings.HasPrefix(string(names), "kdiag-") || strings.Count(string(names), "\n") != 1 {
			t.Errorf("blocked threads of kdiag's: %q", names)
		}
		inside.steps().Check(t, c)
		inside.steps().Repair(t, c, "umount -f", "umount -l")
	})

	t.Run("a dead mount that only a container sees", func(t *testing.T) {
		first := containerPID(t, cgroup)
		fuse := nodebox.OpenDeadFuse(t)
		mount := exec.Command("nsenter", "-t", strconv.Itoa(first), "-m", "/bin/busybox", "sh", "-c",
			"busybox mkdir /cloud && busybox mount -i -t fuse -o "+fuse.Options(3)+" dead.example:/bucket /cloud")
		mount.ExtraFiles = []*os.File{fuse.Dev}
		if out, err := mount.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		go fuse.Serve()
		defer fuse.Dev.Close()
		defer func() {
			// The first cuts the connection, and kdiag's child may still be there.
			_ = exec.Command("nsenter", "-t", strconv.Itoa(first), "-m", "/bin/busybox", "sh", "-c",
				"busybox umount -f /cloud; busybox umount -l /cloud").Run()
		}()
		c := names(t, p.node(t), "FilesystemHung")
		p.steps().Check(t, c)
		if c.Severity != checks.Warning || c.Subject.Pod != "pod-1" || c.Subject.Name != "/cloud" {
			t.Errorf("%s: %s; %+v", c.Severity, c.Summary, c.Subject)
		}
	})
}

// throttleWrites lets the containerd alone write hardly anything. What kdiag writes is quick.
func throttleWrites(t *testing.T, c *nodebox.Containerd, p program, device string) {
	group := "/" + filepath.Base(c.Dir()) + "/slow"
	dir := makeCgroup(t, "blkio", group)
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "blkio.throttle.write_iops_device"), []byte(device+" 4"), 0))
	enter(t, dir, c.PID())
	defer enter(t, "/sys/fs/cgroup/blkio", c.PID())
	culprit := func(s checks.Subject) bool { return s.Kind == "Cgroup" && s.Name == group }
	p.found(t, finding{checks.Critical, dir, culprit, []string{"IOStall"}})
}

// starved checks that a report has the CPU as the root, a culprit, and no hang beside it that is not a consequence.
func starved(t *testing.T, o e2etest.Outcome, culprit func(checks.Subject) bool) checks.Cause {
	t.Helper()
	r := o.Report(t)
	i := slices.Index(e2etest.Codes(r), "CPUStarved")
	if i < 0 || r.Status != checks.Unhealthy || o.Code != 1 {
		t.Fatalf("status %s, causes %v\n%s", r.Status, e2etest.Codes(r), o.Stdout)
	}
	if c := r.Causes[i]; c.Severity != checks.Critical || c.Confidence < 0.8 || !culprit(*c.Subject) {
		t.Errorf("CPUStarved is %s with %v and names %+v", c.Severity, c.Confidence, c.Subject)
	}
	for _, c := range r.Causes {
		if c.Code != "CPUStarved" && c.CausedBy == "" && c.Severity == checks.Critical {
			t.Errorf("%s is no consequence: %s", c.Code, c.Summary)
		}
	}
	return r.Causes[i]
}

// hogs pins a process to one CPU, gives it the lowest priority there is, and starts others there which never pause, in
// one control group, so that the other work of the machine gets its share. It returns what ends them.
func hogs(t *testing.T, dir string, pid int) (release func()) {
	t.Helper()
	sh := func(command string) {
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	sh(fmt.Sprintf("taskset -apc 0 %d && chrt -a -i -p 0 %[1]d", pid))
	end := many(t, 40, "taskset", "-c", "0", "busybox", "sh", "-c",
		"echo $$ > "+dir+"/cgroup.procs; while :; do :; done")
	return func() {
		end()
		sh(fmt.Sprintf("chrt -a -o -p 0 %d && taskset -apc 0-1 %[1]d", pid))
	}
}

// callers keep the runtime busy, as a kubelet does.
func (p program) callers(t *testing.T) (end func()) {
	return many(t, 3, "nice", p.path, "relist", "--for", "2m", "--interval", "1ms", "--runtime-endpoint", p.endpoint)
}

// many runs a command many times at once until end.
func many(t *testing.T, n int, command ...string) (end func()) {
	t.Helper()
	var all []*exec.Cmd
	for range n {
		cmd := exec.Command(command[0], command[1:]...)
		e2etest.Must(t, cmd.Start())
		all = append(all, cmd)
	}
	time.Sleep(2 * time.Second) // pressure is a mean of seconds
	return func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// mapEnv makes the test binary the process that lockMap starts: it names a file. TestMain looks for it.
const mapEnv = "KDIAG_TEST_MAP"

// holdMap changes a page of a shared mapping of the file, and maps something else over it. The kernel writes the page
// first, while it holds the lock of the process's memory map.
func holdMap(name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	const size = 1 << 12
	page, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	page[0] = 1
	os.Stdout.WriteString("up\n")
	syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(&page[0])), size, unix.PROT_READ,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, ^uintptr(0), 0)
}

// lockMap starts a process in a control group whose memory map stays locked until the test ends: it has a page to write
// to a file system that takes none.
func lockMap(t *testing.T, dir string) int {
	t.Helper()
	fuse, point := nodebox.OpenDeadFuse(t), t.TempDir()
	e2etest.Must(t, unix.Mount("dead", point, "fuse", 0, fuse.Options(fuse.Dev.Fd())))
	go serveReads(fuse.Dev)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), mapEnv+"="+point+"/file")
	t.Cleanup(func() {
		_ = unix.Unmount(point, unix.MNT_FORCE)
		_ = unix.Unmount(point, unix.MNT_DETACH)
		_ = fuse.Dev.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	awaitUp(t, cmd)
	enter(t, dir, cmd.Process.Pid)
	eventually(t, "it writes its page", func() bool {
		stack, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stack", cmd.Process.Pid))
		return strings.Contains(string(stack), "vm_mmap")
	})
	return cmd.Process.Pid
}

// serveReads serves a file system with one file of zeros that takes no write (include/uapi/linux/fuse.h).
func serveReads(dev *os.File) {
	const headerIn, headerOut, attrSize = 40, 16, 88
	put := binary.LittleEndian
	attributes := func(reply []byte, inode uint64, mode uint32) []byte {
		a := reply[len(reply)-attrSize:]
		put.PutUint64(a, inode)
		put.PutUint64(a[8:], 1<<20) // bytes
		put.PutUint32(a[60:], mode)
		put.PutUint32(a[64:], 1) // links
		return reply
	}
	b := make([]byte, 1<<20)
	for {
		if n, err := dev.Read(b); err != nil || n < headerIn {
			return
		}
		var reply []byte
		errno := uint32(0)
		switch put.Uint32(b[4:]) {
		case 26: // INIT
			reply = make([]byte, 64)
			put.PutUint32(reply, 7)
			put.PutUint32(reply[4:], 31)
			put.PutUint32(reply[20:], 1<<17)
		case 1: // LOOKUP
			reply = attributes(make([]byte, 40+attrSize), 2, unix.S_IFREG|0o644)
			put.PutUint64(reply, 2)
		case 3: // GETATTR
			mode := uint32(unix.S_IFREG | 0o644)
			if put.Uint64(b[16:]) == 1 {
				mode = unix.S_IFDIR | 0o755
			}
			reply = attributes(make([]byte, 16+attrSize), put.Uint64(b[16:]), mode)
		case 14: // OPEN
			reply = make([]byte, 16)
		case 15: // READ
			reply = make([]byte, put.Uint32(b[headerIn+16:]))
		case 16, 2, 42: // WRITE, and FORGET, which has no reply
			continue
		default:
			errno = uint32(1<<32 - int64(unix.ENOSYS))
		}
		out := make([]byte, headerOut, headerOut+len(reply))
		put.PutUint32(out, uint32(headerOut+len(reply)))
		put.PutUint32(out[4:], errno)
		copy(out[8:16], b[8:16])
		_, _ = dev.Write(append(out, reply...))
	}
}

// containerPID returns a process of a container, by its control group.
func containerPID(t *testing.T, cgroup string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(cgroupDir(t, "freezer", cgroup), "cgroup.procs"))
	e2etest.Must(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	e2etest.Must(t, err)
	return pid
}

// makeCgroup makes a control group of version 1 that the test removes.
func makeCgroup(t *testing.T, controller, group string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal("needs a hierarchy of version 1 with the controller " + controller)
	}
	t.Cleanup(func() { eventually(t, "the control group is gone", func() bool { return unix.Rmdir(dir) == nil }) })
	return dir
}

// enter puts a process with all its threads into a control group.
func enter(t *testing.T, dir string, pid int) {
	t.Helper()
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
}
