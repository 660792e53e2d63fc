package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

	mountinfoV2 = "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n" +
		"26 22 0:24 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"

	cgroupRoot = "sys/fs/cgroup"
)

var testNames = Names{
	Runtimes: []string{"containerd", "crio", "dockerd", "cri-dockerd"},
	Shims:    []string{"containerd-shim*", "conmon", "conmonrs"},
	DataDirs: []string{"/var/lib/containerd"}, StateDirs: []string{"/run/containerd"},
}

// beChild lets a copy of this binary be a child, and stop where a real one would hang.
func beChild() {
	if len(os.Args) < 2 || os.Args[1] != ChildArgument {
		return
	}
	args := os.Args[2:]
	if i := slices.Index(args, "/stops"); i >= 0 {
		_ = Serve(args[:i], os.Stdout)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	os.Exit(Serve(args, os.Stdout))
}

var (
	must, equal, failed = testkit.Must, testkit.Equal, testkit.Failed
	eventually          = testkit.Eventually
)

func fixture(t testing.TB, name string) string { return testkit.Read(t, "testdata/"+name) }

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A node is a fixture tree of a node's files.
type node struct{ testkit.Tree }

func newNode(t testing.TB) *node {
	n := &node{testkit.NewTree(t)}
	n.Write("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\nbtime 1000\n")
	return n
}

func newNodeV2(t testing.TB) *node {
	n := newNode(t)
	n.Write("proc/1/mountinfo", mountinfoV2)
	return n
}

// fifo puts one in the place of a file: a reader waits in it as in a file of a process whose memory map is locked.
func (n *node) fifo(name string) string {
	n.Helper()
	file := n.Path(name)
	_ = os.Remove(file)
	must(n, syscall.Mkfifo(file, 0o600))
	return file
}

// untilRead returns a context that ends when a reader has opened a FIFO and waits in it, until the test ends.
func untilRead(t *testing.T, fifo string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan *os.File, 1)
	go func() {
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the reader has opened it
		if err != nil {
			t.Error(err)
		}
		held <- w
		cancel()
	}()
	t.Cleanup(func() {
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil { // lets go of the goroutine if there was no reader
			defer f.Close()
		}
		if w := <-held; w != nil {
			w.Close()
		}
	})
	return ctx
}

// statLine writes a /proc/PID/stat line as the kernel does, with 52 fields. A start of zero is one second after boot
// for each of the pid, no threads are one.
func statLine(st stat) string {
	flags := 0
	if st.kernel {
		flags = kernelThread
	}
	if st.start == 0 {
		st.start = uint64(st.pid) * userHZ
	}
	return fmt.Sprintf("%d (%s) %c %d 0 0 0 -1 %d 0 0 0 0 0 3 0 0 20 0 %d 0 %d 0 %d 18446744073709551615%s\n",
		st.pid, st.comm, st.state, st.ppid, flags, max(st.threads, 1), st.start, st.rss/os.Getpagesize(),
		strings.Repeat(" 0", 27))
}

func started(pid int) time.Time { return time.Unix(1000+int64(pid), 0) }

// process adds a process of one thread.
func (n *node) process(pid, ppid int, comm string, state byte, args string) {
	n.Helper()
	n.stat(stat{pid: pid, ppid: ppid, comm: comm, state: state})
	n.Write(procFile(pid, "cmdline"), strings.ReplaceAll(args, " ", "\x00")+"\x00", procFile(pid, "wchan"), "0")
}

// stat writes the stat of a process and of its main thread.
func (n *node) stat(st stat) {
	n.Helper()
	n.Write(procFile(st.pid, "stat"), statLine(st), procFile(st.pid, "task/"+strconv.Itoa(st.pid)+"/stat"), statLine(st))
}

func procFile(pid int, name string) string { return fmt.Sprintf("proc/%d/%s", pid, name) }

// processes is what can be seen of the node's processes.
func (n *node) processes() Population {
	n.Helper()
	processes, err := ReadPopulation(n.Context(), n.Root, testNames, Population{})
	must(n, err)
	return processes
}

// testChild is this test's program as a child: see TestMain.
func testChild(t *testing.T) Child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	return NewChild(self)
}
