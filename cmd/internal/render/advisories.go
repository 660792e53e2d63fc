package render

import (
	"cmp"
	"io"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/units"
)

// An advisoryDoc is the JSON form of a known bug.
type advisoryDoc struct {
	checks.Header
	advisories.Advisory
}

// An advisoriesDoc is the JSON form of the list of known bugs.
type advisoriesDoc struct {
	checks.Header
	Advisories []advisories.Advisory `json:"advisories"`
}

// Advisory prints a known bug.
func Advisory(w io.Writer, h checks.Header, a advisories.Advisory, o Options) error {
	return write(w, o, view{advisoryDoc{h, a}, func(p *page) { p.advisory(a) }, func(m briefLine) string {
		return m.cut(m.prose(a.ID + ": " + a.Title))
	}})
}

// Advisories prints the list of known bugs, which are grouped by component.
func Advisories(w io.Writer, h checks.Header, list []advisories.Advisory, o Options) error {
	return write(w, o, view{advisoriesDoc{h, list}, func(p *page) {
		for i, a := range list {
			if i == 0 || a.Component != list[i-1].Component {
				p.heading(a.Component)
			}
			p.flow([]span{plain("  "), {a.ID, strong}, plain("  ")}, 4, plain(a.Title))
			p.text(4, "affected "+versions(a)+"; checked "+a.Checked)
		}
		p.blank()
		p.text(0, "More: kdiag explain ID shows one with its symptom, fix and sources.")
	}, func(m briefLine) string {
		return m.cut(units.Number(len(list)) + " known bugs; kdiag explain ID explains one")
	}})
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
	return strings.Join(a.Affected, ", ") + "; fixed in " + cmp.Or(strings.Join(a.Fixed, ", "), "no release")
}
