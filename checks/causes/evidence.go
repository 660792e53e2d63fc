package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
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

// ifElse returns yes where the condition holds, else no.
func ifElse[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

// after puts a word before a text; empty where there is no text.
func after(word, text string) string { return ifElse(text == "", "", word+text) }

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

// atWork writes the running time of a process: runc (pid 4720) has been running for 3m (sleeping).
func atWork(f *facts.Facts, p host.Process) string {
	return textf("%v has been running for %s (%s)", p, facts.AgeOf(f, p), facts.StateOf(p))
}

// processEvidence adds the faults of a culprit's processes. Finding none is no evidence: an exited
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

// A gap is something that was not looked at, or not to its end.
type gap int

const (
	gapHost     gap = iota // the processes
	gapKubelet             // the kubelet's settings, which are assumed then
	gapSweep               // part of the status calls
	gapLists               // part of the lists
	gapJournal             // the kubelet's log
	gapPatience            // the deadline was too short to tell slow from hung
	gapDeadline            // and kdiag gave up long before a kubelet does
)

// addGaps adds to the missing evidence the gaps that this measurement has.
func addGaps(f *facts.Facts, e *checks.Evidence, gaps ...gap) {
	limits, calls, m := f.Limits, f.Calls, f.Measurement
	for _, g := range gaps {
		switch g {
		case gapHost:
			addIf(f.HostMissing != "", &e.Missing, "host processes: %s (%s)",
				ifElse(f.Target.Simulated, "not read", "not visible from here"), facts.Clean(f.HostMissing))
		case gapKubelet:
			addIf(f.Kubelet == nil && !f.Target.Simulated, &e.Missing,
				"no kubelet was seen; assuming its default limit of %s", calls.Threshold)
		case gapSweep:
			if made := len(f.Sweep.Made); m != nil && m.Sweep.Total > made {
				line := textf("checked %s of %s objects", units.Number(made), units.Number(m.Sweep.Total))
				if _, why, found := strings.Cut(facts.Clean(m.Sweep.Reach), ": "); m.Interrupted != "" {
					line += " before --timeout"
				} else if found {
					line += ": " + why
				}
				e.Missing = append(e.Missing, line)
			}
		case gapLists:
			addIf(partOfLists(f), &e.Missing, "lists incomplete: the true numbers are higher")
		case gapJournal:
			addIf(f.Journal == nil && f.JournalProblem != "" && !f.Target.Simulated, &e.Missing,
				"the kubelet's own log was not read: %s", facts.Clean(f.JournalProblem))
		case gapPatience:
			addIf(calls.Impatient, &e.Missing,
				"too little time to tell slow from hung: give --rpc-timeout 5s and --timeout 8s, or more")
		case gapDeadline:
			waited := limits.RPCTimeout
			if len(calls.HungLists) > 0 {
				waited = max(waited, calls.HungLists[0].Last().Elapsed)
			}
			addIf(waited < calls.KubeletTimeout, &e.Missing, "kdiag gave up after %s; the kubelet waits %s, "+
				"so the call may still succeed", waited, calls.KubeletTimeout)
		}
	}
}

func partOfLists(f *facts.Facts) bool {
	m := f.Measurement
	return m != nil && (m.Containers != nil && !m.Containers.Complete || m.Sandboxes != nil && !m.Sandboxes.Complete)
}

// impatientStep is below all others: slowness is more likely than a hang.
const impatientStep = 0.5

// patientStep is the step from which a hang starts: a deadline below kdiag's usual one leaves slowness as another
// cause.
func patientStep(f *facts.Facts, step float64) float64 {
	switch {
	case f.Calls.Impatient:
		return min(step, impatientStep)
	case f.Limits.RPCTimeout < checks.DefaultLimits().RPCTimeout:
		return min(step, checks.Strong)
	}
	return step
}

// pressureEvidence adds the pressure that distinguishes a starved daemon from a broken one. It points
// neither way: a daemon may be broken on a node that starves.
func pressureEvidence(f *facts.Facts, e *checks.Evidence) {
	p := f.Seen.Pressure
	if cpu, memory, io := p.Value.CPU, p.Value.Memory, p.Value.IO; p.OK && cpu != nil && memory != nil && io != nil {
		Addf(&e.For, "pressure in 10 s: CPU some %.0f%%, memory full %.0f%%, io full %.0f%%", cpu.Some.Avg10,
			memory.Full.Avg10, io.Full.Avg10)
	} else {
		Addf(&e.Missing, "pressure of disk, CPU and memory (/proc/pressure) was not read")
	}
}

// addCalls adds one line for each of the RPCs that has the outcome, and returns their names.
func addCalls(f *facts.Facts, lines *[]string, want func(facts.Outcome) bool, names ...string) []string {
	var found []string
	for _, name := range names {
		if r := f.RPC[name]; want(r.Outcome) {
			found = append(found, name)
			*lines = append(*lines, facts.CallLine(r.Last()))
		}
	}
	return found
}

// talks reports whether there is a runtime that does not hang as a whole.
func talks(f *facts.Facts) bool { return f.Calls.Connected && f.Pattern.Hang == facts.HangNone }

// listsAnswer reports whether the runtime answers what needs none of its slower parts.
func listsAnswer(f *facts.Facts) bool {
	return talks(f) && f.Calls.AnyList && f.RPC[facts.RPCVersion].Outcome != facts.Hung
}

func isHanging(o facts.Outcome) bool { return o == facts.Hung }
func isFailing(o facts.Outcome) bool { return o == facts.Failed }

// logEvidence adds the newest record of each signature, and reports whether there is one.
func logEvidence(f *facts.Facts, e *checks.Evidence, codes ...string) bool {
	found := false
	for _, code := range codes {
		if c := facts.Logged(f, code); c != nil && !f.Target.Simulated {
			found = true
			Addf(&e.For, "the log, %s: %s", units.Times(int(min(c.Count, 1<<31))), Quote(c.Newest()))
		}
	}
	return found
}

// affects sets what the cause does to the node, and returns the finding.
func (c *Finding) affects(effect ...string) *Finding {
	c.Effect = effect
	return c
}

// inspectsOnce is the kubelet's minor version from which a relist inspects a failing pod once. Up to 1.35 it does so
// twice: because the pod's record was not advanced, and because the pod is marked (podsToReinspect in
// pkg/kubelet/pleg/generic.go).
const inspectsOnce = 36

// hangEffect returns what status calls that hang in so many pods do to the node, a line for each range of kubelet
// versions, and whether one of them turns it NotReady. A relist counts from its start until the lists of the next have
// answered.
func hangEffect(f *facts.Facts, pods int) (effect []string, notReady bool) {
	newer := time.Duration(pods) * f.Calls.KubeletTimeout
	older := 2 * newer
	if s := f.Summary; s != nil && s.ProjectedSeconds != nil && s.OlderProjectedSeconds != nil {
		newer, older = Optional(s.ProjectedSeconds), Optional(s.OlderProjectedSeconds)
	}
	add := func(versions string, relist time.Duration) {
		about := relist.Round(time.Second)
		if about >= time.Minute {
			about = about.Round(30 * time.Second)
		}
		over := relist+plegbench.RelistPeriod+f.Calls.ListMedian > f.Calls.Threshold
		effect = append(effect, textf("kubelet %s: ", versions)+
			ifElse(over, textf("NotReady about every %s", about), textf("Ready, pod updates %s late", about)))
		notReady = notReady || over
	}
	switch minor := f.KubeletState.Minor; {
	case minor == 0:
		add("<= 1.35", older)
		add(">= 1.36", newer)
	default:
		add(textf("1.%d", minor), ifElse(minor < inspectsOnce, older, newer))
	}
	return effect, notReady
}

// noRelist is the effect of lists that never arrive: PLEG's clock stands still from the start of the last good relist.
func noRelist(f *facts.Facts) string {
	line := textf("kubelet: NotReady %s after the last good relist", f.Calls.Threshold)
	if f.KubeletState.PLEGKnown && !f.Target.OtherEndpoint {
		at := f.Now.Add(f.Calls.Threshold - f.KubeletState.PLEGAge)
		line += ifElse(at.After(f.Now), ", at ", ", since ") + facts.ClockText(f, at)
	}
	return line
}

// noStatus is the effect of a runtime that answers nothing: its status fails long before its relists are too old
// (kubelet.go: maxWaitForContainerRuntime).
const noStatus = "kubelet: NotReady 30s after the runtime last answered Status; " +
	"containers keep running, none starts or stops"

// A holdFilter selects holders of a goroutine dump.
type holdFilter func(facts.Hold) bool

// serving selects the holders that goroutines serving one of the calls wait for, and those goroutines themselves.
func serving(calls ...string) holdFilter {
	return func(h facts.Hold) bool { return h.Serves(calls...) > 0 || h.MayServe(calls...) }
}

// waitingFor selects the holders that wait for one of the things, in the words of package stacks.
func waitingFor(things ...string) holdFilter {
	return func(h facts.Hold) bool { return slices.Contains(things, h.Last.WaitsFor) }
}

// endsAt selects the holders that wait for one of the processes.
func endsAt(processes ...host.Process) holdFilter {
	return func(h facts.Hold) bool {
		p := h.Last.Process
		return p != nil && slices.ContainsFunc(processes, func(o host.Process) bool { return o.PID == p.PID })
	}
}

// inPod restricts the filter to holders that wait for the pod of an inspection.
func (is holdFilter) inPod(i plegbench.Inspection) holdFilter {
	return func(h facts.Hold) bool {
		s := h.Last.Subject
		return is(h) && s != nil && s.Pod != "" && s.Pod == i.Pod.Name && s.Namespace == i.Pod.Namespace
	}
}

// stackEvidence prepends the holders selected by the first filter that selects any, and returns them. call is the RPC
// that hangs, empty for none.
func stackEvidence(f *facts.Facts, e *checks.Evidence, call string, filters ...holdFilter) (holds []facts.Hold) {
	if !f.Stacks.Taken {
		addIf(f.Stacks.Missing != "", &e.Missing, "goroutine dump: %s", f.Stacks.Missing)
		for _, k := range f.Stacks.Kernel {
			Addf(&e.For, "%s of it in state %s%s", units.Count(k.Threads, "thread"), facts.Clean(k.State),
				facts.Clean(ifElse(len(k.Stack) > 0, " in "+strings.Join(k.Stack, " < "), "")))
		}
		return nil
	}
	for _, is := range filters {
		if len(holds) == 0 {
			holds = slices.DeleteFunc(slices.Clone(f.Stacks.Holds), func(h facts.Hold) bool { return !is(h) })
		}
	}
	if i := slices.IndexFunc(holds, func(h facts.Hold) bool { return h.Call == "" }); i > 0 {
		holds = holds[:i] // goroutines that those with a call started
	}
	addIf(len(holds) == 0 && call != "", &e.Missing, "goroutine dump: it does not show what holds up %s", call)
	var lines []string
	for _, h := range top(holds) {
		lines = append(lines, holdLines(f, call, h)...)
		for _, m := range h.Last.Evidence.Missing {
			addIf(strings.HasPrefix(m, "which "), &e.Missing, "goroutine dump: %s", facts.Clean(m)) // shim or plugin
		}
	}
	e.For = slices.Insert(e.For, 0, lines...) // the summary was first
	return top(holds)
}

// holdLines are the sentences about who holds up goroutines, who holds up that one in the end, and what they serve.
func holdLines(f *facts.Facts, call string, h facts.Hold) []string {
	lines := []string{GoroutineLine(f, h.StackHolder)}
	if len(h.Known) > 0 {
		lines[0] += " [" + h.Known[0].Pattern + "]"
	}
	if h.Last.Goroutine != h.Goroutine {
		lines = append(lines, GoroutineLine(f, h.Last))
	}
	if len(h.Waits) == 0 {
		return lines
	}
	var calls []string
	count := 0
	for _, w := range h.Waits {
		count += w.Count
		calls = append(calls, w.Calls...)
	}
	line := units.Count(count, "goroutine") + units.Plural(count, " waits", " wait") + " for it"
	line += after(", serving ", units.List(calls))
	if more := f.Stacks.Serving(call) - h.Serves(call); more > 0 && h.Serves(call) > 0 {
		line += textf("; %d more that serve %s wait elsewhere, and a dump does not show for which object", more, call)
	}
	return append(lines, facts.Clean(line))
}

// kubeletEvidence adds the known pictures of a cause that the kubelet's dump shows, and reports whether there are any.
func kubeletEvidence(f *facts.Facts, e *checks.Evidence, code string) (found bool) {
	r := cmp.Or(f.Input.Stacks, &checks.StacksReport{})
	for i, s := range r.Sources {
		if s.Role != string(host.RoleKubelet) {
			continue
		}
		addIf(s.Problem != "", &e.Missing, "goroutine dump of the kubelet: %s", facts.Clean(s.Problem))
		for _, k := range r.Known {
			if k.Source == i && slices.Contains(k.Causes, code) && len(k.Goroutines) > 0 {
				found = true
				Addf(&e.For, "goroutine %d of the kubelet: %s [%s]", k.Goroutines[0], facts.Clean(k.Why), k.Pattern)
			}
		}
	}
	return found
}

// killedLines say what the goroutines show that a daemon wrote into its log when systemd's watchdog ended it.
func killedLines(f *facts.Facts, role host.Role) []string {
	return DumpLines(cmp.Or(f.LogStacks, &checks.StacksReport{}), role)
}

// DumpLines say what the goroutines of a daemon show: in which known way it hung, who waited for whom, or else for what
// most of those wait that have waited long; and in which function.
func DumpLines(r *checks.StacksReport, role host.Role) (lines []string) {
	of := func(source int) bool {
		return source >= 0 && source < len(r.Sources) && r.Sources[source].Role == string(role) &&
			len(lines) < facts.MostNamed
	}
	add := func(source, goroutine int, why string) {
		if !of(source) {
			return
		}
		for _, w := range r.Waits {
			if w.Has(source, goroutine) {
				why += standsIn(w)
			}
		}
		Addf(&lines, "its goroutine %d: %s", goroutine, facts.Clean(why))
	}
	for _, k := range r.Known {
		if len(k.Goroutines) > 0 {
			add(k.Source, k.Goroutines[0], textf("%s [%s]", k.Brief(), k.Pattern))
		}
	}
	for _, h := range r.Holders {
		add(h.Source, h.Goroutine, h.Why)
	}
	for _, w := range r.Waits {
		if seconds := cmp.Or(w.MaxSeconds, new(float64)); of(w.Source) && len(lines) == 0 && *seconds >= longWait {
			Addf(&lines, "%s of it: they wait for %s", units.Count(w.Count, "goroutine"), facts.Clean(w.On+standsIn(w)))
		}
	}
	return lines
}

// longWait is the longest ordinary wait of a goroutine, in seconds: dumps count whole minutes.
const longWait = 60

// plumbing matches functions that wait on behalf of others.
var plumbing = lazyregexp.New(`^(sync|runtime|transport|grpc|ttrpc|wait|context|time|poll|net|os|syscall|semaphore)\.|` +
	`^v\d\w*\.\(\*\w+Client\)`)

// standsIn says in which function a group of goroutines waits, and for how long one does.
func standsIn(w checks.StackWait) (text string) {
	if i := slices.IndexFunc(w.Stack, func(f string) bool { return !plumbing.MatchString(f) }); i >= 0 {
		text = ", in " + w.Stack[i]
	}
	if w.MaxSeconds != nil {
		text += ", for " + units.Seconds(*w.MaxSeconds)
	}
	return text
}

// endsOf are the processes at the ends of holds, as culprits.
func endsOf(holds []facts.Hold) (ends []checks.Subject) {
	for _, h := range holds {
		if p, s := h.Last.Process, h.Last.Subject; p != nil {
			end := *cmp.Or(s, &checks.Subject{})
			end.Kind, end.ID, end.Name = "Process", strconv.Itoa(p.PID), facts.Clean(p.Name)
			end.Processes = []checks.Process{*p}
			ends = append(ends, end)
		}
	}
	return ends
}

// addresses matches what tells locks apart within a dump, and means nothing outside of it.
var addresses = lazyregexp.New(` \(ttrpc client 0x[0-9a-f]+\)| 0x[0-9a-f]+`)

// GoroutineLine is the sentence about one goroutine: goroutine 84 of containerd (UpdateContainerResources, 4m) holds
// the lock of a container's status and waits for the shim's reply to Update: containerd-shim (pid 88) of web/cart-1,
// stopped.
func GoroutineLine(f *facts.Facts, h checks.StackHolder) string {
	source := facts.StackSource(f, h)
	line := textf("goroutine %d", h.Goroutine) + after(" of ", source.Process)
	if source.Role == string(host.RoleShim) {
		line += textf(" (pid %d)", source.PID)
	}
	known := h.Call
	if h.Seconds != nil {
		known = strings.TrimPrefix(known+", "+units.Seconds(*h.Seconds), ", ")
	}
	line += ifElse(known == "", "", " ("+known+")")
	why := addresses.ReplaceAllString(strings.TrimPrefix(h.Why, "it "), "")
	line += " " + strings.ReplaceAll(why, ", and ", " and ")
	if p := h.Process; p != nil {
		line += textf(": %s (pid %d)", p.Name, p.PID) + ServedBy(h.Subject)
		working := p.Role == string(host.RoleOCI) || p.Role == string(host.RoleCNI)
		line += ifElse(working && p.Age != "", ", running for "+p.Age, ", "+p.State)
	}
	return facts.Clean(line)
}

// ServedBy names the object that a process serves, to follow its name: " of web/cart-1"; empty where that is not known.
func ServedBy(s *checks.Subject) string {
	if s == nil || s.Pod == "" {
		return ""
	}
	return " of " + strings.TrimPrefix(facts.LabelOf(s.Kind, s.ID, s.Namespace, s.Pod, s.Name), "sandbox of ")
}

// pressureText writes one resource's stall: 43 % in the last 10 s, 40 % in the last minute.
func pressureText(a host.Averages) string {
	return textf("%.0f%% of the last 10 s, %.0f%% of the last minute", a.Avg10, a.Avg60)
}
