package capture

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
)

// startSlack is by how much two readings of the start of one process differ at most: the kernel works out the time of
// boot, to the second, from a clock that may be set in between.
const startSlack = 2 * time.Second

// order has a process write a dump and waits for it. The handle is opened before anything is checked: if the process
// ends, and its id is given to another, the handle leads nowhere and the signal is not sent. Before Linux 5.3 there is
// no such handle, and no signal is sent.
func (in Input) order(ctx context.Context, p, daemon host.Process) (written, error) {
	if kubelet.Apart(in.Root, 1, "pid") {
		return written{}, unsent("kdiag is in another pid namespace than the processes in %s",
			filepath.Join(in.Root, "proc"))
	}
	fd, err := openProcess(p.PID)
	if err != nil {
		return written{}, unsent("a handle (pidfd) of %s cannot be opened (%v)", label(p), err)
	}
	defer unix.Close(fd)
	if err := in.prove(ctx, p); err != nil {
		return written{}, err
	}
	if w, ok := in.ask(ctx, p); ok {
		return w, nil
	}
	if why := stands(ctx, in.Root, daemon.PID); why != "" { // a shim would stand still with its pipe full
		return written{}, stuckError{unsent("%s writes its goroutines to the log of %s, which %s", label(p),
			label(daemon), why)}
	}
	where := in.placesOf(p, daemon)
	if len(where) == 0 {
		return written{}, unsent("where %s would write its goroutines cannot be read", label(p))
	}
	names := make([]string, len(where))
	for i, w := range where {
		names[i] = w.name
	}
	in.say("send SIGUSR1 to %s: it writes its goroutines to %s", label(p), strings.Join(names, " and "))
	if ctx.Err() != nil {
		return written{}, unsent("%s: the time is over", label(p))
	}
	if err := sendDump(fd); err != nil {
		return written{}, unsent("%s: %v", label(p), err)
	}
	w, ok := await(ctx, where)
	if !ok {
		return w, stuckError{fmt.Errorf("%s was sent SIGUSR1 and wrote no dump in time (looked at %s)", label(p),
			strings.Join(names, ", "))}
	}
	return w, nil
}

// unsent is the error for a process that was left alone.
func unsent(format string, args ...any) error {
	return fmt.Errorf(format+": no signal was sent", args...)
}

// prove returns an error for a process that must not be sent the signal: a stuckError when it could not write a dump
// now, and for a shim that never writes one; any other when it may be another process than it seems, or would die.
func (in Input) prove(ctx context.Context, p host.Process) error {
	v, err := host.ReadVitals(in.Root, p.PID)
	if err != nil {
		return unsent("%w", err)
	}
	const bit = 1 << (unix.SIGUSR1 - 1)
	known := p.Started.IsZero() || v.Started.Sub(p.Started).Abs() <= startSlack
	shim := p.Role == host.RoleShim
	still := stands(ctx, in.Root, p.PID)
	for _, r := range []struct {
		holds, stuck bool
		reason       string
	}{
		{!known, false, "is another process than before"},
		{v.State == 'Z' || v.State == 'X', false, "is a zombie"},
		{kubelet.Apart(in.Root, p.PID, "pid"), false, "has a pid namespace of its own, as a pod has"},
		{!knownProgram(p.Role, v), shim, fmt.Sprintf("runs the program %s, which is no known %s", v.Program, p.Role)},
		{v.Caught&bit == 0 || v.Blocked&bit != 0, shim, "does not handle SIGUSR1 and could die of it"},
		{v.Pending&bit != 0, true, "has not received an earlier SIGUSR1 yet"},
		{still != "", true, still + " and could write its goroutines only later"},
	} {
		switch err := unsent("%s %s", label(p), r.reason); {
		case r.holds && r.stuck:
			return stuckError{err}
		case r.holds:
			return err
		}
	}
	return nil
}

// knownProgram reports whether the program of a process is one that writes its goroutines when it gets the signal.
// k3s's program is containerd too, under that name. conmon is a shim of another kind: it opens its log anew.
func knownProgram(role host.Role, v host.Vitals) bool {
	return slices.ContainsFunc(crictl.Installations(), func(i crictl.Installation) bool {
		if role == host.RoleShim {
			return strings.HasPrefix(v.Program, "containerd-shim") && slices.Contains(i.Shims, "containerd-shim*")
		}
		return slices.Contains(i.Processes, v.Program) || v.Program == "k3s" && v.Name == "containerd"
	})
}

// stands returns why no thread of a process could run a handler of a signal; empty when one could. All threads of a
// busy daemon may wait for its disk for a moment, so that must last.
func stands(ctx context.Context, root string, pid int) (why string) {
	for range 2 {
		threads, _ := host.ReadThreads(ctx, root, pid)
		stopped, frozen, asleep := 0, 0, 0
		for _, t := range threads {
			switch {
			case t.State == 'T' || t.State == 't':
				stopped++
			case t.Wchan == "do_freezer_trap" || t.Wchan == "__refrigerator": // of control groups 2 and 1
				frozen++
			case t.State == 'D': // also where the freezer met it in another wait
				asleep++
			}
		}
		switch n := len(threads); {
		case n == 0 || stopped+frozen+asleep < n:
			return ""
		case frozen > 0:
			return "is frozen by its control group"
		case stopped > 0: // the others stop when their disk answers
			return "is stopped"
		default:
			why = fmt.Sprintf("is in uninterruptible sleep with all %d threads", n)
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
	return why
}
