package causes

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// OpensIntercepted is the code of this cause.
const OpensIntercepted = "OpensIntercepted"

func recogniseOpensIntercepted(f *facts.Facts) *Finding {
	tasks := f.Tasks.Intercepted
	if len(tasks) == 0 {
		return nil
	}
	watchers, sure := facts.Watchers(f)
	var e checks.Evidence
	var subjects []checks.Subject
	for _, w := range watchers {
		Addf(&e.For, "%s must permit opens (fanotify), and is %s", watcherName(f, w), watcherProcess(w).StateWord())
		subjects = append(subjects, facts.ProcessSubject(f, watcherProcess(w), w.Owner))
	}
	for _, t := range top(tasks) {
		e.For = append(e.For, TaskLine(f, t))
	}
	Addf(&e.For, "it lasts: %s", facts.Corroboration(f, tasks[0]))
	since, starts := time.Time{}, false
	for _, t := range tasks {
		if p, ok := facts.BeginsProgram(f, t); ok {
			starts = true
			if since.IsZero() || p.Started.Before(since) {
				since = p.Started
			}
		}
	}
	addIf(!since.IsZero(), &e.For, "since %s or earlier: then the oldest of the waiting processes was started",
		facts.MomentText(f, since))
	step := ifElse(sure || len(watchers) == 1, checks.Certain, checks.Strong)
	who := "a listener of fanotify"
	switch {
	case len(watchers) == 0:
		Addf(&e.Missing, "the listener: no process that is seen from here has one")
		missing(f.Seen.Tasks, &e, "descriptors of processes")
	case len(watchers) == 1 || sure:
		first := watcherProcess(watchers[0])
		who = watcherName(f, watchers[0]) + ifElse(facts.IsStopped(&first), ", which is stopped,", "")
	default:
		who = "one of " + watcherName(f, watchers[0]) + andMore(len(watchers)-1, "listener")
	}
	summary := textf("%s waits for %s to permit the opening of a file", taskName(f, tasks[0]), who) +
		andMore(len(tasks)-1, "task")
	x := newFinding(criticalIf(opensHoldNode(f)), step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		adviseWatchers(f, s, watchers)
	})
	if starts {
		x.Effect = besides(f, "containers cannot start or stop: a program that they need does not begin")
	}
	return x
}

func watcherProcess(w host.Watcher) host.Process {
	return host.Process{PID: w.PID, Name: w.Name, Role: w.Role, State: w.State, Started: w.Started}
}

// watcherName names a listener: avscand (pid 812) of security/sensor-x2lz.
func watcherName(f *facts.Facts, w host.Watcher) string {
	return processOwned(f, w.PID, w.Name, w.Owner)
}

// adviseWatchers adds the steps that let the waiting tasks go on. A shell has kill and echo in itself; other commands
// are programs, whose start may wait as well.
func adviseWatchers(f *facts.Facts, s *Steps, watchers []host.Watcher) {
	s.Look("grep -l ^fanotify /proc/[0-9]*/fdinfo/* 2>/dev/null", "List all listeners. Stay in a shell that is open: "+
		"a login, or any program, may wait as well")
	for _, w := range top(watchers) {
		p := watcherProcess(w)
		if p.PID <= 1 {
			continue
		}
		s.lookStack(p.PID, textf("Look where %v waits: does it read its events?", p))
		if facts.IsStopped(&p) {
			s.resume(p)
		}
		s.Add(checks.TouchesProcess, textf("kill -KILL %d", p.PID),
			textf("End %v: all that wait for it go on at once. What starts it anew may stop them again", p))
		addDeletePod(f, s, podOf(f, w.PodUID), "Delete the listener's pod, once programs start again")
	}
	s.lookBlocked()
}
