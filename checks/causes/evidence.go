package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// textf formats a sentence; durations, processes, objects and calls as a report names them.
func textf(format string, args ...any) string {
	for i, a := range args {
		switch a := a.(type) {
		case time.Duration:
			args[i] = units.Duration(a)
		case host.Process:
			args[i] = facts.ProcessLabel(a)
		case plegbench.Inspection:
			args[i] = facts.Label(a)
		case crictl.Call:
			args[i] = facts.CallLine(a)
		}
	}
	return fmt.Sprintf(format, args...)
}

// Addf appends a line that textf formats.
func Addf(lines *[]string, format string, args ...any) {
	*lines = append(*lines, textf(format, args...))
}

// addIf appends the line where the condition holds. Its arguments are worked out in any case.
func addIf(condition bool, lines *[]string, format string, args ...any) {
	if condition {
		Addf(lines, format, args...)
	}
}

// outOf writes a part of a number of things: 3 of 9 status calls.
func outOf(n, all int, noun string) string { return units.Number(n) + " of " + units.Count(all, noun) }

// top returns the first of a list that a report names.
func top[T any](all []T) []T { return all[:min(len(all), facts.MostNamed)] }

// addMost adds the largest numbers with their names.
func addMost(lines *[]string, format string, numbers map[string]int) {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	for _, name := range top(names) {
		Addf(lines, format, units.Number(numbers[name]), cmp.Or(facts.Clean(name), "unknown"))
	}
}

// atWork writes for how long a process has been running: runc (pid 4720) has been at work for 3m (sleeping).
func atWork(f *facts.Facts, p host.Process) string {
	return textf("%v has been at work for %s (%s)", p, facts.AgeOf(f, p), facts.StateOf(p))
}

// processEvidence adds what is wrong with the processes of a culprit. That none was found is no evidence: an exited
// container has none.
func processEvidence(f *facts.Facts, e *checks.Evidence, ids ...string) {
	addTasks(f, e, func(t host.BlockedTask) bool { return t.ObjectID != "" && slices.Contains(ids, t.ObjectID) })
	if f.HostMissing != "" {
		return
	}
	for _, p := range facts.ProcessesServing(f, ids...) {
		if p.Role == host.RoleOCI && facts.AgeOf(f, p) >= facts.LongOCI {
			e.For = append(e.For, atWork(f, p))
		} else if facts.IsStopped(&p) || facts.IsUninterruptible(&p) {
			Addf(&e.For, "%v, its %s, is in state %q", p, p.Role, facts.StateOf(p))
		}
	}
}

// missing notes that a look which was wanted brought nothing, or not all. One that does not apply is no gap.
func missing[T any](l facts.Reading[T], e *checks.Evidence, what string) {
	addIf(!l.OK && !l.Skipped, &e.Missing, "%s: %s", what, l.Why())
}

// missingHost notes that no processes could be looked at.
func missingHost(f *facts.Facts, e *checks.Evidence) {
	addIf(f.HostMissing != "", &e.Missing, "processes of this host were not read: %s", facts.Clean(f.HostMissing))
}

// missingKubelet notes that the kubelet's own settings are assumed.
func missingKubelet(f *facts.Facts, e *checks.Evidence) {
	addIf(f.Kubelet == nil, &e.Missing, "no kubelet was seen here: its defaults are assumed, %s for PLEG",
		f.Calls.Threshold)
}

// missingSweep notes how far the status calls went when that was not everywhere.
func missingSweep(f *facts.Facts, e *checks.Evidence) {
	if f.Measurement == nil || f.Measurement.Sweep.Total <= len(f.Sweep.Made) {
		return
	}
	s := f.Measurement.Sweep
	Addf(&e.Missing, "status calls did not reach everything: %s", cmp.Or(facts.Clean(s.Reach),
		fmt.Sprintf("%s of %s objects", units.Number(len(f.Sweep.Made)), units.Number(s.Total))))
}

// missingLists notes lists that are not whole.
func missingLists(f *facts.Facts, e *checks.Evidence) {
	addIf(partOfLists(f), &e.Missing, "part of the lists: the true numbers are higher")
}

func partOfLists(f *facts.Facts) bool {
	m := f.Measurement
	return m != nil && (m.Containers != nil && !m.Containers.Complete || m.Sandboxes != nil && !m.Sandboxes.Complete)
}

// missingJournal notes that the kubelet's own log was not read.
func missingJournal(f *facts.Facts, e *checks.Evidence) {
	addIf(f.Journal == nil && f.JournalProblem != "" && !f.Target.Simulated, &e.Missing,
		"the kubelet's own log was not read: %s", facts.Clean(f.JournalProblem))
}

// missingPatience notes that the deadline was too short to tell slow from hung.
func missingPatience(f *facts.Facts, e *checks.Evidence) {
	if f.Calls.Impatient {
		Addf(&e.Missing, "whether more time brings an answer: a deadline of %s cannot tell slow from hung; "+
			"--rpc-timeout %s can", f.Limits.RPCTimeout, checks.DefaultLimits().RPCTimeout)
	}
}

// missingDeadline notes that kdiag gave up long before a kubelet does.
func missingDeadline(f *facts.Facts, e *checks.Evidence) {
	missingPatience(f, e)
	if t, whole := f.Limits.RPCTimeout, f.Calls.KubeletTimeout; t < whole {
		Addf(&e.Missing, "whether it comes within the kubelet's own deadline of %s: kdiag waited %s", whole, t)
	}
}

// patientStep is the step from which a hang starts: a short deadline leaves slowness as another cause.
func patientStep(f *facts.Facts, step float64) float64 {
	if f.Calls.Impatient {
		return min(step, checks.Fair)
	}
	return step
}

// pressureEvidence adds what distinguishes a starved daemon from a broken one, or that it was not read. It points
// neither way: a daemon may be broken on a node that starves.
func pressureEvidence(f *facts.Facts, e *checks.Evidence) {
	p := f.Seen.Pressure
	if cpu, memory, io := p.Value.CPU, p.Value.Memory, p.Value.IO; p.OK && cpu != nil && memory != nil && io != nil {
		Addf(&e.For, "pressure in the last 10 s: CPU some %.0f%%, memory full %.0f%% and io full %.0f%%",
			cpu.Some.Avg10, memory.Full.Avg10, io.Full.Avg10)
	} else {
		Addf(&e.Missing, "pressure of disk, CPU and memory (/proc/pressure) was not read")
	}
}

// addCalls adds one line for each of the RPCs that was asked and has the outcome.
func addCalls(f *facts.Facts, lines *[]string, want func(facts.Outcome) bool, names ...string) {
	for _, name := range names {
		if r := f.RPC[name]; want(r.Outcome) {
			*lines = append(*lines, facts.CallLine(r.Last()))
		}
	}
}

func isAlive(o facts.Outcome) bool { return o.Alive() }

func isHanging(o facts.Outcome) bool { return o == facts.Hung }

// logEvidence adds the first record of a signature to the evidence.
func logEvidence(f *facts.Facts, e *checks.Evidence, code string) bool {
	c := facts.Logged(f, code)
	if c == nil || f.Target.Simulated {
		return false
	}
	Addf(&e.For, "the log, %s: %s", units.Times(int(min(c.Count, 1<<31))), facts.Quote(f, c.Example))
	return true
}
