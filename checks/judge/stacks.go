package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// StackCommands are kdiag's own commands for the same node, with its flags, for next steps.
type StackCommands struct {
	Stacks, Pleg string
	Bundle       string // empty where the evidence is kept already
	Elsewhere    bool   // the dumps were read from files: their node may be another one
}

// Stacks sets the status and the next steps of a report on goroutine dumps, the problem of each source without a dump,
// and makes its lists [] in JSON where they are empty.
func Stacks(r *checks.StacksReport, c StackCommands) {
	r.Problems = noNil(r.Problems)
	r.Sources, r.Waits, r.Holders, r.Known = noNil(r.Sources), noNil(r.Waits), noNil(r.Holders), noNil(r.Known)
	read, still := false, false
	for _, s := range r.Sources {
		read, still = read || s.Goroutines > 0, still || stillIn(s) != ""
		if s.Problem != "" {
			r.Problems = append(r.Problems, strings.TrimPrefix(s.Name+": ", ": ")+s.Problem)
		}
	}
	long := func(w checks.StackWait) bool { return waitsLong(w, "lock", "bolt", "ttrpc") }
	switch {
	case len(r.Holders) > 0 || len(r.Known) > 0 || still:
		r.Status = checks.Unhealthy
	case !read || len(r.Problems) > 0:
		r.Status = checks.Unknown
	case slices.ContainsFunc(r.Waits, long):
		r.Status = checks.Degraded
	case ageless(r, c) > 0:
		r.Status = checks.Degraded
		n := ageless(r, c)
		r.Problems = append(r.Problems, units.Count(n, "call")+units.Plural(n, " waits", " wait")+
			" for a shim, its age is unknown; take a second dump")
	default:
		r.Status = checks.Healthy
	}
	r.NextSteps = stackSteps(r, c)
}

// DumpLines say what goroutine dumps in logs show, nil without any: when each was written, and what its goroutines wait
// for.
func DumpLines(r *checks.StacksReport) (lines []string) {
	if r == nil {
		return nil
	}
	for _, s := range r.Sources {
		of := cmp.Or(s.Process, s.Role)
		if s.CapturedAt != nil {
			of += " at " + s.CapturedAt.UTC().Format(time.TimeOnly) + " UTC"
		}
		for _, line := range causes.DumpLines(r, host.Role(s.Role)) {
			lines = append(lines, of+": "+line)
		}
	}
	return lines
}

// stillIn is the state in which the process of a source stands still and could write no dump; empty where it does not.
func stillIn(s checks.StackSource) string {
	for _, state := range []string{"T", "t", "D"} {
		in := func(k checks.KernelStack) bool { return k.State == state }
		if s.Goroutines == 0 && slices.ContainsFunc(s.Kernel, in) {
			return state
		}
	}
	return ""
}

// longWait is the longest ordinary wait for a lock or a shim, in seconds: a healthy daemon does for milliseconds,
// and dumps count whole minutes.
const longWait = 60

// waitsLong reports whether goroutines wait for one of the things, by the words of package stacks, for so long that
// something must hold them up.
func waitsLong(w checks.StackWait, things ...string) bool {
	return w.MaxSeconds != nil && *w.MaxSeconds >= longWait && slices.Contains(things, w.WaitsFor)
}

// ageless is how many calls wait for a shim, nobody knows since when. A capture looks twice, and knows.
func ageless(r *checks.StacksReport, c StackCommands) (n int) {
	for _, w := range r.Waits {
		if c.Elsewhere && w.Still == nil && w.WaitsFor == "ttrpc" && w.MaxSeconds == nil {
			n += w.Count
		}
	}
	return n
}

// stackSteps are the next steps about the holders, the processes that they wait for, and those without a dump.
func stackSteps(r *checks.StacksReport, c StackCommands) []checks.NextStep {
	var s causes.Steps
	on := func(text string) string {
		if c.Elsewhere {
			return "On its node: " + strings.ToLower(text[:1]) + text[1:]
		}
		return text
	}
	named := false
	for _, h := range r.Holders {
		if h.Process != nil {
			named = true
			long := h.Blocks == 0 || h.Seconds != nil && *h.Seconds >= longWait
			processSteps(&s, *h.Process, causes.ServedBy(h.Subject), long, c)
		}
	}
	for _, source := range r.Sources { // one that a holder waits for stands above, with what it serves
		if state := stillIn(source); state != "" {
			p := host.Process{PID: source.PID, Name: cmp.Or(source.Process, "the process"), State: state[0]}
			processSteps(&s, checks.Process{PID: p.PID, Name: p.Name, State: p.StateWord()}, "", false, c)
		}
	}
	if forShim := func(w checks.StackWait) bool { return waitsLong(w, "ttrpc") }; !named &&
		(ageless(r, c) > 0 || slices.ContainsFunc(r.Waits, forShim)) {
		s.Add(checks.TouchesDump, c.Stacks+" --capture --shim stuck", on("Find the shim that does not reply"))
	}
	if r.Status == checks.Healthy {
		return s.Done()
	}
	if r.Status != checks.Unknown && c.Bundle != "" {
		s.Add(checks.TouchesDump, c.Bundle, on("Keep the evidence: a restart destroys it"))
	}
	if len(s) < 2 {
		s.Look(c.Pleg, on("See what this does to the node"))
	}
	return s.Done()
}

// processSteps are the steps for a process that stands in the way, and for what it serves. One that is at work is ended
// only where that has taken long: the goroutine has waited for long, or nobody but this process stands in its way.
func processSteps(s *causes.Steps, p checks.Process, of string, long bool, c StackCommands) {
	if p.PID <= 1 {
		return
	}
	name := fmt.Sprintf("%s (pid %d)", p.Name, p.PID)
	look := fmt.Sprintf("grep -E 'State|TracerPid' /proc/%d/status; grep . /proc/%[1]d/task/*/wchan", p.PID)
	switch stopped := strings.HasPrefix(p.State, "stopped"); {
	case stopped && !strings.Contains(p.State, "tracer"):
		s.Add(checks.TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), "Resume the stopped "+name+of+" (harmless)")
	case stopped:
		s.Look(look, "Find out who traces "+name+of)
	case strings.HasPrefix(p.State, "uninterruptible"):
		s.Look(look, "Look where "+name+of+" waits: no signal reaches it")
	case p.Role == string(host.RoleShim):
		s.Add(checks.TouchesDump, fmt.Sprintf("%s --shim %d", c.Stacks, p.PID), "Capture what "+name+of+" does")
	default:
		s.Look(look, "Look where "+name+of+" waits: a lock, a mount or a device")
		if long && (p.Role == string(host.RoleOCI) || p.Role == string(host.RoleCNI)) {
			s.Add(checks.TouchesProcess, fmt.Sprintf("kill -KILL %d", p.PID), "End only the stuck "+name)
		}
	}
}
