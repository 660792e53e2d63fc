package render

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// How long records of one kind must go on before they speak of a broken node, and how far apart two of them may be and
// still be one stretch.
const (
	longSkip    = 30 * time.Second // as long again as the runtime may be away (kubelet.go: maxWaitForContainerRuntime)
	longPending = 2 * time.Minute  // a kubelet that has just started says it until its first status
	longNetwork = time.Minute      // a node that boots waits for its network
	longAPI     = 40 * time.Second // node-monitor-grace-period: nobody else sees shorter trouble
	oneStretch  = 90 * time.Second // clients of the API server pause for about a minute at most
)

const (
	someTries    = 3   // failing calls that are no accident
	manyRestarts = 3   // from which a kubelet is in a loop
	manyUndated  = 12  // records without a time that are taken for a long stretch: a minute of skip lines
	lastWordsLen = 200 // columns of what a record says
)

// A breakage is what broke a node in whose log no relist is late.
type breakage struct {
	short    string // for one line: the code of the signature, or better
	what     string // a clause without a time
	words    string // what the first record says; may be empty
	count    int64  // of records, unless counts says of what
	counts   string // such as time; empty for records
	from, to *time.Time
	cause    string // for kdiag explain
}

// troublesOf returns what breaks a node apart from PLEG, the most serious first. It is empty for a report with an
// incident, or with what still fails: its causes say it there.
func troublesOf(r *journal.Report) []breakage {
	if len(incidentsOf(r)) > 0 || r.Failing != nil || len(r.Signatures) == 0 {
		return nil
	}
	loop, once := kubeletEnds(r)
	all := loop
	all = append(all, lasting(r, "RuntimeIsDown", longSkip, "RuntimeHung",
		"the kubelet's loop did no work: the runtime's status had not succeeded for 30 s and more (container runtime is down)")...)
	all = append(all, unitsEnded(r)...)
	all = append(all, lasting(r, "RuntimeNotReadyReported", longSkip, "RuntimeNotReady", "the runtime said of itself that it was not ready")...)
	all = append(all, oomKills(r)...)
	all = append(all, repeated(r, "RelistFailed", "PLEGUnhealthy", "relists failed, at once and not late")...)
	all = append(all, blockedTasks(r)...)
	if len(loop) == 0 { // in a loop each start says it
		all = append(all, lasting(r, "StatusCheckPending", longPending, "RuntimeHung", "the kubelet's loop did no work: the runtime had not given its status since the kubelet started")...)
	}
	all = append(all, lasting(r, "NetworkNotReady", longNetwork, "NetworkNotReady", "the network of pods was not ready: no pod with a network of its own can start")...)
	all = append(all, apiTroubles(r)...)
	return append(all, once...)
}

func countOf(r *journal.Report, code string) (journal.Count, bool) {
	i := slices.IndexFunc(r.Signatures, func(c journal.Count) bool { return c.Code == code })
	if i < 0 {
		return journal.Count{}, false
	}
	return r.Signatures[i], true
}

// seen makes a breakage of all records of a signature.
func seen(c journal.Count, cause, what string) breakage {
	return breakage{short: c.Code, what: what, count: c.Count, from: c.First, to: c.Last, cause: cause}
}

// lasting returns the longest stretch of records of a signature if it is long enough.
func lasting(r *journal.Report, code string, long time.Duration, cause, what string) []breakage {
	c, ok := countOf(r, code)
	if !ok {
		return nil
	}
	t := seen(c, cause, what)
	if c.First == nil || c.Last == nil {
		if c.Count < manyUndated {
			return nil
		}
		return []breakage{t}
	}
	if from, to, n, ok := stretchOf(r.Events, code); ok {
		t.from, t.to, t.count = &from, &to, n
	} else if c.Last.Sub(*c.First) > time.Duration(min(c.Count, 1<<20))*oneStretch {
		return nil // the timeline had no room for them, and they lie far apart
	}
	if t.to.Sub(*t.from) < long {
		return nil
	}
	return []breakage{t}
}

// stretchOf joins the events of a signature that follow each other closely, and returns the longest such stretch.
func stretchOf(events []journal.Event, code string) (from, to time.Time, n int64, ok bool) {
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
		if end := *cmpOr(e.Until, e.At); end.After(last) {
			last = end
		}
		if !ok || last.Sub(first) > to.Sub(from) {
			from, to, n, ok = first, last, records, true
		}
	}
	return from, to, n, ok
}

// repeated returns the records of a signature if they are several.
func repeated(r *journal.Report, code, cause, what string) []breakage {
	c, ok := countOf(r, code)
	if !ok || c.Count < someTries {
		return nil
	}
	return []breakage{seen(c, cause, what)}
}

// kubeletEnds tells how often the kubelet ended by itself or was killed: in a loop, or now and then. systemd's restarts
// count best: each death writes several records of the other kinds.
func kubeletEnds(r *journal.Report) (loop, once []breakage) {
	for _, kind := range []struct{ code, what, counts string }{
		{"UnitRestarted", "the kubelet ended, and systemd started it again", "time"},
		{"WatchdogTimeout", "systemd's watchdog killed the kubelet: its loop stood still", "time"},
		{"KubeletFatal", "the kubelet gave up", ""},
		{"UnitFailed", "the kubelet ended with a failure", ""},
	} {
		c, ok := countOf(r, kind.code)
		if !ok {
			continue
		}
		t := seen(c, "KubeletCrashLooping", kind.what)
		t.counts, t.short = kind.counts, "kubelet ended"
		if kind.code != "KubeletFatal" {
			if t.count, t.from, t.to = ofUnit(c, kubeletName); t.count == 0 {
				continue
			}
		}
		if fatal, ok := countOf(r, "KubeletFatal"); ok {
			t.words = fatal.Example
		} else if failed, ok := countOf(r, "UnitFailed"); ok && whose("node", failed.Example) == kubeletName {
			t.words = failed.Example
		}
		if t.count >= manyRestarts {
			return []breakage{t}, nil
		}
		return nil, []breakage{t}
	}
	return nil, nil
}

// ofUnit counts the records of a signature that name a daemon.
func ofUnit(c journal.Count, who string) (n int64, from, to *time.Time) {
	for _, s := range c.Subjects {
		if whose("node", s.ID) != who {
			continue
		}
		n += s.Count
		if from == nil || s.First != nil && s.First.Before(*from) {
			from = s.First
		}
		if to == nil || s.Last != nil && s.Last.After(*to) {
			to = s.Last
		}
	}
	return n, from, to
}

// unitsEnded tells that the runtime ended with a failure.
func unitsEnded(r *journal.Report) []breakage {
	c, ok := countOf(r, "UnitFailed")
	if !ok {
		return nil
	}
	var all []breakage
	for _, s := range c.Subjects {
		if !isRuntime(whose("node", s.ID)) {
			continue
		}
		t := breakage{
			short: c.Code, what: "the runtime ended with a failure: " + s.ID, count: s.Count, from: s.First, to: s.Last, cause: "RuntimeDown",
		}
		if strings.HasPrefix(c.Example, s.ID) {
			t.words = c.Example
		}
		all = append(all, t)
	}
	return all
}

// oomKills tells that the kernel killed the runtime or the kubelet. Shims and OCI runtimes are left out: their death is
// that of one pod.
func oomKills(r *journal.Report) []breakage {
	var all []breakage
	for _, code := range []string{"OOMKill", "UnitOOMKilled"} {
		c, _ := countOf(r, code)
		for _, s := range c.Subjects {
			name := s.Name
			if name == "" {
				name = s.ID
			}
			who := whose("node", name)
			if who != kubeletName && !isRuntime(who) || len(all) > 0 {
				continue
			}
			all = append(all, breakage{
				short: code, what: "the kernel killed " + name + " for want of memory", count: s.Count, from: s.First, to: s.Last, cause: "OOMKilled",
			})
		}
	}
	return all
}

// blockedTasks tells what the kernel says of itself.
func blockedTasks(r *journal.Report) []breakage {
	var all []breakage
	for _, kind := range []struct{ code, what string }{
		{"SoftLockup", "the kernel reported a CPU as locked up"},
		{"RCUStall", "the kernel reported RCU stalls"},
		{"HungTask", "the kernel reported blocked tasks"},
	} {
		c, ok := countOf(r, kind.code)
		if !ok {
			continue
		}
		t := seen(c, "KernelHung", kind.what)
		var names []string
		for _, s := range c.Subjects {
			if s.Name != "" && !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
		if len(names) > 0 {
			t.what += ": " + strings.Join(names[:min(len(names), 3)], ", ")
		}
		all = append(all, t)
	}
	return all
}

// certificateOf tells whose certificate has expired, as far as a record says.
func certificateOf(record string) string {
	switch {
	case strings.Contains(record, "failed to verify certificate"), strings.Contains(record, "bad certificate from server"):
		return "the kubelet met an expired certificate, such as that of the API server"
	case strings.Contains(record, "remote error: tls"), strings.Contains(record, "client certificate"):
		return "the kubelet's own certificate has expired"
	}
	return "a certificate has expired"
}

// apiTroubles tells that the kubelet and the API server do not come together. An expired certificate also makes calls fail:
// it is told once.
func apiTroubles(r *journal.Report) []breakage {
	const cause = "APIServerUnreachable"
	if c, ok := countOf(r, "CertificateExpired"); ok {
		t := seen(c, cause, certificateOf(c.Example))
		t.words = c.Example
		return []breakage{t}
	}
	for _, kind := range []struct{ code, what string }{
		{"Unauthorized", "the API server rejected the kubelet's credentials"},
		{"APIServerFailed", "calls of the kubelet to the API server failed: to the others the node is Unknown after 40 s"},
	} {
		c, _ := countOf(r, kind.code)
		if all := lasting(r, kind.code, longAPI, cause, kind.what); len(all) > 0 && c.Count >= someTries {
			all[0].words = c.Example
			return all
		}
	}
	return nil
}

// shownTroubles is how many of them text shows; the page has all.
const shownTroubles = 5

// troubleTop writes the first lines where there is no incident, but the node is broken.
func (p *page) troubleTop(r *journal.Report, c calendar) {
	style := p.ink.journal(journalTrouble)
	on := ", but:"
	if host := p.prose(r.Host); host != "" {
		on = ", but on " + p.name(host) + ":"
	}
	p.flow([]span{{journalWord(r), &style}}, 2, plain(on))
	all := troublesOf(r)
	for i, t := range all {
		if i == shownTroubles {
			p.flow([]span{plain("  ")}, 2, plain("and "+count(len(all)-i)+" more; --html FILE has them"))
			break
		}
		p.item(2, p.markSpan("error"), p.troubleLine(t, r, c))
	}
	p.flow(nil, 0, plain(p.lookedAt(r, c)))
}

// troubleLine says when, how often, what was wrong, and in whose words. The line about what was looked at has the day.
func (p *page) troubleLine(t breakage, r *journal.Report, c calendar) string {
	text := t.often()
	if t.from != nil {
		text = c.span(t.from, t.to) + ", " + text
		if t.to != nil && r.To != nil && r.To.Sub(*t.to) < oneStretch && t.to.Sub(*t.from) >= longSkip {
			text += ", until the log ends"
		}
	}
	text += ": " + p.prose(t.what)
	if words := lastWords(t.words); words != "" {
		text += ". In its words: " + shortIDs(room{p.cleaner, lastWordsLen}.cut(p.prose(words)))
	}
	return text
}

// lastWords returns the error of a structured record, else the whole record.
func lastWords(record string) string {
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

func (t breakage) often() string {
	noun := "record"
	if t.counts != "" {
		noun = t.counts
	}
	return plural(int(min(t.count, math.MaxInt32)), noun)
}

// briefTrouble says it in a few columns.
func (m room) briefTrouble(t breakage, c calendar) string {
	text := count(int(min(t.count, math.MaxInt32))) + "x " + m.prose(t.short)
	if t.from == nil {
		return text
	}
	text += ", " + c.dated(*t.from)
	switch {
	case t.to == nil || c.stamp(t.from) == c.stamp(t.to):
	case c.date(*t.from) == c.date(*t.to):
		text += " to " + c.clock(*t.to)
	default:
		text += " to " + c.dated(*t.to)
	}
	return text
}
