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
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/proc"
)

// startSlack is the most that two readings of a process's start time differ: the kernel computes the time of boot, to
// the second, from a clock that may be set in between.
const startSlack = 2 * time.Second

// order has a process write a dump and waits for it. It opens the pidfd before it checks anything: if the process ends
// and its pid is used again, the signal reaches nobody. Before Linux 5.3 there is no pidfd, and no signal is sent.
func (in Input) order(ctx context.Context, p, daemon host.Process) (written, error) {
	if proc.Apart(proc.Self, proc.Dir(in.Root, 1), "pid") {
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
	if why := stands(ctx, in.Root, daemon.PID); why != "" { // a shim would block on its full pipe
		return written{}, stuckError{unsent("%s writes its goroutines to the log of %s, which %s", label(p),
			label(daemon), why)}
	}
	where := in.placesOf(p, daemon)
	if len(where) == 0 {
		return written{}, unsent("cannot read the file or log into which %s would write its goroutines", label(p))
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

// unsent returns an error that says that no signal was sent.
func unsent(format string, args ...any) error {
	return fmt.Errorf(format+": no signal was sent", args...)
}

// prove returns an error for a process that must not get the signal: a stuckError if it could not write a dump now, or
// is a shim that never writes one; another error if it may not be the expected process, or would die.
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
		{proc.Apart(proc.Self, proc.Dir(in.Root, p.PID), "pid"), false, "has a pid namespace of its own, as a pod has"},
		{!knownProgram(p.Role, v), shim, fmt.Sprintf("runs the program %s, which is not a known %s", v.Program, p.Role)},
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

// knownProgram reports whether a process runs a program that writes its goroutines on SIGUSR1. k3s is containerd too,
// under that process name. conmon is not: it reopens its log.
func knownProgram(role host.Role, v host.Vitals) bool {
	return slices.ContainsFunc(crictl.Installations(), func(i crictl.Installation) bool {
		if role == host.RoleShim {
			return strings.HasPrefix(v.Program, "containerd-shim") && slices.Contains(i.Shims, "containerd-shim*")
		}
		return slices.Contains(i.Processes, v.Program) || v.Program == "k3s" && v.Name == "containerd"
	})
}

// stands returns why no thread of a process can handle a signal; empty when one can. All threads of a busy daemon may
// wait for its disk for a moment, so it looks twice.
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
			case t.State == 'D': // also if frozen during another wait
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
