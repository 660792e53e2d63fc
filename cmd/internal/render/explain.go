package render

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// A definitionDoc is the JSON form of a cause's documentation.
type definitionDoc struct {
	checks.Header
	checks.Definition
}

// A definitionsDoc is the JSON form of the list of causes.
type definitionsDoc struct {
	checks.Header
	Causes []checks.Definition `json:"causes"`
	// Pictures are the known ways to hang that a goroutine dump can show; their rootOf are the causes that they support.
	Pictures []checks.Definition `json:"pictures"`
}

// Definition prints the documentation of one cause.
func Definition(w io.Writer, h checks.Header, d checks.Definition, o Options) error {
	doc := definitionDoc{h, d}
	return write(w, o, view{doc, func(p *page) { p.definition(d) }, func(m briefLine) string {
		return m.cut(m.prose(d.Code + ": " + d.Title))
	}})
}

// Definitions prints the lists of causes and of known pictures that kdiag explain can explain.
func Definitions(w io.Writer, h checks.Header, ds, pictures []checks.Definition, o Options) error {
	doc := definitionsDoc{h, ds, pictures}
	t := table{align: "ll"}
	all := slices.Concat(ds, pictures)
	for i, d := range all {
		if i > 0 && d.Area != all[i-1].Area {
			t.add("", "")
		}
		if d.Area != "" && (i == 0 || d.Area != all[i-1].Area) {
			t.add(d.Area, "")
		}
		t.rows = append(t.rows, []span{{d.Code, strong}, plain(d.Title)})
	}
	return write(w, o, view{doc, func(p *page) {
		p.table(t)
		p.blank()
		p.text(0, "More: kdiag explain CODE shows what it means, how to confirm it and how to fix it; kdiag explain "+
			"advisories lists known bugs.")
	}, func(m briefLine) string {
		return m.cut(units.Number(len(ds)) + " causes; kdiag explain CODE explains one")
	}})
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
