// Package render turns what a command found into bytes: text for a person, JSON, YAML, or one line.
//
// It decides nothing. Verdicts, causes and their order come from package checks; render compares a figure only with a
// limit that stands beside it in the data, to draw the two to one scale. Every string that came from a runtime or from
// the host is made harmless before it is printed, see clean. Nothing here writes to a stream of the process: the
// commands hand in the writers.
package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/kdiag/kdiag/checks"
)

// A Format is a way to print a document.
type Format string

// The formats.
const (
	Text  Format = "text"  // for a person
	JSON  Format = "json"  // the contract; one document
	YAML  Format = "yaml"  // the same document
	Brief Format = "brief" // one line of at most BriefWidth columns
)

// BriefWidth is the length of a brief line, in columns and in bytes. It is what the node problem detector keeps of a
// custom plugin's output by default.
const BriefWidth = 80

// The widths of text, in columns.
const (
	defaultWidth = 80
	minWidth     = 40
)

// Options are how to print.
type Options struct {
	Format  Format // the empty Format is Text
	Details bool   // text of a report: all evidence, steps and measurements
	All     bool   // text of a report on a node: every check
	More    string // text of a report: the command that prints more, where it was not made on this node

	Color  bool // use the 16 colours of a terminal; meaning is in the words, colour repeats it
	Width  int  // columns of text; 0 means 80, and less than 40 means 40
	NoWrap bool // for a program: lines of text are as long as they are, and Width is that of pictures alone
	ASCII  bool // print nothing but ASCII: for a terminal whose locale is not UTF-8
}

// A view is one document and the ways to show it to a person.
type view struct {
	doc   any                    // what JSON and YAML print
	text  func(*page)            // what text prints
	brief func(briefLine) string // what brief prints, before it is cut
}

// Node prints the answer of kdiag node.
func Node(w io.Writer, r *checks.Report, o Options) error {
	return writeAnswer(w, r, fineRelist(fineNode, r.Relist), o, func(p *page) { p.node(r, o.All) })
}

// Report prints the answer of kdiag pleg.
func Report(w io.Writer, r *checks.Report, o Options) error {
	return writeAnswer(w, r, fineRelist(fineNode, r.Relist), o, func(p *page) { p.pleg(r) })
}

// RuntimeProbe prints the answer of kdiag runtime.
func RuntimeProbe(w io.Writer, r *checks.RuntimeProbe, o Options) error {
	return writeAnswer(w, r, cleaner{ascii: o.ASCII}.fineProbe(r), o, func(p *page) { p.probe(r) })
}

// comparedBenchmark is the document of kdiag relist --against: the benchmark, and the one that it is held against.
type comparedBenchmark struct {
	*checks.RelistBenchmark
	Against *checks.RelistBenchmark `json:"against,omitempty"`
}

// RelistBenchmark prints the answer of kdiag relist. With against, an older benchmark or that of another node, it shows
// both side by side; against may be nil.
func RelistBenchmark(w io.Writer, r, against *checks.RelistBenchmark, o Options) error {
	return writeAnswer(w, comparedBenchmark{r, against}, fineRelist(fineRuntime, r.Relist), o, func(p *page) {
		p.benchmark(r, against)
	})
}

// writeAnswer writes a diagnosis, of which brief prints the first cause, or what was fine.
func writeAnswer(w io.Writer, a checks.Answer, fine string, o Options, text func(*page)) error {
	return write(w, o, view{a, text, func(m briefLine) string { return m.answer(a, fine) }})
}

// write makes the whole document first, so that a reader gets all of it or an error.
func write(w io.Writer, o Options, v view) error {
	out, err := v.bytes(w, o)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (v view) bytes(w io.Writer, o Options) ([]byte, error) {
	switch o.Format {
	case JSON:
		return encodeJSON(v.doc)
	case YAML:
		return encodeYAML(v.doc)
	case Brief:
		line := v.brief(briefLine{cleaner{ascii: o.ASCII}, BriefWidth})
		return []byte(strings.ReplaceAll(line, glue, " ") + "\n"), nil
	}
	p := newPage(w, o)
	v.text(p)
	return p.bytes(), nil
}
