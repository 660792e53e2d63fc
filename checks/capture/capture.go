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
	// patience is how long one process may take. Its dump is there within a second, unless it or its disk is stuck; one
	// of 15,000 goroutines took containerd 3 to 10 s on a machine with two busy cores.
	patience = 15 * time.Second
	// brief is how long a shim may take, which writes some 30 KB, and a debug socket.
	brief = 3 * time.Second
	// probePatience bounds the question of who listens on the runtime's socket.
	probePatience = time.Second
	// pollEvery is the time between two looks for a dump. What has not grown in between is whole.
	pollEvery = 200 * time.Millisecond
	// stuckWork is the age from which the work of a shim or of what it started is stuck, as facts.StuckWork.
	stuckWork = 30 * time.Second
	// minID is how much of an id must be given: what is shorter is a pid.
	minID = 4
)

// A Dump is what one process wrote. Text is empty where it wrote nothing: Source.Problem is why.
type Dump struct {
	Source checks.StackSource
	Text   []byte // as it was written, at most maxDump bytes; Source.Cut is set when there was more
	Before *Dump  // one that the process wrote a little earlier; nil without
}

// Input is what captures need.
type Input struct {
	Root string // the host's file system as this process sees it
	// Socket is the address of the runtime's socket for this process.
	Socket string
	// Processes are the daemons and shims on this host.
	Processes []host.Process
	// Kubelet are the kubelet's settings, with PID 0 where none runs.
	Kubelet     kubelet.Settings
	Credentials kubelet.Credentials // for the kubelet's server
	// APIServer allows to ask the API server of the kubelet's kubeconfig for the kubelet's dump where the kubelet
	// itself refuses.
	APIServer bool
	// Say is told what is about to be done, in a line for a person, before it is done; nil for nobody.
	Say func(string)
}

// Runtime takes a dump of the daemon that listens on the socket. Behind cri-dockerd, which writes none, it is that of
// dockerd.
func Runtime(ctx context.Context, in Input) Dump {
	p, err := in.daemon(ctx)
	if err != nil {
		return Dump{Source: checks.StackSource{Role: string(host.RoleRuntime), Problem: err.Error()}}
	}
	return in.take(ctx, p, p, patience)
}

// daemon returns the process that listens on the socket. Where the socket does not name it (systemd opened it, or it
// accepts no more connections), it is the runtime that has the socket open, else the only runtime on this host.
func (in Input) daemon(ctx context.Context) (host.Process, error) {
	probing, cancel := context.WithTimeout(ctx, probePatience)
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
	case len(found) == 0 && peer > 1: // which is not proven to be one
		return host.Process{PID: peer, Role: host.RoleRuntime}, nil
	case len(found) == 0:
		return host.Process{}, errors.New("no process of a container runtime is seen on this host")
	case len(found) > 1:
		return host.Process{}, fmt.Errorf("which of the processes %s listens on %s is not known", pids(found), path)
	}
	return found[0], nil
}

// with returns the processes of a role that fit.
func (in Input) with(role host.Role, fits func(p host.Process) bool) (list []host.Process) {
	for _, p := range in.Processes {
		if p.Role == role && fits(p) {
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

// Shims takes dumps of shims: by the id of their sandbox or container (or its beginning), by pid, or all that are
// stuck, which may be none. The error is of usage: no shim fits, or several.
func Shims(ctx context.Context, in Input, which string) ([]Dump, error) {
	shims, err := in.choose(which, time.Now())
	var dumps []Dump
	for _, p := range shims {
		p.Name = cmp.Or(p.Program, p.Name)
		var daemon host.Process // reads the pipe into which the shim writes
		listens := func(d host.Process) bool { return slices.Contains(d.Sockets, p.Address) }
		if found := in.with(host.RoleRuntime, listens); len(found) == 1 {
			daemon = found[0]
		}
		dumps = append(dumps, in.take(ctx, p, daemon, brief))
	}
	return dumps, err
}

// choose returns the shims that are meant.
func (in Input) choose(which string, now time.Time) ([]host.Process, error) {
	if which == "stuck" {
		return in.with(host.RoleShim, func(p host.Process) bool { return in.isStuck(p, now) }), nil
	}
	pid, _ := strconv.Atoi(which)
	found := in.with(host.RoleShim, func(p host.Process) bool { return p.PID == pid })
	if len(found) == 0 && len(which) >= minID {
		found = in.with(host.RoleShim, func(p host.Process) bool { return strings.HasPrefix(p.ObjectID, which) })
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no shim on this host has the pid %s, or serves a sandbox or container with an id that "+
			"begins so (at least %d letters)", which, minID)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%s fits several shims: %s; give more of the id, or a pid", which, pids(found))
}

// isStuck reports whether a shim looks stuck, by the rules of facts.Shims: it is stopped, sleeps uninterruptibly for
// good, or is too long at work, itself or through the OCI runtime that it started.
func (in Input) isStuck(p host.Process, now time.Time) bool {
	isOld := func(o host.Process) bool {
		return o.Work != "" && o.State != 'Z' && !o.Started.IsZero() && now.Sub(o.Started) >= stuckWork
	}
	return p.State == 'T' || p.State == 't' || p.Lasting || isOld(p) || slices.ContainsFunc(in.Processes,
		func(o host.Process) bool { return o.Role == host.RoleOCI && o.PPID == p.PID && isOld(o) })
}

// Kubelet takes a dump of the kubelet from its own server, or, where that refuses and in.APIServer is set, through the
// API server. Of a kubelet that does not answer there are the stacks in the kernel.
func Kubelet(ctx context.Context, in Input) Dump { return in.kubelet(ctx, patience) }

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

// take has a process write a dump, and reads it where the process may write it. daemon is the process that keeps its
// log: for a shim its containerd. What hangs is abandoned.
func (in Input) take(ctx context.Context, p, daemon host.Process, limit time.Duration) Dump {
	d := Dump{Source: checks.StackSource{Process: p.Name, PID: p.PID, Role: string(p.Role), ObjectID: p.ObjectID}}
	waiting, cancel := context.WithTimeout(ctx, part(ctx, limit))
	defer cancel()
	w, err := deadline.RunGrace(waiting, "dumping "+label(p), 2*pollEvery, func(ctx context.Context) (written, error) {
		return in.order(ctx, p, daemon)
	})
	if errors.Is(err, deadline.ErrAbandoned) {
		err = stuckError{fmt.Errorf("reading files of %s took longer than the time that is left for it", label(p))}
	}
	d.fill(ctx, in.Root, w, err)
	return d
}

// part is the part of the time of ctx in which a dump is waited for: some is left for the stacks in the kernel.
func part(ctx context.Context, limit time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)*3/4)
	}
	return limit
}

// A stuckError is returned for a process that could not write a dump, but is the one that it seems.
type stuckError struct{ error }

// fill takes over what was written, or why nothing was.
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

// kernelStacks returns where the threads of a process are in the kernel, most threads first.
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
