package render

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
)

// The culprits of one kind that text names besides the first; JSON names all.
const (
	relatedFirst = 5
	relatedOther = 2
)

// causes writes the causes: the first in full, of the others no processes, and consequences without blank lines.
func (p *page) causes(causes []checks.Cause) {
	seen := map[string]bool{}
	for i, c := range causes {
		p.causeHeading(c)
		if i > 0 {
			// The headline has said the first cause's summary.
			p.flow([]span{plain("  ")}, 2, plain(p.prose(c.Summary)))
		}
		p.evidence(c.Evidence)
		roomy := c.CausedBy == ""
		if i == 0 {
			p.culprit(c)
		} else {
			p.otherCulprit(c)
		}
		p.steps(c.NextSteps, roomy, seen)
	}
}

func (p *page) causeHeading(c checks.Cause) {
	p.blank()
	severity := p.ink.severity(c.Severity)
	lead := []span{{p.prose(c.Code), &p.ink.bold}, plain("  "), {p.prose(string(c.Severity)), &severity}, plain(", ")}
	text := confidence(c.Confidence)
	if c.CausedBy != "" {
		text += "; because of " + p.prose(c.CausedBy)
	}
	p.flow(lead, 2, plain(text))
}

// confidence returns a confidence in words, and as the number that JSON has.
func confidence(v float64) string {
	word := "a guess"
	switch {
	case v >= 0.95:
		word = "almost certain"
	case v >= 0.8:
		word = "very likely"
	case v >= 0.6:
		word = "likely"
	case v >= 0.4:
		word = "possible"
	}
	return word + " (" + strconv.FormatFloat(v, 'f', 2, 64) + ")"
}

func (p *page) evidence(e checks.Evidence) {
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"+", e.For}, {"-", e.Against}, {"?", e.Missing}} {
		for _, s := range side.lines {
			p.item(2, plain(side.sign), p.prose(s))
		}
	}
}

// culprit writes whom a cause is about: names, ids, and its processes on this host.
func (p *page) culprit(c checks.Cause) {
	if c.Subject == nil {
		return
	}
	p.blank()
	p.flow([]span{plain("  "), {"Culprit", &p.ink.bold}, plain("  ")}, 4, plain(p.subject(*c.Subject)))
	if ids := p.subjectIDs(*c.Subject); ids != "" {
		p.flow([]span{plain("    ")}, 4, plain(ids))
	}
	p.processes(c.Subject.Processes)
	p.related(c.Related, relatedFirst)
}

// otherCulprit is culprit in one line.
func (p *page) otherCulprit(c checks.Cause) {
	if c.Subject == nil {
		return
	}
	p.flow([]span{plain("  culprit: ")}, 4, plain(p.subjectLine([]checks.Subject{*c.Subject})))
	p.related(c.Related, relatedOther)
}

func (p *page) related(subjects []checks.Subject, most int) {
	shown := 0
	for i, alike := range p.alike(subjects) {
		if i == most {
			p.flow([]span{plain("    ")}, 4, plain("and "+count(len(subjects)-shown)+" more; -o json names them"))
			return
		}
		shown += len(alike)
		p.flow([]span{plain("    ")}, 6, plain("also "+p.subjectLine(alike)))
	}
}

// alike puts processes together that have the same words: runc alone starts several of one name for a container.
func (p *page) alike(subjects []checks.Subject) [][]checks.Subject {
	var groups [][]checks.Subject
	for _, s := range subjects {
		i := slices.IndexFunc(groups, func(g []checks.Subject) bool {
			return pidOf(s) != "" && pidOf(g[0]) != "" && p.subject(g[0]) == p.subject(s) && g[0].PodUID == s.PodUID
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

// maxPIDs is how many process ids one line names.
const maxPIDs = 8

// subjectLine names subjects that are alike in one line, with their ids.
func (p *page) subjectLine(alike []checks.Subject) string {
	var pids []string
	for _, s := range alike {
		if pid := pidOf(s); pid != "" {
			pids = append(pids, pid)
		}
	}
	first := alike[0]
	line := p.subject(first)
	switch n := len(pids) - maxPIDs; {
	case len(pids) == 0:
	case n > 0:
		line += ", pids" + glue + strings.Join(pids[:maxPIDs], ", ") + " and " + count(n) + " more"
	case len(pids) == 1:
		line += ", pid" + glue + pids[0]
	default:
		line += ", pids" + glue + strings.Join(pids, ", ")
	}
	if len(pids) > 0 {
		first.ID = ""
	}
	if ids := p.subjectIDs(first); ids != "" {
		line += ", " + ids
	}
	return line
}

// pidOf is the id of the process that a subject is; empty for other subjects.
func pidOf(s checks.Subject) string {
	if s.Kind != "Process" {
		return ""
	}
	if len(s.Processes) == 1 && s.Processes[0].PID > 0 {
		return strconv.Itoa(s.Processes[0].PID)
	}
	if pid, err := strconv.Atoi(s.ID); err == nil && pid > 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

func (p *page) processes(processes []checks.Process) {
	rows := make([][]span, 0, len(processes))
	for _, q := range processes {
		state := p.prose(q.State)
		if q.Wchan != "" && q.Wchan != "0" {
			state += " in " + p.prose(q.Wchan)
		}
		age := ""
		if q.Age != "" {
			age = "age" + glue + p.prose(q.Age)
		}
		rows = append(rows, []span{
			plain(p.prose(q.Role)), plain(p.prose(q.Name)), plain("pid" + glue + strconv.Itoa(q.PID)), plain(age), plain(state),
		})
	}
	p.table(table{indent: 4, align: "lllll", rows: rows})
}

// subject names a culprit in words, such as "container ledger of payments/ledger-db-0".
func (p *page) subject(s checks.Subject) string {
	kind := p.prose(s.Kind)
	pod := podName(p.cleaner, s)
	switch s.Kind {
	case "Container", "Unit", "Process", "Filesystem", "Socket", "Node", "Disk", "Cgroup", "Certificate":
		kind = strings.ToLower(kind)
	case "PodSandbox":
		kind = "sandbox"
	case "Pod":
		return "pod " + pod
	}
	text := kind
	if s.Name != "" && s.Name != s.Pod {
		text += " " + p.prose(s.Name)
	}
	if pod != "" {
		text += " of " + pod
	}
	if s.Name == "" && pod == "" && s.ID != "" {
		text += " " + shortID(p.prose(s.ID))
	}
	return strings.TrimSpace(text)
}

// subjectIDs returns the ids by which a culprit can be asked for.
func (p *page) subjectIDs(s checks.Subject) string {
	var parts []string
	switch {
	case s.ID == "" || s.ID == s.Name:
	case s.Kind == "Container" || s.Kind == "PodSandbox":
		parts = append(parts, "id"+glue+shortID(p.prose(s.ID)))
	case len(s.Processes) == 0:
		parts = append(parts, p.prose(s.ID))
	}
	if s.PodUID != "" {
		parts = append(parts, "pod"+glue+"uid"+glue+p.prose(s.PodUID))
	}
	return strings.Join(parts, ", ")
}

func podName(c cleaner, s checks.Subject) string {
	if s.Namespace == "" || s.Pod == "" {
		return c.prose(s.Pod)
	}
	return c.prose(s.Namespace + "/" + s.Pod)
}

// shortID cuts a long hexadecimal id to the 13 characters that crictl prints, and which it understands. Other ids stay
// whole.
func shortID(id string) string {
	const shown, whole = 13, 64
	if len(id) != whole || strings.Trim(id, "0123456789abcdef") != "" {
		return id
	}
	return id[:shown]
}

// steps writes what to do, in order: why, what it touches, and the command. A command that an earlier cause has shown
// is not shown again; seen holds those.
func (p *page) steps(steps []checks.NextStep, roomy bool, seen map[string]bool) {
	if len(steps) == 0 {
		return
	}
	if roomy {
		p.blank()
	}
	p.put(plain("  "), span{"Next", &p.ink.bold})
	shown := 0
	for _, s := range steps {
		command := strings.TrimSpace(s.Command)
		if command != "" && seen[command] {
			continue
		}
		seen[command] = true
		shown++
		p.step(shown, s, command)
	}
	if again := len(steps) - shown; again > 0 {
		p.flow([]span{plain("  ")}, 2, plain(plural(again, "step")+" as above"))
	}
}

func (p *page) step(n int, s checks.NextStep, command string) {
	text := p.prose(s.Why)
	if s.Touches != "" {
		text += " [touches " + p.prose(s.Touches) + "]"
	}
	sign := strconv.Itoa(n) + "."
	p.item(2, plain(sign), text)
	if command != "" {
		p.command(5+len(sign), command)
	}
}
