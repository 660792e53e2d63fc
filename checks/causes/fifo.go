package causes

import (
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

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
