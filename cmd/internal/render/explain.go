package render

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

// A CauseDefinition is the document of kdiag explain CAUSE.
type CauseDefinition struct {
	checks.Header
	checks.Definition
}

// A CauseDefinitionList is the document of kdiag explain.
type CauseDefinitionList struct {
	checks.Header
	Causes []checks.Definition `json:"causes"`
	// Pictures are the known ways to hang that a goroutine dump can show; their rootOf are the causes that they support.
	Pictures []checks.Definition `json:"pictures"`
}

// Definition prints the documentation of one cause.
func Definition(w io.Writer, d *CauseDefinition, o Options) error {
	line := o.brief().prose(d.Code + ": " + d.Title)
	return write(w, o, d, func(p *page) { p.definition(d.Definition) }, line)
}

// Definitions prints the lists of causes and of known pictures that kdiag explain can explain.
func Definitions(w io.Writer, d *CauseDefinitionList, o Options) error {
	t := table{align: "ll"}
	all := slices.Concat(d.Causes, d.Pictures)
	for i, d := range all {
		if i > 0 && d.Area != all[i-1].Area {
			t.add("", "")
		}
		if d.Area != "" && (i == 0 || d.Area != all[i-1].Area) {
			t.add(d.Area, "")
		}
		t.rows = append(t.rows, []span{{d.Code, strong}, plain(d.Title)})
	}
	return write(w, o, d, func(p *page) {
		p.table(t)
		p.blank()
		p.text(0, "More: kdiag explain CODE shows what it means, how to confirm it and how to fix it; kdiag explain "+
			"advisories lists known bugs.")
	}, units.Number(len(d.Causes))+" causes; kdiag explain CODE explains one")
}

// definition writes what a cause means, how to confirm it and what helps.
func (p *page) definition(d checks.Definition) {
	p.heading(p.prose(d.Code), plain(p.prose(d.Title)))
	p.paragraphs("", d.Means)
	if len(d.Confirm) > 0 {
		p.heading("To confirm")
	}
	for _, s := range d.Confirm {
		p.confirm(s)
	}
	p.list("Fix (least disruptive first)", plain("-"), d.Fix, len(d.Fix))
	var actions []string
	for _, r := range d.Actions {
		actions = append(actions, string(r.Action)+": "+r.Why)
	}
	p.list("Action (for programs that repair nodes)", plain("-"), actions, len(actions))
	p.paragraphs("Mistaken for", d.Mistaken)
	p.paragraphs("Leads to", strings.Join(d.RootOf, ", "))
	p.paragraphs("Sources", strings.Join(d.Sources, "\n\n"))
}

func (p *page) paragraphs(title, text string) {
	if text == "" {
		return
	}
	p.blank()
	if title != "" {
		p.heading(title)
	}
	for i, s := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 && title == "" {
			p.blank()
		}
		p.text(2, p.prose(s))
	}
}

// confirm writes how to confirm a cause. Where that starts with a command and a colon, the command is shown whole.
func (p *page) confirm(s string) {
	command, text, found := strings.Cut(s, ": ")
	if first, _ := utf8.DecodeRuneInString(command); !found || !unicode.IsLower(first) {
		p.item(2, plain("-"), p.prose(s))
		return
	}
	command = p.clean(command)
	lead := []span{plain("  - "), {command, info}, plain(": ")}
	if columns(command)+6 > p.wrap {
		p.put(lead...)
		lead = []span{plain("    ")}
	}
	p.flow(lead, 4, plain(p.prose(text)))
}

// A KnownBug is the document of kdiag explain ID.
type KnownBug struct {
	checks.Header
	advisories.Advisory
}

// A KnownBugList is the document of kdiag explain advisories.
type KnownBugList struct {
	checks.Header
	Advisories []advisories.Advisory `json:"advisories"`
}

// Advisory prints a known bug.
func Advisory(w io.Writer, a *KnownBug, o Options) error {
	line := o.brief().prose(a.ID + ": " + a.Title)
	return write(w, o, a, func(p *page) { p.advisory(a.Advisory) }, line)
}

// Advisories prints the list of known bugs, which are grouped by component.
func Advisories(w io.Writer, list *KnownBugList, o Options) error {
	return write(w, o, list, func(p *page) {
		for i, a := range list.Advisories {
			if i == 0 || a.Component != list.Advisories[i-1].Component {
				p.heading(a.Component)
			}
			p.flow([]span{plain("  "), {a.ID, strong}, plain("  ")}, 4, plain(a.Title))
			p.text(4, "affects "+versions(a)+"; checked "+a.Checked)
		}
		p.blank()
		p.text(0, "More: kdiag explain ID shows one with its symptom, fix and sources.")
	}, units.Number(len(list.Advisories))+" known bugs; kdiag explain ID explains one")
}

func (p *page) advisory(a advisories.Advisory) {
	p.heading(a.ID, plain(a.Title))
	p.pair("component", a.Component)
	p.pair("affected", versions(a))
	p.pair("shows as", strings.Join(a.Causes, ", "))
	p.pair("checked", a.Checked)
	p.paragraphs("Symptom", a.Symptom)
	p.paragraphs("Fix", a.Fix)
	p.paragraphs("Note", a.Note)
	p.paragraphs("Sources", strings.Join(a.Sources, "\n\n"))
}

// versions returns the affected versions and those with the fix.
func versions(a advisories.Advisory) string {
	affected := strings.Join(a.Affected, ", ")
	if affected == ">=0" {
		affected = "all versions"
	}
	if len(a.Fixed) == 0 {
		return affected + "; not fixed yet"
	}
	return affected + "; fixed in " + strings.Join(a.Fixed, ", ")
}

// Settings are the document of kdiag explain settings.
type Settings struct {
	checks.Header
	kubelet.Explanation
}

// KubeletSettings prints what a kubelet runs with: as a table; a single setting, and with Details each, with its text.
func KubeletSettings(w io.Writer, e *Settings, o Options) error {
	other := only(e.Settings, func(s kubelet.Explained) bool { return s.Value != s.Default })
	line := units.Count(len(other), "setting") + " not at the default; kdiag explain settings NAME explains one"
	return write(w, o, e, func(p *page) { p.settings(e) }, line)
}

func (p *page) settings(e *Settings) {
	if e.PID > 0 {
		from := append([]string{"its arguments"}, e.Files...)
		p.text(0, p.prose("Settings of "+e.Process+" (pid "+strconv.Itoa(e.PID)+"), from "+units.List(from)+
			"; * is not the default."))
	}
	p.list("", span{"?", warn}, e.Header.Problems, len(e.Header.Problems))
	p.blank()
	brief := len(e.Settings) > 1 && !p.details
	if brief {
		p.settingsTable(e.Settings)
	}
	for _, s := range e.Settings {
		if !brief {
			p.heading(p.clean(s.Name))
			for _, pair := range [][2]string{
				{"value", s.Value},
				{"from", s.From + " " + s.Where},
				{"default", s.Default},
				{"versions", s.Versions},
				{"field", s.Field},
				{"flag", s.Flag},
			} {
				p.pair(pair[0], p.prose(pair[1]))
			}
			p.text(2, p.prose(s.Means))
		}
	}
	constants := table{indent: 2, align: "lll"}
	for _, c := range e.Constants {
		constants.add(c.Name, c.Value, c.Means)
	}
	p.section("Fixed in the kubelet's code (no setting)", constants, len(e.Constants))
	if brief {
		p.blank()
		p.text(0, "More: kdiag explain settings NAME shows what one means for PLEG and NotReady, --details all.")
	}
}

// settingsTable writes the name and value of each setting, where it comes from, and the default. A map has a row for
// each key, and of what is too wide, paths above all, the end is shown.
func (p *page) settingsTable(all []kubelet.Explained) {
	const names, between, least = 39, 14, 13 // columns: the longest name, what is between value and default, a value
	t := table{align: "llll", head: []string{"  name", "value", "from", "default"}}
	add := func(name span, value, from, standard string) {
		row := []span{name, plain(value), plain(from), plain(standard)}
		for _, cell := range []*span{&row[1], &row[3]} {
			width := max(least, (p.wrap-names-between)/2)
			if cell.text = p.clean(cell.text); columns(cell.text) > width {
				_, end := head(cell.text, columns(cell.text)-width+3, len(cell.text))
				cell.text = "..." + end
			}
		}
		t.rows = append(t.rows, row)
	}
	for _, s := range all {
		name, keys := plain("  "+p.clean(s.Name)), map[string][2]string{}
		for i, text := range []string{s.Value, s.Default} {
			for pair := range strings.SplitSeq(text, ", ") {
				if key, value, ok := strings.Cut(pair, ": "); ok {
					both := keys[key]
					both[i] = value
					keys[key] = both
				}
			}
		}
		if s.Value != s.Default {
			name = span{"* " + p.clean(s.Name), strong}
		}
		if len(keys) == 0 {
			add(name, s.Value, s.From, s.Default)
			continue
		}
		add(name, "", s.From, "")
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			add(plain("    "+p.clean(key)), cmp.Or(keys[key][0], "-"), "", cmp.Or(keys[key][1], "-"))
		}
	}
	p.table(t)
}
