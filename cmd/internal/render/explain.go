package render

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
)

// A definitionDoc is the JSON form of a cause's documentation.
type definitionDoc struct {
	APIVersion  string    `json:"apiVersion,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	GeneratedAt time.Time `json:"generatedAt,omitzero"`
	Code        string    `json:"code"`
	Title       string    `json:"title"`
	Means       string    `json:"means"`
	Confirm     []string  `json:"confirm,omitempty"`
	Fix         []string  `json:"fix,omitempty"`
	Mistaken    string    `json:"mistaken,omitempty"`
	Sources     []string  `json:"sources,omitempty"`
	RootOf      []string  `json:"rootOf,omitempty"`
}

// A definitionsDoc is the JSON form of the list of causes.
type definitionsDoc struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	GeneratedAt time.Time       `json:"generatedAt,omitzero"`
	Causes      []definitionDoc `json:"causes"`
}

func definitionOf(d checks.Definition, at time.Time) definitionDoc {
	return definitionDoc{
		APIVersion: checks.APIVersion, Kind: "CauseDefinition", GeneratedAt: at,
		Code: d.Code, Title: d.Title, Means: d.Means, Confirm: d.Confirm, Fix: d.Fix,
		Mistaken: d.Mistaken, Sources: d.Sources, RootOf: d.RootOf,
	}
}

func definitionsOf(ds []checks.Definition, at time.Time) definitionsDoc {
	doc := definitionsDoc{APIVersion: checks.APIVersion, Kind: "CauseDefinitionList", GeneratedAt: at, Causes: []definitionDoc{}}
	for _, d := range ds {
		one := definitionOf(d, time.Time{})
		one.APIVersion, one.Kind = "", ""
		doc.Causes = append(doc.Causes, one)
	}
	return doc
}

// definition writes what a cause means, how to confirm it and what helps.
func (p *page) definition(d checks.Definition) {
	p.flow([]span{{p.prose(d.Code), &p.ink.bold}, plain("  ")}, 2, plain(p.prose(d.Title)))
	p.blank()
	p.paragraphs(d.Means)
	p.list("To confirm", d.Confirm, true)
	p.list("What helps, the gentlest first", d.Fix, false)
	if d.Mistaken != "" {
		p.heading("Mistaken for")
		p.paragraphs(d.Mistaken)
	}
	if len(d.RootOf) > 0 {
		p.heading("Leads to")
		p.flow([]span{plain("  ")}, 2, plain(p.prose(strings.Join(d.RootOf, ", "))))
	}
	if len(d.Sources) > 0 {
		p.heading("Sources")
		for _, s := range d.Sources {
			p.flow([]span{plain("  ")}, 4, plain(p.prose(s)))
		}
	}
}

func (p *page) paragraphs(text string) {
	for i, s := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.blank()
		}
		p.flow([]span{plain("  ")}, 2, plain(p.prose(s)))
	}
}

// list writes what to do. An item that starts with a command and a colon shows the command whole, on the item's first
// line.
func (p *page) list(title string, items []string, commandFirst bool) {
	if len(items) == 0 {
		return
	}
	p.heading(title)
	for _, s := range items {
		command, text, found := strings.Cut(s, ": ")
		first, _ := utf8.DecodeRuneInString(command)
		if commandFirst && found && unicode.IsLower(first) {
			p.commandItem(p.clean(command), p.prose(text))
			continue
		}
		p.item(2, plain("-"), p.prose(s))
	}
}

func (p *page) commandItem(command, text string) {
	lead := []span{plain("  - "), {command, &p.ink.command}, plain(": ")}
	if columns(command)+6 > p.width {
		p.put(lead...)
		lead = []span{plain("    ")}
	}
	p.flow(lead, 4, plain(text))
}

func (p *page) definitions(ds []checks.Definition) {
	rows := make([][]span, 0, len(ds))
	for _, d := range ds {
		rows = append(rows, []span{{p.prose(d.Code), &p.ink.bold}, plain(p.prose(d.Title))})
	}
	p.table(table{align: "ll", rows: rows})
	p.blank()
	p.flow(nil, 0, plain("kdiag explain CODE says what one means, how to confirm it and what helps."))
}
