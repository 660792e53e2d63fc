// Package capture takes goroutine dumps of running daemons: of the runtime behind a socket, of shims, of the kubelet.
// It sends SIGUSR1 only to a process that is proven to be what it seems and to handle the signal. Of a process that is
// too stuck to dump it reads the stacks of its threads in the kernel.
package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

const (
	// maxDump bounds a dump, in bytes. One of 10,000 goroutines has about 20 MB.
	maxDump = 64 << 20
	// timeout bounds the dump of one process. A process writes it within a second, unless it or its disk is stuck;
	// 15,000 goroutines took containerd 3 to 10 s on a machine with two busy cores.
	timeout = 15 * time.Second
	// shimTimeout bounds the dump of a shim, which has some 30 KB, and the reply of a debug socket.
	shimTimeout = 3 * time.Second
	// probeTimeout bounds finding the process that listens on the runtime's socket.
	probeTimeout = time.Second
	// pollEvery is the time between two reads of a dump's file. A dump that has not grown since the last is whole.
	pollEvery = 200 * time.Millisecond
	// minID is the least length of the beginning of an id. A shorter argument is a pid.
	minID = 4
)

// A Dump is the goroutine dump of one process. Text is empty where it wrote none: Source.Problem says why.
type Dump struct {
	Source checks.StackSource
	Text   []byte // at most maxDump bytes; Source.Cut is set when there was more
	Before *Dump  // an earlier one of the process; nil without
}

// Input describes the host and how to ask its daemons.
type Input struct {
	Root string // the host's file system as this process sees it
	// Socket is the address of the runtime's socket, as this process sees it.
	Socket string
	// Processes are the daemons and shims on this host.
	Processes []host.Process
	// Kubelet are the kubelet's settings, with PID 0 where none runs.
	Kubelet     kubelet.Settings
	Credentials kubelet.Credentials // for the kubelet's server
	// APIServer allows to ask the API server of the kubelet's kubeconfig for the kubelet's dump where the kubelet
	// itself refuses.
	APIServer bool
	// Say is called before each step with a line for a person; it may be nil.
	Say func(string)
}

// Runtime takes a dump of the daemon that listens on the socket. Behind cri-dockerd, which writes none, it is that of
// dockerd.
func Runtime(ctx context.Context, in Input) Dump {
	p, err := in.daemon(ctx)
	if err != nil {
		return Dump{Source: checks.StackSource{Role: string(host.RoleRuntime), Problem: err.Error()}}
	}
	return in.take(ctx, p, p, timeout)
}

// daemon returns the process that listens on the socket. Where the socket does not name it (systemd opened it, or it
// accepts no more connections), it is the runtime that has the socket open, else the only runtime on this host.
func (in Input) daemon(ctx context.Context) (host.Process, error) {
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	peer := crictl.Probe(probing, in.Socket).PeerPID
	path := strings.TrimPrefix(strings.TrimPrefix(in.Socket, "unix://"), strings.TrimSuffix(in.Root, "/"))
	found := in.with(host.RoleRuntime, func(p host.Process) bool {
		return p.PID == peer || peer <= 1 && slices.Contains(p.Sockets, path)
	})
	if len(found) == 0 && peer <= 1 {
		found = in.with(host.RoleRuntime, func(host.Process) bool { return true })
	}
	if len(found) == 1 && found[0].Name == "cri-dockerd" {
		found = in.with(host.RoleRuntime, func(p host.Process) bool { return p.Name == "dockerd" })
	}
	switch {
	case len(found) == 0 && peer > 1: // prove will tell whether it is a runtime
		return host.Process{PID: peer, Role: host.RoleRuntime}, nil
	case len(found) == 0:
		return host.Process{}, errors.New("no process of a container runtime found on this host")
	case len(found) > 1:
		return host.Process{}, fmt.Errorf("several processes may listen on %s: %s", path, pids(found))
	}
	return found[0], nil
}

// with returns the living processes of a role that match.
func (in Input) with(role host.Role, matches func(p host.Process) bool) (list []host.Process) {
	for _, p := range in.Processes {
		if p.Role == role && p.State != 'Z' && matches(p) {
			list = append(list, p)
		}
	}
	return list
}

func pids(list []host.Process) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = strconv.Itoa(p.PID)
	}
	return strings.Join(words, ", ")
}

// Shims takes dumps of shims.
func Shims(ctx context.Context, in Input, shims []host.Process) (dumps []Dump) {
	for _, p := range shims {
		p.Name = cmp.Or(p.Program, p.Name)
		var daemon host.Process // reads the pipe into which the shim writes
		listens := func(d host.Process) bool { return slices.Contains(d.Sockets, p.Address) }
		if found := in.with(host.RoleRuntime, listens); len(found) == 1 {
			daemon = found[0]
		}
		dumps = append(dumps, in.take(ctx, p, daemon, shimTimeout))
	}
	return dumps
}

// FindShim returns the shim of a pid, or of a sandbox or container by its id or the beginning of that.
func (in Input) FindShim(which string) (host.Process, error) {
	pid, _ := strconv.Atoi(which)
	found := in.with(host.RoleShim, func(p host.Process) bool { return p.PID == pid })
	if len(found) == 0 && len(which) >= minID {
		found = in.with(host.RoleShim, func(p host.Process) bool { return strings.HasPrefix(p.ObjectID, which) })
	}
	switch len(found) {
	case 0:
		return host.Process{}, fmt.Errorf("no shim on this host has the pid %s, or serves a sandbox or container with "+
			"an id that begins so (at least %d letters)", which, minID)
	case 1:
		return found[0], nil
	}
	return host.Process{}, fmt.Errorf("%s fits several shims: %s; give more of the id, or a pid", which, pids(found))
}

// Kubelet takes a dump of the kubelet from its own server, or, where that refuses and in.APIServer is set, through the
// API server. Of a kubelet that does not answer there are the stacks in the kernel.
func Kubelet(ctx context.Context, in Input) Dump { return in.kubelet(ctx, timeout) }

func (in Input) kubelet(ctx context.Context, limit time.Duration) Dump {
	d := Dump{Source: checks.StackSource{Process: "kubelet", PID: in.Kubelet.PID, Role: string(host.RoleKubelet)}}
	waiting, cancel := context.WithTimeout(ctx, part(ctx, limit))
	defer cancel()
	if in.Kubelet.PID != 0 {
		in.say("ask the kubelet (pid %d) for its goroutines at %s", in.Kubelet.PID, in.Kubelet.Address)
	}
	g, err := kubelet.AskGoroutines(waiting, in.Root, in.Kubelet, in.Credentials, in.APIServer, maxDump+1)
	if g.Hung {
		err = stuckError{err}
	}
	d.fill(ctx, in.Root, written{name: g.URL, text: g.Text}, err)
	return d
}

// take has a process write a dump and reads it. daemon is the process that keeps its log: for a shim its containerd. A
// read that hangs is abandoned.
func (in Input) take(ctx context.Context, p, daemon host.Process, limit time.Duration) Dump {
	d := Dump{Source: checks.StackSource{Process: p.Name, PID: p.PID, Role: string(p.Role), ObjectID: p.ObjectID}}
	waiting, cancel := context.WithTimeout(ctx, part(ctx, limit))
	defer cancel()
	w, err := deadline.RunGrace(waiting, "dumping "+label(p), 2*pollEvery, func(ctx context.Context) (written, error) {
		return in.order(ctx, p, daemon)
	})
	if errors.Is(err, deadline.ErrAbandoned) {
		err = stuckError{fmt.Errorf("reading the files of %s: no reply in time", label(p))}
	}
	d.fill(ctx, in.Root, w, err)
	return d
}

// part returns how long to wait for a dump: at most limit, and three quarters of the time of ctx. The rest is for the
// stacks in the kernel.
func part(ctx context.Context, limit time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)*3/4)
	}
	return limit
}

// A stuckError is the error for a process that was recognised but could not write a dump.
type stuckError struct{ error }

// fill stores a dump, or why there is none.
func (d *Dump) fill(ctx context.Context, root string, w written, err error) {
	if err != nil {
		d.Source.Problem = err.Error()
		if _, stuck := errors.AsType[stuckError](err); stuck {
			d.Source.Kernel = kernelStacks(ctx, root, d.Source.PID)
		}
		return
	}
	if len(w.text) > maxDump {
		w.text, w.cut = w.text[:maxDump], fmt.Sprintf("only the first %d MiB were kept", maxDump>>20)
	}
	now := time.Now()
	d.Text, d.Source.Name, d.Source.Cut, d.Source.CapturedAt = w.text, w.name, w.cut, &now
}

// kernelStacks returns the stacks of a process's threads in the kernel, the most frequent first.
func kernelStacks(ctx context.Context, root string, pid int) (list []checks.KernelStack) {
	threads, _ := host.ReadThreads(ctx, root, pid)
	for _, t := range threads {
		i := slices.IndexFunc(list, func(k checks.KernelStack) bool {
			return k.State == string(t.State) && k.Wchan == t.Wchan && slices.Equal(k.Stack, t.Stack)
		})
		if i < 0 {
			i = len(list)
			list = append(list, checks.KernelStack{State: string(t.State), Wchan: t.Wchan, Stack: t.Stack})
		}
		list[i].Threads++
	}
	slices.SortStableFunc(list, func(a, b checks.KernelStack) int { return b.Threads - a.Threads })
	return list
}

func (in Input) say(format string, args ...any) {
	if in.Say != nil {
		in.Say(fmt.Sprintf(format, args...))
	}
}

// label names a process for people.
func label(p host.Process) string {
	return fmt.Sprintf("%s (pid %d)", cmp.Or(p.Name, "the process"), p.PID)
}
