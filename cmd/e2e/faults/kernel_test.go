//go:build e2e

package faults

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// vforkEnv and mapEnv make the test binary the process that waitInKernel or lockMap starts: TestMain looks for them.
const (
	vforkEnv = "KDIAG_TEST_VFORK"
	mapEnv   = "KDIAG_TEST_MAP" // names a file
)

// vfork stays in vfork, which is uninterruptible sleep, until its child is killed.
func vfork() {
	os.Stdout.WriteString("up\n")
	flags := syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD)
	if pid, _, _ := syscall.RawSyscall(syscall.SYS_CLONE, flags, 0, 0); pid == 0 {
		// The child has one thread and no scheduler: nothing but system calls.
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	os.Exit(0)
}

// waitInKernel puts a process into the second pod's container that sleeps uninterruptibly.
func (r rig) waitInKernel(t *testing.T, at *place) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), vforkEnv+"=1")
	e2etest.StartUntilUp(t, cmd)
	e2etest.Enter(t, e2etest.Cgroup(t, "freezer", r.Group), cmd.Process.Pid)
	e2etest.Eventually(t, "a thread in vfork", func() bool {
		return e2etest.ThreadHas(cmd.Process.Pid, "stat", ") D ")
	})
	at.Culprit = strconv.Itoa(cmd.Process.Pid)
}

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

// lockMap puts a process into the second pod's container whose memory map stays locked: it has a page to write to a
// file system that takes none.
func (r rig) lockMap(t *testing.T, at *place) {
	fuse, point := nodebox.OpenDeadFuse(t), t.TempDir()
	fuse.File = true
	end := fuse.Mount(t, point)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), mapEnv+"="+point+"/file")
	e2etest.StartUntilUp(t, cmd)
	t.Cleanup(end) // before the process ends, or it would not
	e2etest.Enter(t, e2etest.Cgroup(t, "freezer", r.Group), cmd.Process.Pid)
	e2etest.Eventually(t, "it writes its page", func() bool {
		return e2etest.ThreadHas(cmd.Process.Pid, "stack", "vm_mmap") // Go chooses the thread
	})
	at.Culprit = strconv.Itoa(cmd.Process.Pid)
}
