package facts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// LogUnread returns the status of a check that needs the journal, and why, where it was not read; no status where it
// was.
func LogUnread(f *Facts) (checks.Status, string) {
	switch {
	case f.Target.Simulated:
		return checks.StatusSkipped, "the runtime is simulated: the node's journal is not about it"
	case f.Journal == nil && f.JournalProblem != "":
		return checks.StatusUnknown, "the journal was not read: " + Clean(f.JournalProblem)
	case f.Journal == nil:
		return checks.StatusSkipped, "the journal was not looked at"
	case f.Journal.Lines == 0 && len(f.Journal.Signatures) == 0:
		return checks.StatusUnknown, "the journal holds nothing of the last " + units.Duration(f.Log.Window)
	}
	return "", ""
}

// KubeletLogs reports whether the journal holds anything of a kubelet.
func KubeletLogs(f *Facts) bool {
	return len(f.Journal.Episodes) > 0 || slices.ContainsFunc(f.Journal.Signatures,
		func(c journal.Count) bool { return c.Lane == string(signature.Kubelet) && c.Count > 0 })
}

// OwnLog is the file in which RKE2 has its kubelet log, and nowhere else.
const OwnLog = "/var/lib/rancher/rke2/agent/logs/kubelet.log"

// kubeletElsewhere explains why the absence of the kubelet's records means nothing: it logs elsewhere. It is empty
// where its log was read, as far as is known.
func kubeletElsewhere(f *Facts) string {
	if f.Journal == nil || KubeletLogs(f) {
		return ""
	}
	none := func(is func(journal.Source) bool) bool {
		return !slices.ContainsFunc(f.Journal.Sources, func(s journal.Source) bool { return s.Problem == "" && is(s) })
	}
	switch {
	case len(f.Journal.Sources) > 0 && none(func(s journal.Source) bool { return s.Format != "kmsg" }):
		return "only the kernel's log was read"
	case strings.HasPrefix(f.Target.KubeletUnit, "rke2-") &&
		none(func(s journal.Source) bool { return strings.HasSuffix(s.Name, OwnLog) }):
		return "RKE2's kubelet logs into " + OwnLog + ", which was not read"
	}
	return ""
}

// How old the newest record of a kind may be for the thing to be still going on, seen from the moment at which the
// journal was read.
const (
	// While there is a runtime error, the kubelet's loop logs it every 5 s (syncLoop in pkg/kubelet/kubelet.go): six
	// lines that are not there are an end, or a kubelet that stands still itself.
	SkipFresh = 30 * time.Second
	// Lease and node status are each tried every 10 s, and a try that waits for 10 s logs its failure.
	APIFresh = 30 * time.Second
	// Stamps may lie ahead of our clock by so much before they are taken for another clock's.
	aheadOfClock = time.Minute
)

// journalTime returns the moments between which the journal was read; the measurement goes on after it. It begins with
// the first record where that is known, since more may have been read than was asked for, and a journal that was
// rotated holds less.
func journalTime(f *Facts) (to, from time.Time) {
	to = f.Now
	if j := f.Journal; j != nil && !j.GeneratedAt.IsZero() && j.GeneratedAt.Before(f.Now) {
		to = j.GeneratedAt
	}
	if j := f.Journal; j != nil && j.From != nil && j.From.Before(to) {
		return to, *j.From
	}
	return to, to.Add(-cmp.Or(f.Limits.JournalWindow, checks.DefaultLimits().JournalWindow))
}

// Fresh reports whether a moment is at most so long ago that what happened then is taken for going on.
func Fresh(f *Facts, t *time.Time, within time.Duration) bool {
	if t == nil {
		return false
	}
	age := f.Log.At.Sub(*t)
	return age <= within && age >= -aheadOfClock
}

// MomentText is ClockText, with the date where that was half a day ago or more.
func MomentText(f *Facts, t time.Time) string {
	if f.Now.Sub(t) < 12*time.Hour {
		return ClockText(f, t)
	}
	return t.In(f.Now.Location()).Format(time.DateTime)
}

// ClockText writes the time of day in the zone of the report.
func ClockText(f *Facts, t time.Time) string { return t.In(f.Now.Location()).Format(time.TimeOnly) }

// SinceText words from when on something has been going on; what began before the window is not dated.
func SinceText(f *Facts, t time.Time) string {
	const edge = 15 * time.Second
	if t.Before(f.Log.From.Add(edge)) {
		return "for all of the last " + units.Duration(f.Log.Window)
	}
	return "since " + ClockText(f, t)
}

// Logged returns what the node's logs counted of a signature; nil when they hold none.
func Logged(f *Facts, code string) *journal.Count { return CountOf(f.Journal, code) }

// CountOf returns what a report, if there is one, counted of a signature; nil when it holds none.
func CountOf(r *journal.Report, code string) *journal.Count {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Signatures, func(c journal.Count) bool { return c.Code == code && c.Count > 0 })
	if i < 0 {
		return nil
	}
	return &r.Signatures[i]
}

// LastOf returns the time of the newest record of any of the signatures; nil without any.
func LastOf(f *Facts, codes ...string) *time.Time {
	var last *time.Time
	for _, code := range codes {
		if c := Logged(f, code); c != nil && c.Last != nil && (last == nil || c.Last.After(*last)) {
			last = c.Last
		}
	}
	return last
}

// ErrorWords returns the error of a structured record, which may be cut, else the whole record.
func ErrorWords(record string) string {
	record = signature.Loader(record)
	_, rest, found := strings.Cut(record, ` err="`)
	if !found {
		_, rest, found = strings.Cut(record, ` error="`)
	}
	if !found {
		return record
	}
	quoted, _ := strconv.QuotedPrefix(`"` + rest)
	words, err := strconv.Unquote(quoted)
	if err != nil {
		return strings.ReplaceAll(rest, `\"`, `"`)
	}
	return words
}

// An Interval is a time in which records of some kind came without a long pause.
type Interval struct {
	From, To time.Time
	Records  int64
}

// Intervals returns the times in which records of the signatures came with no pause longer than gap, by time. They are
// made of the events of the timeline; of a signature that has none there, first, last and number of its records must
// do.
func Intervals(r *journal.Report, gap time.Duration, codes ...string) []Interval {
	var parts []Interval
	for _, code := range codes {
		c, n := CountOf(r, code), len(parts)
		if c == nil {
			continue
		}
		for _, e := range r.Events {
			if e.At != nil && e.Code == code {
				parts = append(parts, Interval{*e.At, e.End(), max(e.Count, 1)})
			}
		}
		if len(parts) == n && c.First != nil && c.Last != nil {
			parts = append(parts, Interval{*c.First, *c.Last, c.Count})
		}
	}
	slices.SortStableFunc(parts, func(a, b Interval) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	var out []Interval
	for _, p := range parts {
		if n := len(out); n > 0 && p.From.Sub(out[n-1].To) <= gap {
			if p.To.After(out[n-1].To) {
				out[n-1].To = p.To
			}
			out[n-1].Records += p.Records
			continue
		}
		out = append(out, p)
	}
	return out
}

// occasions counts how often records of a signature came, those within two seconds of each other once: one kill may be
// of many processes, and the last words of a kubelet are many lines.
func occasions(f *Facts, code string) int { return len(Intervals(f.Journal, 2*time.Second, code)) }

// Ongoing returns the newest interval of the signatures if it lasts until now: its last record is no older than gap. It
// is nil if it does not.
func Ongoing(f *Facts, gap time.Duration, codes ...string) *Interval {
	all := Intervals(f.Journal, gap, codes...)
	if len(all) == 0 || !Fresh(f, &all[len(all)-1].To, gap) {
		return nil
	}
	return &all[len(all)-1]
}

// incidents returns the episodes of the journal in which PLEG was unhealthy and whose time is known, the newest last.
// Start-up is none: a kubelet that has just started has not relisted yet.
func incidents(f *Facts) []journal.Episode {
	if !f.Log.Read {
		return nil
	}
	var some []journal.Episode
	for _, e := range f.Journal.Episodes {
		if e.Kind == journal.Incident && e.NotReady == "" && e.Start != nil && e.End != nil {
			some = append(some, e)
		}
	}
	slices.SortStableFunc(some, func(a, b journal.Episode) int { return a.End.Compare(*b.End) })
	return some
}

// plegNow returns the incident that is going on: the kubelet logged it within its own cadence, and nothing shows since
// that its loop runs again. A kubelet writes NodeReady only when nothing stands against it, and its metric dates the
// last good relist.
func plegNow(f *Facts) *journal.Episode {
	all := f.Log.Incidents
	if len(all) == 0 || f.KubeletState.PLEGKnown && f.KubeletState.PLEGAge <= f.Calls.Threshold {
		return nil
	}
	last := all[len(all)-1]
	if last.Recovered || !Fresh(f, last.End, SkipFresh) || ReadySince(f, *last.End) {
		return nil
	}
	return &last
}

// ReadySince reports whether the node became ready after a moment, by the kubelet's log or, as most kubelets do not log
// it (-v=2), by the Node object, in whole seconds.
func ReadySince(f *Facts, t time.Time) bool {
	logged, posted := LastOf(f, signature.NodeReady), f.Seen.Server.Value.Node.Condition("Ready")
	return logged != nil && logged.After(t) || posted != nil && posted.Status == "True" &&
		!posted.LastTransitionTime.Before(t.Truncate(time.Second))
}
