package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// Stacks prints the answer of kdiag stacks.
func Stacks(w io.Writer, r *checks.StacksReport, o Options) error {
	m := o.brief()
	line := m.verdict(r.Status).text + " " + strings.Join(m.stackSentences(r), "; ")
	return write(w, o, r, func(p *page) { p.stacks(r) }, line)
}

// stacks writes the report.
func (p *page) stacks(r *checks.StacksReport) {
	p.tight = true
	begin, sentences := p.rows, p.stackSentences(r)
	p.headline(p.verdict(r.Status), r.Host, sentences...)
	unsaid := func(problem string) bool { return !slices.Contains(sentences, p.prose(problem)) }
	e := checks.Evidence{Missing: only(r.Problems, unsaid)}
	if len(r.Holders) > 0 {
		h := r.Holders[0]
		p.heading("Evidence", plain(certainty(h.Confidence)))
		e = checks.Evidence{
			For: h.Evidence.For, Against: h.Evidence.Against, Missing: slices.Concat(e.Missing, h.Evidence.Missing),
		}
	}
	p.fit(begin, func(f fold) { p.stackBody(r, e, f) })
}

// stackBody writes why, who waits, what to do and where the rest is.
func (p *page) stackBody(r *checks.StacksReport, e checks.Evidence, f fold) {
	p.evidence(e, f)
	var also []row
	for i, h := range r.Holders {
		if i == 0 {
			if p.details && h.Subject != nil {
				p.pair("serves", p.subjectLine(*h.Subject))
			}
			p.frames(h.Stack)
			continue
		}
		who, why := p.holder(r, h)
		who = strings.TrimPrefix(who, p.sourceAt(r, r.Holders[0].Source)+": ")
		also = append(also, row{text: who + ": " + why, more: slices.Concat(h.Evidence.For, h.Evidence.Against,
			h.Evidence.Missing, h.Stack)})
	}
	p.listing("Also", "", also, f.supports)
	p.listing("Waits", "goroutines, longest, calls: what they wait for", p.waitRows(r), max(f.others, 1))
	if p.details { // else the last line names the first
		known := func(k checks.KnownPicture) row { return row{text: k.Pattern + ": " + k.Why, more: k.Links} }
		p.listing("Known as", "", each(r.Known, known), f.others)
	}
	for _, s := range r.Sources {
		p.listing("Threads of "+p.stackSource(s)+" in the kernel", "", kernelRows(s), f.supports)
	}
	if p.details {
		p.listing("Sources", "", p.sourceRows(r.Sources), f.others)
	}
	steps := foremost(r.NextSteps, f.steps)
	p.steps(steps, nil)
	if p.details {
		return
	}
	p.blank()
	rest := []string{p.rerun + moreSteps(len(r.NextSteps)-len(steps))}
	if len(r.Known) > 0 {
		rest = append(rest, "kdiag explain "+p.prose(r.Known[0].Pattern))
	}
	p.moreOf(append(rest, "-o json"))
}

// A row is one of a list: a line behind a lead, and what stands below it where details are wanted.
type row struct {
	lead, text string
	more       []string
}

// listing writes a list, nothing where it is empty: all of it where details are wanted, else at most so many rows, each
// in one line, and how many there are more.
func (p *page) listing(title, about string, rows []row, most int) {
	if len(rows) == 0 {
		return
	}
	p.heading(title, plain(strings.TrimLeft(about+andMore(most-1, most, len(rows)), " ")))
	for _, r := range rows[:min(len(rows), most)] {
		lead := []span{plain("  " + r.lead)}
		if !p.details {
			p.oneLine(lead, plain(p.prose(r.text)))
			continue
		}
		p.flow(lead, columns(lead[0].text), plain(p.prose(r.text)))
		p.frames(r.more)
	}
}

// frames writes a stack, where details are wanted.
func (p *page) frames(stack []string) {
	if !p.details {
		return
	}
	for _, f := range stack {
		p.text(6, p.prose(f))
	}
}

// stackSentences are the headline: who holds up how many and what it waits for, else what was found otherwise. There is
// always one.
func (c cleaner) stackSentences(r *checks.StacksReport) []string {
	frozen := slices.IndexFunc(r.Sources, func(s checks.StackSource) bool {
		return len(s.Kernel) > 0 && s.Goroutines == 0
	})
	switch {
	case len(r.Holders) > 0:
		who, why := c.holder(r, r.Holders[0])
		return []string{who, why}
	case len(r.Known) > 0:
		return []string{c.sourceAt(r, r.Known[0].Source) + ": " + c.prose(r.Known[0].Brief())}
	case frozen >= 0 && r.Status == checks.Unhealthy:
		s := r.Sources[frozen]
		return []string{c.stackSource(s) + ": too stuck to write a dump", c.prose(s.Problem)}
	case r.Status == checks.Degraded && len(r.Problems) > 0:
		return []string{c.prose(r.Problems[0])}
	case r.Status == checks.Degraded && len(r.Waits) > 0:
		w := r.Waits[0]
		return []string{c.sourceAt(r, w.Source) + ": " + units.Count(w.Count, "goroutine") + " wait for " +
			c.prose(cmp.Or(w.On, w.State)) + "; no holder found"}
	}
	return c.nobody(r)
}

// nobody is the headline where nothing was found: what kept kdiag from looking, and what was read.
func (c cleaner) nobody(r *checks.StacksReport) (all []string) {
	total, idle, read := 0, 0, []string{}
	for _, s := range r.Sources {
		if s.Goroutines > 0 {
			total, idle, read = total+s.Goroutines, idle+s.Idle, append(read, c.stackSource(s))
		}
	}
	if r.Status == checks.Unknown && len(r.Problems) > 0 {
		all = append(all, c.prose(r.Problems[0]))
	}
	if len(read) == 0 && len(all) > 0 {
		return all
	}
	return append(all, cmp.Or(strings.Join(slices.Compact(read), ", "), "no dump")+": no goroutine holds up others; "+
		units.Count(total, "goroutine")+", "+units.Number(idle)+" idle")
}

// stackSource names a process as far as it is known: containerd (pid 812), else where its dump was read.
func (c cleaner) stackSource(s checks.StackSource) string {
	name := c.prose(cmp.Or(s.Process, s.Role, s.Name, "a Go program"))
	if s.PID > 0 {
		name += " (pid" + glue + strconv.Itoa(s.PID) + ")"
	}
	return name
}

func (c cleaner) sourceAt(r *checks.StacksReport, i int) string {
	if i < 0 || i >= len(r.Sources) {
		return "a Go program"
	}
	return c.stackSource(r.Sources[i])
}

// holder returns who holds up whom, since when, and why: the process to act on first, where it is known.
func (c cleaner) holder(r *checks.StacksReport, h checks.StackHolder) (who, why string) {
	where, name, why := c.sourceAt(r, h.Source), "goroutine"+glue+strconv.Itoa(h.Goroutine), c.prose(h.Why)
	if h.Call != "" {
		name += " (" + c.prose(h.Call) + ")"
	}
	switch {
	case len(h.Cycle) > 1:
		who = where + ": deadlock: goroutines " + units.List(each(h.Cycle, strconv.Itoa)) + " wait for each other"
	case h.Process != nil && h.Blocks > 0:
		who = c.waitedProcess(h) + " holds up " + units.Count(h.Blocks, "goroutine") + " of " + where
		why = name + ": " + why
	case h.Process != nil:
		who = c.waitedProcess(h) + " holds up " + name + " of " + where
	case h.Blocks > 0:
		who = where + ": " + name + " holds up " + units.Count(h.Blocks, "other")
	default:
		who = where + ": " + name + " waits"
	}
	long := h.Seconds
	for _, w := range r.Waits { // else the longest wait for what it holds
		if h.Seconds == nil && h.Holds(w) && w.MaxSeconds != nil && (long == nil || *w.MaxSeconds > *long) {
			long = w.MaxSeconds
		}
	}
	if long != nil && *long > 0 {
		who += " for " + units.Seconds(*long)
	}
	return who, why
}

// waitedProcess names the process that a holder waits for, its state, its age where it should end soon, and what it
// serves.
func (c cleaner) waitedProcess(h checks.StackHolder) string {
	q := *h.Process
	text := c.prose(q.Name) + " (pid" + glue + strconv.Itoa(q.PID) + ", " + c.prose(q.State)
	if q.Age != "" && (q.Role == "oci" || q.Role == "cni") {
		text += ", age" + glue + c.prose(q.Age)
	}
	text += ")"
	if s := h.Subject; s != nil {
		text += " of " + cmp.Or(strings.Join(c.culprit(s), "/"), c.subjectLine(*s))
	}
	return text
}

// waitRows are who waits, first for what a holder holds; without details not the holders, which stand above, nor what
// is at work.
func (p *page) waitRows(r *checks.StacksReport) (rows []row) {
	waits := slices.Clone(r.Waits)
	slices.SortStableFunc(waits, func(a, b checks.StackWait) int { return heldFirst(r, a.On, b.On) })
	for _, w := range waits {
		holds := func(h checks.StackHolder) bool { return w.Count == 1 && w.Has(h.Source, h.Goroutine) }
		if !p.details && (strings.HasPrefix(w.On, "nothing") || slices.ContainsFunc(r.Holders, holds)) {
			continue
		}
		longest, text := "", cmp.Or(w.On, w.State)
		if w.MaxSeconds != nil && *w.MaxSeconds > 0 {
			longest = units.Seconds(*w.MaxSeconds)
		}
		if len(w.Calls) > 0 {
			text = strings.Join(w.Calls, ", ") + ": " + text
		}
		if p.details {
			text += " [" + w.State + "]"
			if len(r.Sources) > 1 {
				text += ", in " + p.sourceAt(r, w.Source)
			}
		}
		lead := padLeft(units.Number(w.Count), 4) + "  "
		if isCompared(w) {
			lead += pad(units.Number(*w.Still)+" still", 8) + "  "
		}
		lead += pad(longest, 4) + "  "
		rows = append(rows, row{lead, text, w.Stack})
	}
	return rows
}

// isCompared reports whether there is an older dump of the process.
func isCompared(w checks.StackWait) bool { return w.Still != nil }

// kernelRows are where the threads of a process wait that wrote no dump.
func kernelRows(s checks.StackSource) (rows []row) {
	for _, k := range s.Kernel {
		text := units.Count(k.Threads, "thread") + " in state " + k.State
		if k.Wchan != "" {
			text += ", in " + k.Wchan
		}
		rows = append(rows, row{text: text, more: []string{strings.Join(k.Stack, " < ")}})
	}
	return rows
}

// heldFirst orders things that goroutines wait for: those that a holder holds come first.
func heldFirst(r *checks.StacksReport, a, b string) int {
	free := func(on string) int {
		if slices.ContainsFunc(r.Holders, func(h checks.StackHolder) bool { return h.Object == on }) {
			return 0
		}
		return 1
	}
	return free(a) - free(b)
}

// sourceRows are what was read.
func (p *page) sourceRows(sources []checks.StackSource) (rows []row) {
	for _, s := range sources {
		text := p.stackSource(s) + ": " + units.Count(s.Goroutines, "goroutine") + ", " + units.Number(s.Idle) + " idle"
		if s.CapturedAt != nil {
			text += ", at " + s.CapturedAt.Format("2006-01-02 15:04:05 MST")
		}
		parts := only([]string{text, s.Name, s.ObjectID, s.Cut, s.Problem}, func(part string) bool { return part != "" })
		rows = append(rows, row{text: strings.Join(parts, "; ")})
	}
	return rows
}
