package stacks

import (
	"fmt"
	"slices"
	"strings"
)

// The words of StackHolder.WaitsFor. The functions that show each are in tables.yaml.
const (
	WaitsTTRPC      = "ttrpc"     // the reply of a shim
	WaitsGRPC       = "grpc"      // a reply over gRPC: the kubelet's wait for the runtime
	WaitsRunc       = "runc"      // a child process of the OCI runtime
	WaitsCNI        = "cni"       // a CNI plugin
	WaitsChild      = "child"     // another child process
	WaitsBolt       = "bolt"      // the write lock of a bolt database
	WaitsFlock      = "flock"     // a lock on a file, which another process may hold
	WaitsLock       = "lock"      // a lock in memory
	WaitsFsync      = "fsync"     // the disk, to have written
	WaitsDisk       = "disk"      // another call to a file system
	WaitsMount      = "mount"     // a mount
	WaitsUmount     = "umount"    // an unmount
	WaitsFIFO       = "fifo"      // the other end of a FIFO
	WaitsRegistry   = "registry"  // an image registry
	WaitsNetwork    = "network"   // another peer
	WaitsRelist     = "relist"    // PLEG, to bring a newer status into the kubelet's pod cache
	WaitsExit       = "exit"      // a process in a container, to end
	WaitsChannel    = "channel"   // another goroutine, by a channel
	WaitsCondition  = "condition" // another goroutine, by a condition variable
	WaitsGoroutines = "goroutine" // the goroutines that it started
	WaitsSleep      = "sleep"     // a time
	WaitsSyscall    = "syscall"   // another system call
	WaitsNothing    = "nothing"   // it runs, or could
)

// byState tells the object of a wait by the beginning of the goroutine's state, if no rule matches.
var byState = []struct{ state, word, on string }{
	{"chan send", WaitsChannel, "a channel, to send"},
	{"chan", WaitsChannel, "a channel"},
	{"select", WaitsChannel, "a channel (select)"},
	{"IO wait", WaitsNetwork, "a file or socket"},
	{"syscall", WaitsSyscall, "a system call"},
	{"sleep", WaitsSleep, "a time"},
	{"sync.Cond", WaitsCondition, "a condition"},
	{"sem", WaitsLock, "a lock"},
	{"sync.", WaitsLock, "a lock"},
}

// loopStates are the states of a goroutine that waits for the next piece of work.
var loopStates = []string{"select", "chan receive", "sync.Cond.Wait", "sleep", "IO wait"}

// waitsFor returns what goroutine i waits for, as a word of the list and as a text: by its stack, else by its state.
func (a *analysis) waitsFor(i int) (word, on string) {
	p, g := a.at[i], &a.dump.Goroutines[i]
	switch {
	case g.State == "running" || g.State == "runnable":
		return WaitsNothing, "nothing: at work"
	case a.waits[i] != nil:
		return a.waits[i].word, a.waits[i].text
	case p.word == WaitsTTRPC:
		isClient := func(f *function) bool { return strings.HasPrefix(f.base, "ttrpc.(*Client).") }
		if client := a.addr(i, slices.IndexFunc(p.fns, isClient)); client != 0 {
			return p.word, fmt.Sprintf("%s client %#x)", strings.TrimSuffix(p.on, ")"), client)
		}
	}
	if p.word != "" {
		return p.word, p.on
	}
	for _, s := range byState {
		if strings.HasPrefix(g.State, s.state) {
			return s.word, s.on
		}
	}
	return WaitsNothing, "nothing: " + g.State
}

// A place is a stack, and the facts that it shows about its goroutines.
type place struct {
	fns      []*function
	idle     bool        // they wait as they should
	loop     bool        // they are loops that may wait for the next piece of work
	word, on string      // as waitsFor returns them; empty: the state decides
	lock     bool        // they wait for a lock
	writer   bool        // to write, which stops later readers
	owner    int         // the frame of the method around the lock; len(fns) if none
	call     string      // the RPC that they serve
	last     int         // the frame of its handler, or the outermost
	key      string      // the functions around the wait
	rules    []*holdRule // of the lock
	holds    []hold      // of other locks
	pictures []*Picture
}

// A hold is a frame in a function that holds the locks of a rule.
type hold struct {
	frame int
	rule  *holdRule
}

func (a *analysis) place(s *Stack) *place {
	if p, ok := a.places[s]; ok {
		return p
	}
	t := tables()
	p := &place{fns: make([]*function, len(s.Frames)), last: len(s.Frames) - 1, owner: len(s.Frames)}
	a.places[s] = p
	for i, fr := range s.Frames {
		f, ok := a.fns[fr.Func]
		if !ok {
			f = newFunction(fr.Func)
			a.fns[fr.Func] = f
		}
		p.fns[i] = f
		if p.owner > i && !f.std && !f.lock {
			p.owner = i
		}
		if p.owner > i {
			p.lock = p.lock || f.lock
			p.writer = p.writer || f.base == "sync.(*RWMutex).Lock"
		}
		if p.call == "" {
			if p.call = served(p.fns, i); p.call != "" {
				p.last = i
			}
		}
	}
	if p.lock {
		p.word, p.on = WaitsLock, "a lock"
	} else {
		p.findWait()
	}
	for _, r := range t.Holds {
		if p.lock && p.has(r.Waits) {
			p.rules = append(p.rules, r)
		}
		for i, f := range p.fns {
			if f.is(r.Holds) {
				p.holds = append(p.holds, hold{i, r})
			}
		}
	}
	for _, known := range t.Pictures {
		if p.hasAll(known.Frames) {
			p.pictures = append(p.pictures, known)
		}
	}
	for _, f := range p.fns[p.owner:min(p.owner+3, len(p.fns))] {
		p.key += "\n" + f.base
	}
	p.idle, p.loop = p.isIdle(), p.isLoop()
	return p
}

// names returns the functions of a stack up to the handler of the RPC, the innermost first.
func (p *place) names() []string {
	names := []string{}
	for _, f := range p.fns[:min(p.last+1, shownFrames)] {
		names = append(names, f.short)
	}
	return names
}

// isIdle reports whether a goroutine waits as it should, or works for another one in Go's library.
func (p *place) isIdle() bool {
	if p.has(tables().Idle) {
		return true
	}
	for _, f := range p.fns {
		if !f.std { // all below it is Go's library
			return slices.ContainsFunc(tables().Loops, func(loop string) bool {
				name, other, both := strings.Cut(loop, "&")
				return f.is(names{name}) && (!both || p.has(names{other}))
			})
		}
	}
	return true
}

// isLoop reports whether a goroutine waits for others in the function that it was started with, or in the function that
// this one calls if it is a closure. A goroutine that serves a call has more functions.
func (p *place) isLoop() bool {
	if p.word != "" && p.word != WaitsNetwork {
		return false
	}
	own := 0
	for _, f := range p.fns {
		if f.std || strings.HasPrefix(f.base, "wait.") { // package wait of Kubernetes calls a function at intervals
			continue
		}
		if own++; own > 2 || own == 2 && f.short == f.base {
			return false
		}
	}
	return own > 0
}

// served returns the RPC that the frame at i serves: ContainerStatus, of v1._RuntimeService_ContainerStatus_Handler.
func served(fns []*function, i int) string {
	name := fns[i].base
	_, last, _ := strings.Cut(name, ".")
	if rest, ok := strings.CutSuffix(last, "_Handler"); ok && strings.HasPrefix(rest, "_") {
		return rest[strings.LastIndexByte(rest, '_')+1:]
	}
	// A shim's: the method below task.RegisterTaskService. Docker's: container.(*containerRouter).getContainersJSON.
	if i > 0 && (strings.HasSuffix(name, ".RegisterTaskService") || strings.HasSuffix(name, "TTRPCTaskService")) {
		return fns[i-1].base[strings.LastIndexByte(fns[i-1].base, '.')+1:]
	}
	_, method, _ := strings.Cut(name, "Router).")
	return method
}
