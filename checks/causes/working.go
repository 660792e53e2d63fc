package causes

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// workSubject names a process that works for a pod as a culprit. A pod that is being set up is in no list yet; a
// plugin's environment and a bundle name it.
func workSubject(f *facts.Facts, p host.Process) checks.Subject {
	s, work := facts.ProcessSubject(f, p, facts.OwnerOf(p)), facts.WorkOf(f, p)
	s.Namespace, s.Pod, s.PodUID = work.Namespace, work.Pod, work.PodUID
	return s
}

// workFor names the object that a process works for: web/cart-1 (app); empty where it is not known.
func workFor(f *facts.Facts, p host.Process) string {
	if p.Serves.Pod != "" && facts.OwnedBy(f, facts.OwnerOf(p)).Pod == "" {
		name := ifElse(p.Serves.Name == "", "", " ("+p.Serves.Name+")")
		return facts.Clean(p.Serves.Namespace + "/" + p.Serves.Pod + name)
	}
	if p.ObjectID == "" {
		return ""
	}
	return facts.OwnerLabel(f, facts.OwnerOf(p))
}

// working describes the work of a process and its duration: runc kill for web/cart-1 (app) has been running for
// 3m (pid 4720).
func working(f *facts.Facts, p host.Process) string {
	what := facts.Clean(strings.TrimSpace(p.Name+" "+p.Work)) + after(" for ", workFor(f, p))
	return textf("%s has been running for %s (pid %d)", what, facts.AgeOf(f, p), p.PID)
}

// chainOf returns a process and what it waits for: its child of the same role, the oldest one, and so on. A wrapper in
// a loop starts children that are gone when a person reads of them; it waits for none of them.
func chainOf(f *facts.Facts, p host.Process) []host.Process {
	chain := []host.Process{p}
	for len(chain) < 8 {
		last := chain[len(chain)-1]
		children := slices.DeleteFunc(facts.ProcessesOf(f, p.Role), func(c host.Process) bool {
			return c.PPID != last.PID || c.State == 'Z' || facts.AgeOf(f, c) < facts.LongOCI
		})
		if len(children) == 0 {
			break
		}
		older := func(a, b host.Process) int { return a.Started.Compare(b.Started) }
		chain = append(chain, slices.MinFunc(children, older))
	}
	return chain
}

// addWaits adds where a process waits, or its child that it waits for.
func addWaits(f *facts.Facts, e *checks.Evidence, p host.Process) {
	chain := chainOf(f, p)
	last := chain[len(chain)-1]
	if len(chain) == 1 {
		Addf(&e.For, "%v is %s", p, facts.StateOf(p))
	} else {
		Addf(&e.For, "%v waits for %v, which is %s", p, last, facts.StateOf(last))
	}
	addTasks(f, e, func(t host.BlockedTask) bool { return t.PID == last.PID })
	for _, w := range fifosOf(f, last) {
		Addf(&e.For, "%s", fifoLine(w))
	}
}

// fifosOf returns the FIFOs that one process waits to open.
func fifosOf(f *facts.Facts, p host.Process) []host.FIFOWait {
	other := func(w host.FIFOWait) bool { return w.PID != p.PID }
	return slices.DeleteFunc(slices.Clone(f.Seen.Tasks.Value.FIFOs), other)
}

// besides is an effect on pods of which a relist notices nothing.
func besides(f *facts.Facts, effect string) []string {
	a := f.KubeletState
	late := a.LoopStands || a.PLEGKnown && a.PLEGAge > f.Calls.Threshold && !f.Target.OtherEndpoint
	return []string{ifElse(f.Pattern.Well && !late, "PLEG is fine, but "+effect, effect)}
}

// workEffect returns the effect of stuck processes on the pods that they work for.
func workEffect(f *facts.Facts, work []host.Process) (effect []string) {
	for _, p := range top(work) {
		effect = append(effect, besides(f, podsEffect(f, p))...)
	}
	return effect
}

func podsEffect(f *facts.Facts, p host.Process) string {
	does := "be changed"
	switch p.Work {
	case "create", "start", "run", "restore", "ADD", "CHECK", "STATUS":
		does = "start"
	case "kill", "delete", "DEL", "GC":
		does = "stop"
	}
	return textf("%s cannot %s until %v ends", cmp.Or(workFor(f, p), "a pod"), does, p)
}

// adviseWork adds the steps that end a stuck process. It and the processes that it waits for end together: a caller
// waits until none of them has its output open any more.
func adviseWork(f *facts.Facts, s *Steps, p host.Process) {
	chain := chainOf(f, p)
	last, pids := chain[len(chain)-1], []string{}
	for _, c := range chain {
		pids = append(pids, strconv.Itoa(c.PID))
	}
	fifos := fifosOf(f, last)
	if adviseFIFO(s, fifos); len(fifos) == 0 {
		s.lookStack(last.PID, textf("Look where %v waits: a lock, a mount, a device or a server", last))
	}
	// No signal reaches one in uninterruptible sleep.
	deaf := func(c host.Process) bool { return c.PID <= 1 || facts.IsUninterruptible(&c) && c.Lasting }
	if i := slices.IndexFunc(chain, func(c host.Process) bool { return facts.IsStopped(&c) }); i >= 0 {
		addKill(f, s, chain[i], "")
	} else if !slices.ContainsFunc(chain, deaf) {
		s.Add(checks.TouchesProcess, "kill -KILL "+strings.Join(pids, " "),
			textf("End the stuck %v; the kubelet tries again", p))
	}
	deletePodOf(f, s, workSubject(f, p))
	if len(*s) == 0 {
		AddService(f, s)
	}
}

// withFIFO adds to a finding about pods, nil for none, the FIFOs that the runtime or the kubelet waits to open: they
// are the culprits. wrong is what it says of the pods, empty without any.
func withFIFO(f *facts.Facts, x *Finding, wrong string) *Finding {
	fifos := facts.FIFOs(f)
	if len(fifos) == 0 || f.RPC[facts.RPCStatus].Outcome == facts.Hung { // which is CNIHung
		return x
	}
	subject, severity := fifoSubject(fifos[0]), checks.Warning
	if subject.Pod == "" { // a file of the node, which each pod needs
		severity = checks.Critical
	}
	if x == nil {
		wrong = ifElse(subject.Pod == "", "pods do not start", textf("%s/%s does not start", subject.Namespace, subject.Pod))
		x = newFinding(severity, checks.Certain, "", checks.Evidence{}, subject)
		x.Evidence.For = nil
	} else {
		x.Step, x.Subject, x.Related = checks.Certain, &subject, append([]checks.Subject{*x.Subject}, x.Related...)
		x.Related = x.Related[:min(len(x.Related), facts.MaxRelated)]
		x.Evidence.Missing = slices.DeleteFunc(x.Evidence.Missing, func(line string) bool { return line == noError })
		x.Severity = ifElse(severity == checks.Critical, severity, x.Severity)
	}
	x.Summary = besides(f, wrong)[0] + ": " + fifoLine(fifos[0])
	for i, w := range top(fifos) {
		x.Evidence.For = slices.Insert(x.Evidence.For, i, fifoLine(w))
	}
	add := x.Advise
	return x.advise(func(s *Steps, root string) {
		adviseFIFO(s, fifos)
		if add != nil {
			add(s, root)
		}
	})
}

// outputOf returns a wait of a daemon to write its log, nil if there is none.
func outputOf(f *facts.Facts, role host.Role) *host.OutputWait {
	list := f.Seen.Tasks.Value.Outputs
	if i := slices.IndexFunc(list, func(w host.OutputWait) bool { return w.Role == role }); i >= 0 {
		return &list[i]
	}
	return nil
}

// outputLine describes a wait to write a log.
func outputLine(w *host.OutputWait) string {
	line := textf("%s (pid %d) waits to write its log to %s", facts.Clean(w.Name), w.PID, facts.Clean(w.File))
	switch r := w.Reader; {
	case r == nil:
		return line + ", which is full"
	case facts.IsStopped(r):
		return line + textf(": %v, which reads it, is %s", *r, r.StateWord())
	default:
		return line + textf(", which is full: %v does not read it", *r)
	}
}

// adviseOutput adds the steps that end the wait.
func adviseOutput(s *Steps, w *host.OutputWait) {
	switch r := w.Reader; {
	case r == nil:
		s.lookIf(w.PID > 1, textf("ls -l /proc/%d/fd/1 /proc/%[1]d/fd/2", w.PID), "Find out who has to read its log")
	case facts.IsStopped(r):
		s.resume(*r)
	default:
		s.lookStack(r.PID, textf("Look why %v does not read", *r))
	}
}

// fifoLine describes a wait in the opening of a FIFO.
func fifoLine(w host.FIFOWait) string {
	return textf("%s (pid %d) waits for the other end of %s, a FIFO that it opens", facts.Clean(w.Name), w.PID,
		facts.Clean(w.Path))
}

// fifoSubject names a FIFO as a culprit, and the pod in whose log folder it lies.
func fifoSubject(w host.FIFOWait) checks.Subject {
	s := checks.Subject{Kind: "File", ID: w.Path, Name: path.Base(w.Path)}
	s.Namespace, s.Pod, s.PodUID = facts.PodOfLog(w.Path)
	return s
}

// adviseFIFO adds the steps that end the wait.
func adviseFIFO(s *Steps, fifos []host.FIFOWait) {
	for _, w := range top(fifos) {
		name := strings.TrimSpace(w.Path)
		if !facts.SafePath.MatchString(name) {
			continue
		}
		s.Look("ls -l "+name, "Check that it is a FIFO (p), and find out who made it")
		s.Add(checks.TouchesProcess, textf("mv %s %[1]s.fifo; : <>%[1]s.fifo", name),
			textf("Move it away, and open both its ends once: %s goes on", facts.Clean(w.Name)))
	}
}
