package judge

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/journal"
)

// Journal fills in what a report of a log comes to: the causes of its incidents, verdict, findings, problems and next
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
	if incidents == 0 && r.Failing == nil {
		r.Findings = logFindings(r)
	}
	unread := 0
	for _, f := range r.Findings {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %s", timesOf(f), f.Summary))
	}
	for _, s := range r.Sources {
		if s.Problem != "" {
			unread++
			r.Problems = append(r.Problems, s.Name+": "+s.Problem)
		}
	}
	yet := ""
	if r.Partial {
		yet = " YET"
	}
	switch {
	case open:
		r.Verdict, r.Status = checks.LogUnhealthy, string(checks.Unhealthy)
	case r.Failing != nil:
		r.Verdict, r.Status = checks.LogFailing, string(checks.Unhealthy)
	case incidents > 0:
		r.Verdict, r.Status = checks.LogRecovered, string(checks.Degraded)
	case r.Lines <= r.Unparsed && unread == len(r.Sources):
		r.Verdict, r.Status = checks.LogUnknown, string(checks.Unknown)
	case len(r.Findings) > 0:
		r.Verdict, r.Status = checks.LogBroken+yet, string(checks.Degraded)
	default:
		r.Verdict, r.Status = checks.LogClear+yet, string(checks.Healthy)
	}
	r.NextSteps = logSteps(r)
}

// timesOf counts the records or times of a finding.
func timesOf(f journal.Finding) string {
	if f.Count == 1 {
		return "1 " + f.Unit
	}
	return fmt.Sprintf("%d %ss", f.Count, f.Unit)
}

// How long records of one kind must go on before they show a broken node, and how far apart two of them may be and
// still be one stretch.
const (
	longSkip    = 30 * time.Second // as long again as the runtime may be away (kubelet.go: maxWaitForContainerRuntime)
	longPending = 2 * time.Minute  // a kubelet that has just started logs it until its first status
	longNetwork = time.Minute      // a node that boots waits for its network
	longAPI     = 40 * time.Second // node-monitor-grace-period: nobody else sees shorter trouble
	oneStretch  = 90 * time.Second // clients of the API server pause for about a minute at most
)

const (
	someTries    = 3  // failing calls that are no accident
	manyRestarts = 3  // from which a kubelet is in a loop
	manyUndated  = 12 // records without a time that are taken for a long stretch: a minute of skip lines
)

// logFindings returns what breaks a node in whose log no relist is late, the most serious first.
func logFindings(r *journal.Report) []journal.Finding {
	l := &logJudge{r: r}
	ends := l.kubeletEnds()
	loop := len(l.all) > 0
	l.lasting("RuntimeIsDown", longSkip, "RuntimeHung",
		"the kubelet's loop did no work: the runtime's status had not succeeded for 30 s and more (container "+
			"runtime is down)")
	l.subjects("the runtime ended with a failure: %s", "RuntimeDown",
		func(s journal.SubjectCount) bool { return journal.UnitRole(s.ID) == journal.RoleRuntime }, "UnitFailed")
	l.lasting("RuntimeNotReadyReported", longSkip, "RuntimeNotReady",
		"the runtime said of itself that it was not ready")
	// Shims and OCI runtimes are left out: their death is that of one pod.
	l.subjects("the kernel killed %s for want of memory", "OOMKilled", func(s journal.SubjectCount) bool {
		return slices.ContainsFunc([]journal.Role{
			journal.TaskRole(cmp.Or(s.Name, s.ID)),
			journal.UnitRole(cmp.Or(s.Name, s.ID)),
		}, func(role journal.Role) bool {
			return role == journal.RoleKubelet || role == journal.RoleRuntime
		})
	}, "OOMKill", "UnitOOMKilled")
	if c := l.count("RelistFailed"); c.Count >= someTries {
		l.add(c, "PLEGUnhealthy", "relists failed, at once and not late")
	}
	for _, kernel := range []struct{ code, what string }{
		{"SoftLockup", "the kernel reported a CPU as locked up"},
		{"RCUStall", "the kernel reported RCU stalls"},
		{"HungTask", "the kernel reported blocked tasks"},
	} {
		if c := l.count(kernel.code); c.Count > 0 {
			var names []string
			for _, s := range c.Subjects {
				names = append(names, s.Name)
			}
			if len(names) > 0 {
				kernel.what += ": " + strings.Join(names[:min(len(names), 3)], ", ")
			}
			l.add(c, "KernelHung", kernel.what)
		}
	}
	if !loop { // in a loop each start logs it
		l.lasting("StatusCheckPending", longPending, "RuntimeHung",
			"the kubelet's loop did no work: the runtime had not given its status since the kubelet started")
	}
	l.lasting("NetworkNotReady", longNetwork, "NetworkNotReady",
		"the network of pods was not ready: no pod with a network of its own can start")
	l.apiServer()
	return append(l.all, ends...)
}

// A logJudge gathers the findings of a report.
type logJudge struct {
	r   *journal.Report
	all []journal.Finding
}

// count returns the count of a signature; zero without one.
func (l *logJudge) count(code string) journal.Count {
	for _, c := range l.r.Signatures {
		if c.Code == code {
			return c
		}
	}
	return journal.Count{}
}

// add adds a finding of all records of a signature.
func (l *logJudge) add(c journal.Count, cause, what string) *journal.Finding {
	f := journal.Finding{
		Code: c.Code, Cause: cause, Summary: what, Count: c.Count, Unit: "record", First: c.First,
		Last: c.Last,
	}
	f.Ongoing = l.ongoing(f)
	l.all = append(l.all, f)
	return &l.all[len(l.all)-1]
}

// ongoing reports whether something that lasted goes on until the log ends.
func (l *logJudge) ongoing(f journal.Finding) bool {
	return f.First != nil && f.Last != nil && l.r.To != nil && l.r.To.Sub(*f.Last) < oneStretch &&
		f.Last.Sub(*f.First) >= longSkip
}

// lasting adds the longest stretch of records of a signature if it is long enough, and returns it.
func (l *logJudge) lasting(code string, long time.Duration, cause, what string) *journal.Finding {
	c := l.count(code)
	if c.First == nil || c.Last == nil {
		if c.Count < manyUndated {
			return nil
		}
		return l.add(c, cause, what)
	}
	if from, to, n := longestStretch(l.r.Events, code); n > 0 {
		c.First, c.Last, c.Count = &from, &to, n
	} else if c.Last.Sub(*c.First) > time.Duration(min(c.Count, 1<<20))*oneStretch {
		return nil // the timeline had no room for them, and they lie far apart
	}
	if c.Last.Sub(*c.First) < long {
		return nil
	}
	return l.add(c, cause, what)
}

// longestStretch joins the events of a signature that follow each other closely, and returns the longest such stretch.
func longestStretch(events []journal.Event, code string) (from, to time.Time, n int64) {
	var first, last time.Time
	var records int64
	for _, e := range events {
		if e.Code != code || e.At == nil {
			continue
		}
		if records == 0 || e.At.Sub(last) > oneStretch {
			first, last, records = *e.At, *e.At, 0
		}
		records += max(e.Count, 1)
		if e.End().After(last) {
			last = e.End()
		}
		if n == 0 || last.Sub(first) > to.Sub(from) {
			from, to, n = first, last, records
		}
	}
	return from, to, n
}

// subjects adds what happened to objects that fit: to each unit that failed, to the first that was killed.
func (l *logJudge) subjects(what, cause string, fits func(journal.SubjectCount) bool, codes ...string) {
	for _, code := range codes {
		c := l.count(code)
		for _, s := range c.Subjects {
			if !fits(s) {
				continue
			}
			one := journal.Count{Code: code, Count: s.Count, First: s.First, Last: s.Last}
			f := l.add(one, cause, fmt.Sprintf(what, cmp.Or(s.Name, s.ID)))
			if strings.HasPrefix(c.Example, s.ID) {
				f.Words = errorWords(c.Example)
			}
			if code != "UnitFailed" {
				return
			}
		}
	}
}

// kubeletEnds judges how often the kubelet ended by itself or was killed. A loop is added at once; what happened now
// and then is returned. systemd's restarts count best: each death writes several records of the other kinds.
func (l *logJudge) kubeletEnds() []journal.Finding {
	kubelet := func(s journal.SubjectCount) bool { return journal.UnitRole(s.ID) == journal.RoleKubelet }
	for _, kind := range []struct{ code, what, unit string }{
		{"UnitRestarted", "the kubelet ended, and systemd started it again", "time"},
		{"WatchdogTimeout", "systemd's watchdog killed the kubelet: its loop stood still", "time"},
		{"KubeletFatal", "the kubelet gave up", "record"},
		{"UnitFailed", "the kubelet ended with a failure", "record"},
	} {
		c := l.count(kind.code)
		if kind.code != "KubeletFatal" {
			c.Count, c.First, c.Last = 0, nil, nil
			for _, s := range c.Subjects {
				if kubelet(s) {
					if c.Count == 0 || s.First != nil && s.First.Before(*c.First) {
						c.First = s.First
					}
					if c.Count == 0 || s.Last != nil && s.Last.After(*c.Last) {
						c.Last = s.Last
					}
					c.Count += s.Count
				}
			}
		}
		if c.Count == 0 {
			continue
		}
		f := journal.Finding{
			Code: "kubelet ended", Cause: "KubeletCrashLooping", Summary: kind.what, Count: c.Count,
			Unit: kind.unit, First: c.First, Last: c.Last,
		}
		f.Ongoing = l.ongoing(f)
		f.Words = errorWords(l.count("KubeletFatal").Example)
		if failed := l.count("UnitFailed").Example; f.Words == "" && journal.UnitRole(failed) == journal.RoleKubelet {
			f.Words = errorWords(failed)
		}
		if f.Count >= manyRestarts {
			l.all = append(l.all, f)
			return nil
		}
		return []journal.Finding{f}
	}
	return nil
}

// apiServer adds that the kubelet and the API server do not come together. An expired certificate also makes calls
// fail: it is told once.
func (l *logJudge) apiServer() {
	const cause = "APIServerUnreachable"
	if c := l.count("CertificateExpired"); c.Count > 0 {
		what := "a certificate has expired"
		has := func(words string) bool { return strings.Contains(c.Example, words) }
		switch {
		case has("failed to verify certificate"), has("bad certificate from server"):
			what = "the kubelet met an expired certificate, such as that of the API server"
		case has("remote error: tls"), has("client certificate"):
			what = "the kubelet's own certificate has expired"
		}
		l.add(c, cause, what).Words = errorWords(c.Example)
		return
	}
	for _, kind := range []struct{ code, what string }{
		{"Unauthorized", "the API server rejected the kubelet's credentials"},
		{"APIServerFailed", "calls of the kubelet to the API server failed: to the others the node is " +
			"checks.Unknown after 40 s"},
	} {
		if c := l.count(kind.code); c.Count >= someTries {
			if f := l.lasting(kind.code, longAPI, cause, kind.what); f != nil {
				f.Words = errorWords(c.Example)
				return
			}
		}
	}
}

// errorWords returns the error of a structured record, else the whole record.
func errorWords(record string) string {
	_, words, ok := strings.Cut(record, ` err="`)
	if !ok {
		return record
	}
	var b strings.Builder
	for i := 0; i < len(words) && words[i] != '"'; i++ {
		if words[i] == '\\' && i+1 < len(words) {
			i++
		}
		b.WriteByte(words[i])
	}
	return b.String()
}

// logSteps returns the commands that lead on from a report. None of them changes anything.
func logSteps(r *journal.Report) []journal.NextStep {
	var steps []journal.NextStep
	explain := func(why, code string) {
		if d, ok := causes.Lookup(code); ok {
			steps = append(steps, journal.NextStep{Why: why, Command: "kdiag explain " + d.Code})
		}
	}
	records := func(from, to time.Time) {
		steps = append(steps, journal.NextStep{
			Why:     "All records of that time in the node's journal (times in UTC)",
			Command: journalctlCommand(r.Sources, from, to),
		})
	}
	e := r.Headline()
	if e == nil {
		for _, f := range r.Findings[:min(len(r.Findings), 1)] {
			explain("What this looks like, how to confirm it, and what helps", f.Cause)
			steps = append(steps, journal.NextStep{
				Why:     "On the node: whether it still is so, and what is behind it",
				Command: "kdiag pleg",
			})
			if f.First != nil && f.Last != nil {
				records(*f.First, *f.Last)
			}
		}
		return steps
	}
	if len(e.Causes) > 0 {
		explain("What this cause means, how to confirm it, and what helps", e.Causes[0].Code)
	}
	if !e.Recovered {
		steps = append(steps, journal.NextStep{Why: "On the node: whether it still is so, and which container or " +
			"process is behind it", Command: "kdiag pleg"})
	}
	if from, to, ok := e.Span(); ok {
		records(from, to)
	}
	return steps
}

// journalctlCommand returns the command that shows the records around an incident, those of the kernel included. Its
// times are in UTC, which every version of journalctl reads in the same way.
func journalctlCommand(sources []journal.Source, from, to time.Time) string {
	const before, after = 10 * time.Minute, 2 * time.Minute
	quote := func(t time.Time) string { return "'" + t.UTC().Truncate(time.Second).Format(time.DateTime) + " UTC'" }
	command := "journalctl"
	if dir := copiedJournal(sources); dir != "" {
		command += " -D '" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return command + " -o short-precise --since " + quote(from.Add(-before)) + " --until " + quote(to.Add(after))
}

// copiedJournal returns the folder of journal files that are not the node's own; empty when they are, or lie in
// several.
func copiedJournal(sources []journal.Source) string {
	dir := ""
	for _, s := range sources {
		if !strings.HasSuffix(s.Name, ".journal") && !strings.HasSuffix(s.Name, ".journal~") {
			continue
		}
		d := path.Dir(s.Name)
		if strings.HasPrefix(d, "/var/log/journal") || strings.HasPrefix(d, "/run/log/journal") || dir != "" &&
			d != dir {
			return ""
		}
		dir = d
	}
	return dir
}
