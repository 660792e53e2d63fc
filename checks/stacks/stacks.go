// Package stacks reads goroutine dumps, as Go programs write them on SIGUSR1 or SIGQUIT and at /debug/pprof, and works
// out who waits for what, since when, and who probably holds it. Reading is bounded in memory; the rest is pure.
package stacks

import (
	"time"

	"github.com/kdiag/kdiag/checks"
)

// A Frame is one call of a stack.
type Frame struct {
	Func string // with its import path: github.com/containerd/ttrpc.(*Client).dispatch
	Line int
}

// A Stack is what goroutines at one place have in common. Goroutines share it; it must not be changed.
type Stack struct {
	Frames []Frame // the innermost first
}

// A Goroutine is one goroutine of a dump.
type Goroutine struct {
	ID    int
	State string        // as the Go runtime writes it: running, select, sync.Mutex.Lock, IO wait, syscall
	Wait  time.Duration // whole minutes; 0 below the first
	Stack *Stack
	// Addrs are the first arguments of the frames of Stack, innermost first: the receiver of a method, the lock of a
	// function of package sync; 0 where there is none. It may be shorter than Frames. An address that the dump marks
	// with a question mark may be outdated. Goroutines share it; it must not be changed.
	Addrs []uint64
}

// A Dump is what one process wrote at one time.
type Dump struct {
	Source     checks.StackSource
	Goroutines []Goroutine
	Before     *Dump // an older one of the same process, as evidence of what stands still; nil without
}

// A Candidate is a process on the host that a goroutine may wait for.
type Candidate struct {
	Process checks.Process
	Subject *checks.Subject // that it serves; nil for a daemon, or when not known
	Parent  int             // pid of the process that started it
	Daemon  int             // pid of the runtime's daemon that it belongs to; 0 when not known
	Work    string          // the command of an OCI runtime or a CNI plugin: create, DEL; empty when not known
	Stuck   string          // why it looks stuck: stopped, at work for 4m; empty if it does not
}

// A Picture is a known way to hang.
type Picture struct {
	ID     string   // container-status-lock
	Title  string   // a few words
	Means  string   // one or two sentences: what hangs, what it holds, what to do
	Links  []string // the thread in which it was found
	Causes []string // codes of causes that it supports
	Role   string   // of the process: runtime, shim, kubelet

	Frames []names  // all are in the stack of the goroutine
	Words  []string // it waits for one of these; empty for any
	Blocks bool     // it holds what others wait for
	Waits  bool     // it need not have waited for a minute
}
