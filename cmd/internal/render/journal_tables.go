package render

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/journal"
)

// How many rows the lists at the end of the text have at most.
const (
	shownSources    = 5
	shownUnreadable = 8
)

// couldNotRead writes what was not read, and where: silence about it would be taken for health.
func (p *page) couldNotRead(r *journal.Report) {
	bad := unread(r)
	if stateOf(r) == journalUnknown && len(bad) == 1 {
		bad = nil // the headline has said it
	}
	if len(bad) == 0 && len(r.Unreadable) == 0 && r.Unparsed == 0 {
		return
	}
	p.heading("What kdiag could not read")
	for i, s := range bad {
		if i == shownSources {
			p.item(2, plain("?"), "and "+plural(len(bad)-i, "more source")+"; -o json has all")
			break
		}
		p.item(2, plain("?"), p.prose(s.Name+": "+s.Problem))
	}
	var rest int64
	for i, u := range r.Unreadable {
		if i >= shownUnreadable {
			rest += u.Bytes
			continue
		}
		p.item(2, plain("?"), p.prose(u.Source)+": "+unreadableLine(p.cleaner, u))
	}
	if n := len(r.Unreadable) - shownUnreadable; n > 0 {
		p.item(2, plain("?"), "and "+plural(n, "more stretch")+"; together "+size(float64(rest)))
	}
	if r.Unparsed > 0 {
		p.item(2, plain("?"), plural(int(r.Unparsed), "record")+" in a form that kdiag does not know")
	}
}

func unreadableLine(c cleaner, u journal.Unreadable) string {
	text := plural(int(u.Bytes), "byte") + " at offset " + count(int(u.Offset))
	if u.Why != "" {
		text += ": " + c.prose(u.Why)
	}
	return text
}

// signatures writes which records were recognised: how many, when, and what they mean.
func (p *page) signatures(counts []journal.Count, c calendar) {
	if len(counts) == 0 {
		return
	}
	p.heading("Signatures")
	rows := make([][]span, 0, len(counts))
	for _, s := range counts {
		rows = append(rows, []span{
			{p.prose(s.Code), &p.ink.bold}, plain(count(int(s.Count))), plain(c.span(s.First, s.Last)), plain(p.prose(s.Title)),
		})
	}
	t := table{indent: 2, align: "lrll", head: []string{"", "records", "first to last", "means"}, rows: rows}
	if !p.fits(t) {
		p.underneath(t)
		return
	}
	p.table(t)
}

// fits reports whether a table has room beside its last column.
func (p *page) fits(t table) bool {
	free := p.width - t.indent
	widths := t.widths()
	for _, w := range widths[:len(widths)-1] {
		free -= w + 2
	}
	return free >= min(widths[len(widths)-1], minLast)
}

// underneath writes each row of a table in two lines: the last column below the others.
func (p *page) underneath(t table) {
	last := len(t.align) - 1
	short := table{indent: t.indent, align: t.align[:last]}
	for _, row := range t.rows {
		short.rows = append(short.rows, row[:last])
	}
	widths := short.widths()
	fixed := t.indent
	for _, w := range widths[:len(widths)-1] {
		fixed += w + 2
	}
	if p.width-fixed < min(widths[len(widths)-1], minLast) {
		p.stack(t)
		return
	}
	for _, row := range t.rows {
		p.row(short, widths, fixed, row[:last])
		p.flow([]span{plain(spaces(t.indent + 2))}, t.indent+2, row[last])
	}
}

// sources writes what was read.
func (p *page) sources(r *journal.Report, c calendar) {
	read := slices.DeleteFunc(slices.Clone(r.Sources), func(s journal.Source) bool { return s.Lines == 0 && s.Problem != "" })
	if len(read) == 0 {
		return
	}
	p.heading("Read: " + plural(int(r.Lines), "record") + ", " + size(float64(r.Bytes)))
	for i, s := range read {
		if i == shownSources {
			p.flow([]span{plain("  ")}, 2, plain("and "+count(len(read)-i)+" more; -o json has all"))
			return
		}
		name := p.prose(sourceName(s))
		lead := []span{plain("  " + name + "  ")}
		if columns(name) > p.width/3 {
			p.flow([]span{plain("  ")}, 4, plain(name))
			lead = []span{plain("    ")}
		}
		p.flow(lead, 4, plain(p.sourceLine(s, r.Notes, c)))
	}
}

func sourceName(s journal.Source) string {
	if s.Name == "-" {
		return "standard input"
	}
	return s.Name
}

// sourceLine says what a source is. How its zone and year are known is left to the notes where they say it.
func (p *page) sourceLine(s journal.Source, notes []string, c calendar) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	add(p.prose(s.Format))
	add(p.prose(s.Compressed))
	add(plural(int(s.Lines), "record"))
	add(size(float64(s.Bytes)))
	add(c.span(s.From, s.To))
	if s.Zone != "" && !noted(s, "zone", notes) {
		add("zone " + p.prose(s.Zone))
	}
	if s.Year != "" && !noted(s, "year", notes) {
		add("year " + p.prose(s.Year))
	}
	if s.Unparsed > 0 {
		add(count(int(s.Unparsed)) + " not understood")
	}
	return strings.Join(parts, ", ")
}

// noted reports whether a note about a source names a thing.
func noted(s journal.Source, thing string, notes []string) bool {
	return slices.ContainsFunc(notes, func(n string) bool {
		rest, ok := strings.CutPrefix(n, s.Name+": ")
		return ok && strings.Contains(rest, thing)
	})
}

// gatheredNotes puts the notes about one source into one, without its name where there is no other source.
func gatheredNotes(r *journal.Report) []string {
	var all []string
	at := map[string]int{}
	for _, n := range r.Notes {
		i := slices.IndexFunc(r.Sources, func(s journal.Source) bool { return strings.HasPrefix(n, s.Name+": ") })
		if i < 0 {
			all = append(all, n)
			continue
		}
		name := r.Sources[i].Name
		rest := strings.TrimPrefix(n, name+": ")
		if first, ok := at[name]; ok {
			all[first] += "; " + rest
			continue
		}
		at[name] = len(all)
		if len(r.Sources) > 1 {
			rest = name + ": " + rest
		}
		all = append(all, rest)
	}
	return all
}

func (p *page) notes(notes []string) {
	if len(notes) == 0 {
		return
	}
	p.heading("Notes")
	for _, s := range notes {
		p.item(2, plain("-"), p.prose(s))
	}
}

// journalSteps writes what to type next.
func (p *page) journalSteps(r *journal.Report, c calendar) {
	steps := journalSteps(r, c)
	if len(steps) == 0 {
		return
	}
	p.blank()
	p.put(span{"Next", &p.ink.bold}, plain("  (these only read)"))
	for i, s := range steps {
		p.step(i+1, s, s.Command)
	}
}

// journalSteps returns the commands that lead on from a report. None of them changes anything.
func journalSteps(r *journal.Report, c calendar) []checks.NextStep {
	incidents := incidentsOf(r)
	var steps []checks.NextStep
	add := func(why, command string) {
		steps = append(steps, checks.NextStep{Why: why, Command: command})
	}
	if len(incidents) == 0 && r.Failing == nil {
		if all := troublesOf(r); len(all) > 0 {
			if d, ok := causes.Doc(all[0].cause); ok {
				add("What this looks like, how to confirm it, and what helps", "kdiag explain "+d.Code)
			}
			add("On the node: whether it still is so, and what is behind it", "kdiag pleg")
			if t := all[0]; t.from != nil && t.to != nil {
				add(recordsOf(*t.from, c), journalctl(r.Sources, *t.from, *t.to))
			}
		}
		return steps
	}
	e := headliner(r, incidents)
	if d, ok := causes.Doc(firstCause(e)); ok {
		add("What this cause means, how to confirm it, and what helps", "kdiag explain "+d.Code)
	}
	if !e.Recovered {
		add("On the node: whether it still is so, and which container or process is behind it", "kdiag pleg")
	}
	if from, to, ok := trouble(e); ok {
		add(recordsOf(from, c), journalctl(r.Sources, from, to))
	}
	return steps
}

// recordsOf says what journalctl is for, and in which zone its times are where that of the log is another.
func recordsOf(at time.Time, c calendar) string {
	why := "All that the node's journal has of that time"
	if c.zoneName(at) != "UTC" {
		why += " (which is given in UTC here)"
	}
	return why
}

// journalctl returns the command that shows the records around an incident, those of the kernel included. Its times are
// in UTC, which every version of journalctl reads in the same way.
func journalctl(sources []journal.Source, from, to time.Time) string {
	const before, after = 10 * time.Minute, 2 * time.Minute
	quote := func(t time.Time) string { return "'" + t.UTC().Format("2006-01-02 15:04:05") + " UTC'" }
	command := "journalctl"
	if dir := copied(sources); dir != "" {
		command += " -D " + shellQuote(dir)
	}
	return command + " -o short-precise --since " + quote(from.Add(-before).Truncate(time.Second)) +
		" --until " + quote(to.Add(after).Truncate(time.Second))
}

// copied returns the folder of journal files that are not the node's own; empty when they are, or lie in several.
func copied(sources []journal.Source) string {
	dir := ""
	for _, s := range sources {
		if !strings.HasSuffix(s.Name, ".journal") && !strings.HasSuffix(s.Name, ".journal~") {
			continue
		}
		d := path.Dir(s.Name)
		own := slices.ContainsFunc([]string{"/var/log/journal/", "/run/log/journal/"}, func(prefix string) bool {
			return strings.HasPrefix(s.Name, prefix)
		})
		if own || dir != "" && d != dir {
			return ""
		}
		dir = d
	}
	return dir
}

// shellQuote quotes a word for a shell where it needs it.
func shellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,="
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
