package facts

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// Watchers are the listeners of fanotify that may hold up the intercepted tasks: those that are stopped, or wait for an
// answer themselves, else all; sure is set where these are known not to answer.
func Watchers(f *Facts) (list []host.Watcher, sure bool) {
	all := f.Seen.Tasks.Value.Watchers
	silent := filter(all, func(w host.Watcher) bool {
		return w.State == 'T' || w.State == 't' || slices.ContainsFunc(f.Node.Tasks.Value.Blocked,
			func(t host.BlockedTask) bool { return t.PID == w.PID && WaitOf(t) == WaitWatcher })
	})
	if len(silent) > 0 {
		return silent, true
	}
	return all, false
}

// BeginsProgram returns the process of a task where it is at work for a daemon or a shim, and most likely waits to
// begin its program.
func BeginsProgram(f *Facts, t host.BlockedTask) (host.Process, bool) {
	i := slices.IndexFunc(f.Processes, func(p host.Process) bool {
		return p.PID == t.PID && (p.Role == host.RoleOCI || p.Daemon == p.PPID && p.Daemon != 0)
	})
	if i < 0 {
		return host.Process{}, false
	}
	return f.Processes[i], true
}

// watcherPatience is the time after which a listener of fanotify does not answer. One that reads each file takes
// seconds for a large one.
const watcherPatience = 4 * time.Second

// watcherDelays returns the sign that a task waits for a listener of fanotify that does not answer; empty for none.
func watcherDelays(f *Facts, t host.BlockedTask) string {
	if t.Waited >= watcherPatience {
		return "it has waited there for " + units.Duration(t.Waited) + " without a break"
	}
	if _, sure := Watchers(f); sure {
		return "the program that must answer does not run"
	}
	return ""
}
