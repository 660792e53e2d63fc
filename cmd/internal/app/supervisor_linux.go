package app

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// A thread that waits in a file system that does not answer keeps its whole process: neither exit nor SIGKILL ends it.
// So what looks at a host runs in a worker: this program, started anew with the same arguments and files. The
// supervisor, which reads nothing, ends with the worker's exit code as soon as that is known, and leaves the worker
// behind where it does not end. The two are connected by a socket: the worker writes its exit code, the supervisor the
// signals that it gets.

const (
	// workerArgument is the first argument of a worker, before the number of its socket. It is the worker's process
	// name too, by which a later run knows it as kdiag's own.
	workerArgument = "kdiag-run"
	// maxLeft are the workers that may be left behind. Where so many wait, kdiag ends with its worker, so that what
	// starts it each minute does not fill the node.
	maxLeft = 64
	// startTime is how long a worker may take to begin.
	startTime = 3 * time.Second
	// endTime is how long the supervisor waits for the end of a worker that has nothing left to do.
	endTime = 300 * time.Millisecond
)

// supervise runs kdiag in a worker and returns its exit code. ok is false where none could be started, as on a node
// that has no process left.
func supervise(args []string) (code int, ok bool) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	unix.CloseOnExec(pair[0]) // the worker's end keeps its number, which no file that was handed down has
	socket := os.NewFile(uintptr(pair[0]), "worker")
	defer socket.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // for the end of a worker that does not begin
	unbegun := time.AfterFunc(startTime, func() { host.EndUnbegun(os.Getpid()) })
	runtime.LockOSThread() // the worker is killed when the thread that started it ends
	worker, err := os.StartProcess("/proc/self/exe",
		slices.Concat([]string{os.Args[0], workerArgument, strconv.Itoa(pair[1])}, args),
		&os.ProcAttr{
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
	unix.Close(pair[1])
	if begun := unbegun.Stop(); err != nil || !begun {
		signal.Stop(signals)
		return 0, false
	}
	ended, done := make(chan syscall.WaitStatus, 1), make(chan int, 1)
	go func() {
		state, _ := worker.Wait() // it fails for no child of ours
		ended <- state.Sys().(syscall.WaitStatus)
	}()
	go func() {
		b := make([]byte, 1)
		if n, _ := socket.Read(b); n == 1 {
			done <- int(b[0])
		}
	}()
	return follow(worker.Pid, socket, signals, ended, done), true
}

// follow passes signals on until the worker has ended or has nothing left to do, and returns its exit code. If a signal
// killed it, or a second one did not, it ends this process in the same way.
func follow(
	worker int, socket io.Writer, signals <-chan os.Signal, ended <-chan syscall.WaitStatus, done <-chan int,
) (code int) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	var late <-chan time.Time
	var last syscall.Signal
	for interrupts := 0; ; {
		select {
		case status := <-ended:
			if status.Signaled() {
				endBy(status.Signal())
			}
			return status.ExitStatus()
		case code = <-done:
			late, last = time.After(endTime), 0
		case s := <-signals:
			signal := s.(syscall.Signal)
			_, _ = socket.Write([]byte{byte(signal)}) // it may be gone
			if interrupts++; signal == syscall.SIGHUP {
				interrupts--
			} else if interrupts == 2 {
				late, last = time.After(endTime), signal
			}
		case <-look.C:
			host.EndUnbegun(worker)
		case <-late:
			if last != 0 {
				endBy(last)
			}
			return code
		}
	}
}

// endBy ends this process as a signal does that nothing handles, which a shell reports.
func endBy(s syscall.Signal) {
	signal.Reset(s)
	_ = unix.Kill(os.Getpid(), s)
	time.Sleep(endTime)
	os.Exit(128 + int(s)) // as process 1 of a container, which no signal of its own kills
}

// work runs kdiag as the worker of the supervisor at the other end of a socket.
func work(ctx context.Context, env cli.Env, args []string) int {
	number, err := strconv.Atoi(args[0])
	if err != nil || number <= 2 {
		return cli.ExitUnknown
	}
	unix.CloseOnExec(number)
	socket := os.NewFile(uintptr(number), "supervisor")
	threads, _ := filepath.Glob("/proc/self/task/*/comm")
	for _, comm := range threads { // those that start later inherit it
		_ = os.WriteFile(comm, []byte(workerArgument), 0)
	}
	relayed := make(chan os.Signal)
	go func() {
		b := make([]byte, 1)
		for n, _ := socket.Read(b); n == 1; n, _ = socket.Read(b) {
			if s := syscall.Signal(b[0]); s == syscall.SIGQUIT {
				_ = unix.Kill(os.Getpid(), s) // Go's runtime prints what each goroutine does
			} else {
				relayed <- s
			}
		}
	}()
	ctx, stop := interruptible(ctx, true, relayed)
	defer stop()
	code := run(ctx, env, args[1:])
	letGo(number)
	if deadline.Abandoned() {
		debug.FreeOSMemory()
		if host.CountHanging(workerArgument) >= maxLeft {
			return code // the supervisor waits for the end of this process
		}
	}
	_, _ = socket.Write([]byte{byte(code)})
	return code
}

// letGo gives up what others wait for while this process does not end: pipes, sockets and terminals, the session and
// the working directory. Files stay open: to close one on a file system that hangs would hang.
func letGo(socket int) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		number, _ := strconv.Atoi(filepath.Base(name))
		target, _ := os.Readlink(name)
		kind, _, _ := strings.Cut(target, ":")
		stream := kind == "pipe" || kind == "socket" || strings.HasPrefix(target, "/dev/")
		if number != null && number != socket && (stream || number == 1 || number == 2) { // or a FIFO
			_ = unix.Dup3(null, number, unix.O_CLOEXEC)
		}
	}
	_, _ = unix.Setsid()
	_ = unix.Chdir("/")
}
