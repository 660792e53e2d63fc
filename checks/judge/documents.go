package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// fill completes a header: what the caller left empty is taken from the facts.
func fill(h checks.Header, kind string, f *facts.Facts, v checks.Verdict, problems []string) checks.Header {
	h.APIVersion, h.Kind, h.Status, h.Problems = checks.APIVersion, kind, v, noNil(problems)
	if h.GeneratedAt.IsZero() {
		h.GeneratedAt = f.Now
	}
	h.Host = facts.Clean(h.Host)
	return h
}

// NewReport judges the facts and makes the document of kdiag pleg and kdiag node.
func NewReport(h checks.Header, in *facts.Input) *checks.Report {
	j := judged(in)
	f, all := j.facts, owned(j)
	v := verdict(j, scopeSweep)
	return &checks.Report{
		Header:  fill(h, checks.KindReport, f, v, problems(j, v, scopeSweep)),
		Runtime: facts.RuntimeOf(f), Causes: all, Relist: summary(f), Checks: noNil(results(j)),
		Notes: append(notes(f), notesOnOthers(f)...),
	}
}

// notes are observations that are no problem of the node.
func notes(f *facts.Facts) []string {
	if f.Target.Simulated {
		return nil
	}
	var all []string
	if line := unwellPods(f); line != "" {
		all = append(all, line)
	}
	if line := causes.PLEGRecovered(f); line != "" {
		all = append(all, line)
	}
	kills := facts.OwnKills(f)
	if more := len(kills) - facts.MostNamed; more > 0 {
		kills = append(kills[:facts.MostNamed], units.Count(more, "other")+" OOM-killed at their own memory limits")
	}
	all = append(all, kills...)
	for _, t := range f.Log.HungBefore[:min(len(f.Log.HungBefore), facts.MostNamed)] {
		all = append(all, "the kernel reported "+t.Label()+" as hung; it is not any more")
	}
	if r := f.Input.Stacks; f.Stacks.Taken && f.Pattern.Well {
		all = append(all, stacksNote(f, r))
	}
	if t := f.Seen.Mounts.Value; len(t.Hidden) > 0 {
		all = append(all, hiddenMounts(f, t))
	}
	if line := slowMount(f, f.Seen.Mounts.Value); line != "" {
		all = append(all, line)
	}
	return all
}

// unwellFrom is how long a pod is not ready until a note names it, unwellRestart how long ago its restart may be: twice
// the longest pause before one (MaxContainerBackOff in pkg/kubelet/kubelet.go).
const (
	unwellFrom    = time.Minute
	unwellRestart = 10 * time.Minute
)

// unwellPods names the pods that the kubelet has as not ready or restarting, though nothing on the node explains it:
// what fails may be the workload's own, and is seen here first.
func unwellPods(f *facts.Facts) string {
	var names []string
	var pods int
	known := slices.Concat(f.Pods.NotStarting, f.Pods.NotStopping)
	for _, p := range f.Seen.Pods.Value {
		if p.Phase != "Running" && p.Phase != "Pending" || p.Deleted != nil {
			continue
		}
		pods++
		unready := p.Unready != nil && f.Now.Sub(*p.Unready) >= unwellFrom
		restarts := p.Restarted != nil && p.Restarts > 1 && f.Now.Sub(*p.Restarted) < unwellRestart
		if !unready && !restarts ||
			slices.ContainsFunc(known, func(t facts.PodTrouble) bool {
				return t.Pod.Namespace == p.Namespace && t.Pod.Name == p.Name
			}) {
			continue
		}
		line := p.State
		if p.Restarts > 0 {
			line += ", " + units.Count(p.Restarts, "restart")
		}
		if words := cmp.Or(p.Message, facts.ProbeWords(f, p.Namespace+"/"+p.Name)); words != "" {
			line += ": " + causes.Quote(words)
		}
		names = append(names, facts.Clean(fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, cmp.Or(line, p.Phase))))
	}
	if len(names) == 0 {
		return ""
	}
	line := fmt.Sprintf("%d of %s %s not ready or restarting: ", len(names), units.Count(pods, "pod"),
		units.Plural(len(names), "is", "are"))
	more := len(names) - facts.MostNamed
	if more > 0 {
		names = append(names[:facts.MostNamed], units.Count(more, "other"))
	}
	return line + units.List(names)
}

// stacksNote sums up the goroutine dumps of a runtime that answers; of one that does not, causes do.
func stacksNote(f *facts.Facts, r *checks.StacksReport) string {
	var dumps []string
	for _, s := range r.Sources {
		if s.Goroutines > 0 {
			dumps = append(dumps, fmt.Sprintf("%s (pid %d): %s", facts.Clean(s.Process), s.PID,
				units.Count(s.Goroutines, "goroutine")))
		}
	}
	line := "goroutine dump: " + strings.Join(dumps, ", ")
	if len(r.Holders) == 0 {
		return line + "; none holds a lock that others wait for"
	}
	h := r.Holders[0]
	line += "; " + causes.GoroutineLine(f, h)
	if h.Blocks > 0 {
		line += "; " + units.Count(h.Blocks, "other") + units.Plural(h.Blocks, " waits", " wait") + " for it"
	}
	return line
}

// NewRuntimeProbe judges the facts and makes the document of kdiag runtime. That probe asks for no status of
// containers, so the verdict does not wait for them.
func NewRuntimeProbe(h checks.Header, in *facts.Input) *checks.RuntimeProbe {
	j := judged(in)
	f, all := j.facts, owned(j)
	v := verdict(j, scopeProbes)
	p := &checks.RuntimeProbe{
		Header:  fill(h, checks.KindRuntimeProbe, f, v, problems(j, v, scopeProbes)),
		Runtime: facts.RuntimeOf(f), Causes: all, Conditions: []checks.Condition{}, RPCs: []checks.RPC{},
	}
	if f.Measurement == nil {
		return p
	}
	m := f.Measurement
	p.Connect = checks.ConnectInfo{
		State: string(m.Connect.State), Seconds: m.Connect.Elapsed.Seconds(), Error: facts.Clean(m.Connect.Err),
		Peer: facts.PeerOf(f),
	}
	if m.Status != nil {
		for _, c := range m.Status.Conditions {
			p.Conditions = append(p.Conditions, checks.Condition{
				Type: facts.Clean(c.Type), Status: c.Status, Reason: facts.Clean(c.Reason),
				Message: facts.Clean(c.Message),
			})
		}
	}
	for _, c := range m.Probes {
		lists := c.OK() && c.Method != facts.RPCVersion && c.Method != facts.RPCStatus
		p.RPCs = append(p.RPCs, checks.RPC{
			Name: facts.Clean(c.Method), Seconds: c.Elapsed.Seconds(), Code: facts.Clean(string(c.Code)),
			Error: facts.Clean(c.Err), Bytes: measured(c.Bytes, c.OK()), Items: measured(c.Items, lists),
		})
	}
	return p
}

// NewRelistBenchmark judges the facts and makes the document of kdiag relist. Its verdict needs the status of running
// objects only if the benchmark asked for it.
func NewRelistBenchmark(h checks.Header, in *facts.Input) *checks.RelistBenchmark {
	j := judged(in)
	f, all := j.facts, owned(j)
	want := scopeProbes
	if len(f.Sweep.Made) > 0 {
		want = scopeSweep
	}
	v := verdict(j, want)
	b := &checks.RelistBenchmark{
		Header:  fill(h, checks.KindRelistBenchmark, f, v, problems(j, v, want)),
		Runtime: facts.RuntimeOf(f), Causes: all, Relist: summary(f), RPCs: []plegbench.RPCSummary{},
		Samples: []checks.RelistSample{},
	}
	if f.Measurement == nil {
		return b
	}
	b.RPCs = noNil(plegbench.SummarizeRPCs(f.Measurement))
	if f.Summary != nil {
		b.Forecast = plegbench.ForecastOf(f.Measurement.Samples, f.Summary)
	}
	for _, s := range f.Measurement.Samples {
		b.Samples = append(b.Samples, sampleOf(s))
	}
	return b
}

// sampleOf describes one timed relist.
func sampleOf(s plegbench.Sample) checks.RelistSample {
	out := checks.RelistSample{
		At: s.At, Seconds: max(s.Elapsed(), 0).Seconds(), Containers: measured(s.Containers.Items, s.Containers.OK()),
		Bytes: measured(max(s.Sandboxes.Bytes, s.Containers.Bytes), s.OK()),
	}
	switch {
	case !s.Sandboxes.OK():
		out.Error = facts.CallLine(s.Sandboxes)
	case !s.Containers.OK():
		out.Error = facts.CallLine(s.Containers)
	}
	return out
}

// measured returns a number that was measured: 0 is one only in an answer.
func measured(n int, answered bool) *int {
	if n == 0 && !answered {
		return nil
	}
	return &n
}

// summary is Summary with texts that are safe to print.
func summary(f *facts.Facts) *plegbench.Summary {
	if f.Summary == nil {
		return nil
	}
	s := *f.Summary
	s.ResponseRPC = facts.Clean(s.ResponseRPC)
	if s.Sweep != nil {
		sweep := *s.Sweep
		sweep.SlowestID, sweep.Reach = facts.Clean(sweep.SlowestID), facts.Clean(sweep.Reach)
		s.Sweep = &sweep
	}
	return &s
}

// noNil makes a list that prints as [] in JSON.
func noNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// owned returns the causes with the workloads of the pods that they name.
func owned(j judgement) []checks.Cause {
	name := func(s *checks.Subject) {
		if w := facts.WorkloadOf(j.facts, s.PodUID); w.Kind != "" {
			s.Owner = facts.Clean(w.Name) + " (" + w.Kind + ")"
		}
	}
	for _, c := range j.causes {
		if c.Subject != nil {
			name(c.Subject)
		}
		for k := range c.Related {
			name(&c.Related[k])
		}
	}
	return noNil(j.causes)
}

// WhySilent explains why a runtime gave no answer, in the words of the report on the node, by the probe of its socket
// and the first call. It is for the commands that stop there.
func WhySilent(r checks.Runtime, c crictl.Connect, call crictl.Call) string {
	m := &plegbench.Measurement{Connect: c, Probes: []crictl.Call{call}}
	f := &facts.Input{Runtime: r, Limits: checks.DefaultLimits(), Measurement: m}
	for _, cause := range Judge(f) {
		if slices.Contains([]string{causes.RuntimeDown, causes.RuntimeHung, causes.RuntimeUnsupported}, cause.Code) {
			return cause.Code + ": " + cause.Summary
		}
	}
	return "the runtime gave no answer: " + facts.CallLine(call)
}

// StepWhenSilent is the next step then: the diagnosis of the same runtime. command is kdiag pleg with its flags.
func StepWhenSilent(command string) checks.NextStep {
	return checks.NextStep{
		Why: "Find the cause: the daemon, a shim, CNI or a disk.", Command: command,
		Touches: checks.TouchesNothing,
	}
}
