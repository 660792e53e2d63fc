package judge

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// Journal fills in the judgement of a log's report: the causes of its incidents, verdict, findings, problems and next
// steps. An incident without surroundings, as in a report that was saved, keeps its causes.
func Journal(r *journal.Report) {
	incidents, open := 0, false
	for i := range r.Episodes {
		if e := &r.Episodes[i]; e.Kind == journal.Incident {
			incidents++
			open = open || !e.Recovered
			judgeIncident(e)
		}
	}
	if r.Failing != nil {
		judgeIncident(r.Failing)
	}
	r.Findings, r.Problems = nil, []string{}
	crashing := false // until the log ends
	if incidents == 0 && r.Failing == nil {
		if r.Findings = logFindings(r); len(r.Findings) == 0 {
			r.Findings = remarkable(r)
		}
		crashing = len(r.Findings) > 0 && r.Findings[0].Ongoing && r.Findings[0].Cause == causes.KubeletCrashLooping
	}
	unread := 0
	for _, f := range r.Findings {
		r.Problems = append(r.Problems, units.Count(f.Count, f.Unit)+": "+f.Summary)
	}
	for _, s := range r.Sources {
		if s.Problem != "" {
			unread++
			r.Problems = append(r.Problems, s.Name+": "+s.Problem)
		}
	}
	switch {
	case open:
		r.Verdict, r.Status = checks.LogUnhealthy, string(checks.Unhealthy)
	case r.Failing != nil || crashing:
		r.Verdict, r.Status = checks.LogFailing, string(checks.Unhealthy)
	case incidents > 0:
		r.Verdict, r.Status = checks.LogRecovered, string(checks.Degraded)
	case r.Lines <= r.Unparsed && unread == len(r.Sources):
		r.Verdict, r.Status = checks.LogUnknown, string(checks.Unknown)
	case len(r.Findings) > 0:
		r.Verdict, r.Status = checks.LogBroken, string(checks.Degraded)
	case r.Partial:
		r.Verdict, r.Status = checks.LogPartial, string(checks.Unknown)
	default:
		r.Verdict, r.Status = checks.LogClear, string(checks.Healthy)
	}
	r.NextSteps = logSteps(r)
}

const (
	oneStretch   = 90 * time.Second // how far apart records of one stretch may be: API clients pause for a minute
	oneProcess   = 45 * time.Second // the same for what the kubelet's loop writes every 5 s, and a start writes once
	longSkip     = 30 * time.Second // as long again as the runtime may be away (kubelet.go: maxWaitForContainerRuntime)
	someTries    = 3                // failing calls that are no accident
	manyRestarts = 3                // from which a kubelet is in a loop
	restartPause = 10 * time.Minute // how far apart the restarts of a loop may be: a watchdog needs minutes
)

// A logRule makes a finding of the records of a signature.
type logRule struct {
	code, cause, what string
	when              when
}

// when has the further conditions of a rule.
type when struct {
	of    func(name string) bool // only records about units or processes that fit; nil: all
	long  time.Duration          // for how long they must go on; 0: they need not
	gap   time.Duration          // how far apart records of one stretch may be; 0: oneStretch
	from  int64                  // how many there must be
	words bool                   // the finding quotes the error of the last record
}

// kubeletRules are the ends of a kubelet. systemd's restarts count best: each death writes several records of the other
// kinds.
func kubeletRules() []logRule {
	kubelet := when{of: func(name string) bool { return journal.UnitRole(name) == journal.RoleKubelet }}
	const cause = causes.KubeletCrashLooping
	return []logRule{
		{"UnitRestarted", cause, "the kubelet ended, and systemd started it again", kubelet},
		{"WatchdogTimeout", cause, "systemd's watchdog killed the kubelet: its loop stood still", kubelet},
		{"KubeletFatal", cause, "the kubelet gave up", when{}},
		{"UnitFailed", cause, "the kubelet ended with a failure", kubelet},
	}
}

// logRules are the faults that break a node without making PLEG unhealthy, the most serious first. An expired
// certificate also makes calls fail. Nobody else sees trouble with the API server that is shorter than the
// node-monitor-grace-period.
func logRules() []logRule {
	runtime := func(name string) bool { return journal.UnitRole(name) == journal.RoleRuntime }
	// Shims and OCI runtimes are left out: their death is that of one pod.
	vital := when{of: func(name string) bool {
		return slices.ContainsFunc([]journal.Role{journal.TaskRole(name), journal.UnitRole(name)},
			func(r journal.Role) bool { return r == journal.RoleKubelet || r == journal.RoleRuntime })
	}}
	isRuntime := func(name string) bool { return journal.TaskRole(name) == journal.RoleRuntime }
	outage := when{from: someTries, long: 40 * time.Second, words: true}
	const oom, server = "the kernel killed processes for want of memory", causes.APIServerUnreachable
	return []logRule{
		{
			"RuntimeIsDown", causes.RuntimeHung, "the kubelet's loop did no work: the runtime's status had not " +
				"succeeded for 30 s and more (container runtime is down)", when{long: longSkip},
		},
		{"UnitFailed", causes.RuntimeDown, "the runtime ended with a failure", when{of: runtime, words: true}},
		{"ProcessCrashed", causes.RuntimeDown, "the runtime crashed", when{of: isRuntime}},
		{
			"RuntimeNotReadyReported", causes.RuntimeNotReady, "the runtime reported that it was not ready",
			when{long: longSkip},
		},
		{"OOMKill", causes.OOMKilled, oom, vital},
		{"UnitOOMKilled", causes.OOMKilled, oom, vital},
		{"RelistFailed", causes.PLEGUnhealthy, "relists failed, at once and not late", when{from: someTries}},
		{"HardwareError", causes.HardwareFault, "memory, a CPU or a bus failed", when{}},
		{"KernelOops", causes.KernelHung, "the kernel failed (Oops, BUG or panic)", when{}},
		{"SoftLockup", causes.KernelHung, "the kernel reported a CPU as locked up", when{}},
		{"RCUStall", causes.KernelHung, "the kernel reported RCU stalls", when{}},
		{"HungTask", causes.KernelHung, "the kernel reported blocked tasks", when{}},
		{
			"StatusCheckPending", causes.RuntimeHung, "the kubelet's loop did no work: the runtime had not given its " +
				"status since the kubelet started", when{long: 2 * time.Minute, gap: oneProcess},
		},
		{
			"NetworkNotReady", causes.NetworkNotReady, "the network of pods was not ready: no pod with a network of " +
				"its own can start", when{long: time.Minute}, // a node that boots waits for it
		},
		{
			"CgroupDriverMismatch", causes.CgroupDriverMismatch,
			"kubelet and runtime use different cgroup drivers, so new pods fail",
			when{from: someTries, words: true},
		},
		{"CertificateExpired", server, "a certificate has expired", when{words: true}},
		{"Unauthorized", server, "the API server rejected the kubelet's credentials", outage},
		{
			"APIServerFailed", server, "calls of the kubelet to the API server failed: to the others the node is " +
				"Unknown after 40 s", outage,
		},
	}
}

// logFindings returns what breaks a node in whose log no relist is late, the most serious first, one of each cause. A
// kubelet that ends again and again goes before all, one that ended now and then comes last.
func logFindings(r *journal.Report) []journal.Finding {
	var ends, all []journal.Finding
	for _, rule := range kubeletRules() {
		if f, ok := rule.find(r); ok {
			f.Code = "kubelet ended"
			if c := facts.CountOf(r, "KubeletFatal"); c != nil {
				f.Words = facts.ErrorWords(cmp.Or(c.Latest, c.Example))
			}
			all := facts.Intervals(r, restartPause, rule.code)
			f.Ongoing = f.Ongoing && len(all) > 0 && all[len(all)-1].Records >= manyRestarts
			ends = []journal.Finding{f}
			break
		}
	}
	loop := len(ends) > 0 && ends[0].Count >= manyRestarts
	for _, rule := range logRules() {
		known := slices.ContainsFunc(all, func(f journal.Finding) bool { return f.Cause == rule.cause })
		if known || loop && rule.code == "StatusCheckPending" { // in a loop each start logs it
			continue
		}
		if f, ok := rule.find(r); ok {
			all = append(all, f)
		}
	}
	if loop {
		return append(ends, all...)
	}
	return append(all, ends...)
}

// remarkable returns the findings of a log in which nothing broke: each kind of error, and warnings that come
// again. Records of a start, and calls that the kubelet cancels as it ends, are left out.
func remarkable(r *journal.Report) []journal.Finding {
	var all []journal.Finding
	for _, c := range r.Signatures {
		i := slices.IndexFunc(signature.Catalogue(), func(s signature.Signature) bool { return s.Code == c.Code })
		if i < 0 || slices.Contains(ordinary, c.Code) || strings.Contains(c.Example, "context canceled") {
			continue
		}
		s := signature.Catalogue()[i]
		if s.Marker == signature.Error || s.Marker == signature.Warning && c.Count >= someTries {
			all = append(all, journal.Finding{
				Code: c.Code, Cause: likeliest(c, s), Summary: c.Title,
				Count: c.Count, Unit: "record", First: c.First, Last: c.Last,
				Words: facts.ErrorWords(cmp.Or(c.Latest, c.Example)),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b journal.Finding) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// likeliest returns the cause that records of a signature stand for; empty if they do not tell.
func likeliest(c journal.Count, s signature.Signature) string {
	switch {
	case s.Code == signature.EvictionPressure:
		return cmp.Or(shortage(c.Latest), shortage(c.Example))
	case len(s.Implies) == 0,
		// Another error is often of the pod itself.
		s.Code == signature.CreateFailed && !strings.Contains(c.Newest(), "DeadlineExceeded"):
		return ""
	}
	return s.Implies[0]
}

// scarce matches what a record of the eviction manager, an event or a condition says that a node is short of: the names
// of resources and signals in pkg/kubelet/eviction/helpers.go, and the reasons in pkg/kubelet/nodestatus/setters.go.
var scarce = lazyregexp.New(`(?:resourceName="|reclaim |low on resource: \[?|[Ii]nsufficient|Has)` +
	`(memory|Memory|\w*\.?inodes|pid|PID|ephemeral-storage|nodefs|imagefs|containerfs|DiskPressure)`)

// shortage returns the cause for the resource that a record calls short; empty for other records.
func shortage(record string) string {
	m := scarce.FindStringSubmatch(record)
	switch {
	case m == nil:
		return ""
	case strings.HasSuffix(m[1], "inodes"):
		return causes.InodesExhausted
	case strings.EqualFold(m[1], "pid"):
		return causes.PIDsExhausted
	case strings.EqualFold(m[1], "memory"):
		return causes.MemoryPressure
	}
	return causes.DiskFull
}

// ordinary are the signatures of errors and warnings that healthy nodes write too: at a start, and now and then.
var ordinary = []string{
	signature.PLEGNotHealthy, "StatusCheckPending", signature.NetworkNotReady, signature.CNINotInitialized,
	signature.APIServerFailed, signature.LogsSuppressed, signature.OOMInvoked, signature.EvictionBlind,
	signature.HousekeepingSlow, signature.ClockChanged, signature.GPUProgramError, signature.ProcessCrashed,
}

// find applies the rule to a report.
func (l logRule) find(r *journal.Report) (journal.Finding, bool) {
	known := facts.CountOf(r, l.code)
	if known == nil {
		return journal.Finding{}, false
	}
	c := *known
	if l.when.of != nil {
		i := slices.IndexFunc(c.Subjects, func(s journal.SubjectCount) bool { return l.when.of(cmp.Or(s.Name, s.ID)) })
		if i < 0 {
			return journal.Finding{}, false
		}
		c.Subjects = c.Subjects[i : i+1]
		c.Count, c.First, c.Last = c.Subjects[0].Count, c.Subjects[0].First, c.Subjects[0].Last
	}
	var names []string
	for _, s := range c.Subjects {
		if name := cmp.Or(s.Name, s.ID); len(names) < facts.MostNamed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if l.when.long > 0 {
		all := facts.Intervals(r, cmp.Or(l.when.gap, oneStretch), l.code)
		if len(all) == 0 {
			return journal.Finding{}, false
		}
		longest := slices.MaxFunc(all,
			func(a, b facts.Interval) int { return cmp.Compare(a.To.Sub(a.From), b.To.Sub(b.From)) })
		c.First, c.Last, c.Count = &longest.From, &longest.To, longest.Records
	}
	if c.Count < l.when.from || l.when.long > 0 && c.Last.Sub(*c.First) < l.when.long {
		return journal.Finding{}, false
	}
	ready := facts.CountOf(r, signature.NodeReady) // the kubelet writes that only when nothing stands against it
	f := journal.Finding{
		Code: l.code, Cause: l.cause, Summary: l.what, Count: c.Count, Unit: "record", First: c.First, Last: c.Last,
		Ongoing: c.First != nil && c.Last != nil && r.To != nil && r.To.Sub(*c.Last) < oneStretch &&
			c.Last.Sub(*c.First) >= longSkip && (ready == nil || ready.Last == nil || !ready.Last.After(*c.Last)),
	}
	if len(names) > 0 {
		f.Summary += ": " + units.List(names)
	}
	if l.when.words {
		f.Words = facts.ErrorWords(cmp.Or(c.Latest, c.Example))
	}
	if l.code == signature.APIServerFailed {
		f.Summary = cmp.Or(answered(f.Words), answered(facts.ErrorWords(c.Example)), f.Summary)
	}
	return f, true
}

// answered describes an error of the API server's own: it was reached, and refused the call. It is empty for others.
func answered(words string) string {
	switch a := facts.FailureOf(words); {
	case a.Webhook != "":
		return "the API server was reached, but its webhook " + a.Webhook + " rejects updates"
	case a.NoNode:
		return "the API server was reached, but it has no object for this node; the kubelet registers only at its start"
	}
	return ""
}

// logSteps returns the commands that lead on from a report. None of them changes anything.
func logSteps(r *journal.Report) []journal.NextStep {
	cause, open := "", true
	var from, to *time.Time
	if e := r.Headline(); e != nil {
		if open = !e.Recovered; len(e.Causes) > 0 {
			cause = e.Causes[0].Code
		}
		if a, b, ok := e.Span(); ok {
			from, to = &a, &b
		}
	} else if len(r.Findings) > 0 {
		f := r.Findings[0]
		cause, from, to, open = f.Cause, f.First, f.Last, f.Ongoing
	} else {
		return nil
	}
	var steps []journal.NextStep
	add := func(why, command string) { steps = append(steps, journal.NextStep{Why: why, Command: command}) }
	if open {
		add("Check the node: is it still so, and which process is behind it?", "kdiag pleg")
	}
	if d, ok := causes.Lookup(cause); ok {
		add("Read how to confirm and fix this cause", "kdiag explain "+d.Code)
	}
	if from != nil && to != nil {
		add("Read all records of that time (times in UTC)", journalctlCommand(r.Sources, *from, *to))
	}
	return steps
}

// journalctlCommand returns the command that shows the records around an incident, those of the kernel included, out of
// the folder of a copied journal. Its times are in UTC, which every version of journalctl reads in the same way.
func journalctlCommand(sources []journal.Source, from, to time.Time) string {
	const before, after = 10 * time.Minute, 2 * time.Minute
	quote := func(t time.Time) string { return "'" + t.UTC().Truncate(time.Second).Format(time.DateTime) + " UTC'" }
	command := "journalctl"
	if len(sources) > 0 && sources[0].Format == "journal" && !strings.Contains(sources[0].Name, "/log/journal/") {
		command += " -D '" + strings.ReplaceAll(path.Dir(sources[0].Name), "'", `'\''`) + "'"
	}
	return command + " -o short-precise --since " + quote(from.Add(-before)) + " --until " + quote(to.Add(after))
}

// likelyRoot is the confidence from which a cause goes before its consequences.
const likelyRoot = 0.5

// judgeIncident names the likely causes of an incident of a log, most likely first, and the objects that failing calls
// name, by what the log holds around it. Without surroundings, as in a report that was saved, those that it has stay.
func judgeIncident(e *journal.Episode) {
	if e.Context == nil {
		return
	}
	in := causes.NewIncident(e)
	defs := definitions()
	found := in.FromLog()
	all := advise(nil, defs, found, nil)
	roots := map[string]relation{}
	for _, c := range all {
		var likely []string
		for _, r := range defs[c.Code].Roots() {
			if i := index(all, r.Code); i >= 0 && min(c.Confidence, all[i].Confidence) >= likelyRoot {
				likely = append(likely, r.Code)
			}
		}
		if len(likely) > 0 {
			roots[c.Code] = relation{causedBy: nearest(defs, likely)}
		}
	}
	e.Causes, e.Culprits = make([]journal.Cause, 0, len(all)), in.Culprits()
	for _, c := range order(all, roots) {
		e.Causes = append(e.Causes, journal.Cause{
			Code: c.Code, Confidence: c.Confidence, Summary: c.Summary, Evidence: journal.Evidence(c.Evidence),
		})
	}
}
