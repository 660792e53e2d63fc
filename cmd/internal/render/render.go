// Package render turns what a command found into bytes: text for a person, JSON, YAML, or one line.
//
// It decides nothing. Verdicts, causes and their order come from package checks; render compares a figure only with a
// limit that stands beside it in the data, to draw the two to one scale. Every string that came from a runtime or from
// the host is made harmless before it is printed, see clean. Nothing here writes to a stream of the process: the
// commands hand in the writers.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/journal"
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
	More    string // the command that prints more, where that does not follow from the document
	Bare    bool   // text of kdiag fleet: tables without the names of their columns

	Color  bool // use the 16 colours of a terminal; meaning is in the words, colour repeats it
	Width  int  // columns of text; 0 means 80, and less than 40 means 40
	Rows   int  // of a terminal, that a conclusion may take; 0 means 22, for a terminal of 24
	NoWrap bool // for a program: lines of text are as long as they are, and Width is that of pictures alone
	ASCII  bool // print nothing but ASCII: for a terminal whose locale is not UTF-8
}

// brief is what makes a brief line.
func (o Options) brief() briefLine { return briefLine{cleaner{ascii: o.ASCII}, BriefWidth} }

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
	return writeAnswer(w, r, o.brief().fineProbe(r), o, func(p *page) { p.probe(r) })
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
	return write(w, o, a, text, o.brief().answer(a, fine))
}

// write writes a document: doc as JSON or YAML, what text writes, or brief as one line, cut to its length. It makes all
// of it first, so that a reader gets that or an error.
func write(w io.Writer, o Options, doc any, text func(*page), brief string) error {
	var out []byte
	var err error
	switch o.Format {
	case JSON:
		out, err = encodeJSON(doc)
	case YAML:
		out, err = encodeYAML(doc)
	case Brief:
		out = []byte(o.brief().cut(brief) + "\n")
	default:
		p := newPage(o)
		text(p)
		out = p.bytes()
	}
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// A Version is the document of kdiag version.
type Version struct {
	checks.Header
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	Revision  string `json:"revision,omitempty"` // commit that it was built from, where the Go command knew it
	// CommittedAt is when that commit was made, RFC 3339.
	CommittedAt string `json:"committedAt,omitempty"`
	CRI         string `json:"criAPI,omitempty"` // version of k8s.io/cri-api that it is built with
}

// PrintVersion prints the answer of kdiag version.
func PrintVersion(w io.Writer, v *Version, o Options) error {
	line := "kdiag " + v.KdiagVersion + " (" + v.GoVersion + ", " + v.Platform + ", CRI v1 of cri-api " + v.CRI + ")"
	return write(w, o, v, func(p *page) { p.put(plain(line)) }, line)
}

// An Error is the document of a command that ended without another: bad usage, or an error of kdiag itself.
type Error struct {
	checks.Header
	Hint string `json:"hint,omitempty"` // what to type instead
}

// PrintError prints an Error as JSON or YAML. For a person there is a message on standard error.
func PrintError(w io.Writer, e *Error, o Options) error { return write(w, o, e, nil, "") }

// Documents returns a value of each document that kdiag prints, by its kind.
func Documents() map[string]any {
	return map[string]any{
		checks.KindReport: checks.Report{}, checks.KindRuntimeProbe: checks.RuntimeProbe{},
		checks.KindRelistBenchmark: comparedBenchmark{}, checks.KindCanaryReport: checks.CanaryReport{},
		"ExitedCensus": ExitedCensus{}, "GCReport": GCReport{}, "ReproductionReport": ReproductionReport{},
		"Advisory": KnownBug{}, "AdvisoryList": KnownBugList{},
		"KubeletSettings": Settings{}, checks.KindFleetReport: checks.FleetReport{},
		"JournalReport": journal.Report{}, "CauseDefinition": CauseDefinition{}, "CauseDefinitionList": CauseDefinitionList{},
		checks.KindHistory: checks.History{}, checks.KindCaptureList: checks.CaptureList{},
		checks.KindStacksReport: checks.StacksReport{},
		bundle.KindManifest:     WrittenBundle{}, "Version": Version{}, "Error": Error{},
	}
}

// encodeJSON returns v as one indented document that ends with a newline. Characters that a terminal might act on are
// written as JSON escapes, so the document is safe to look at and has the same meaning.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeJSON(buf.Bytes()), nil
}

// escapeJSON escapes what encoding/json leaves as it is: DEL, the C1 controls, and everything else that does not
// print. Outside strings, JSON is plain ASCII, so no such character can stand there.
func escapeJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		switch {
		case r == '\n' || harmless(r):
			out = append(out, doc[:size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return out
}

// encodeYAML returns v as YAML, by way of its JSON form. YAML is read by eye as often as by a program, and its writer
// lets characters through that turn a terminal's text around; so it is cleaned as text is, except for line ends. So is
// the JSON before: the reader of YAML accepts the escapes, and not all the characters.
func encodeYAML(v any) ([]byte, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	c := cleaner{lines: true}
	doc, err = yaml.JSONToYAML([]byte(c.clean(string(doc))))
	return []byte(c.clean(string(doc))), err
}
