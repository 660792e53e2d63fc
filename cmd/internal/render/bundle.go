package render

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/units"
)

// A WrittenBundle is the document of kdiag bundle: the manifest of the archive, and where that is.
type WrittenBundle struct {
	*bundle.Manifest
	Archive      string `json:"archive,omitempty"`      // its file; empty for standard output
	ArchiveBytes int64  `json:"archiveBytes,omitempty"` // compressed
	UploadedTo   string `json:"uploadedTo,omitempty"`   // URL, without its query; empty where it was not uploaded

	Report *checks.Report `json:"-"` // that is in it
}

// What text shows of what was not collected, reasons and files for each. --list shows all.
const (
	shownLacks    = 8
	shownTogether = 4
)

// BundleWritten prints what kdiag bundle has written.
func BundleWritten(w io.Writer, b *WrittenBundle, o Options) error {
	word := span{"WRITTEN", strongly(good)}
	if b.Status != checks.Healthy {
		word = span{"PARTLY", strongly(bad)}
	}
	line := word.text + " " + o.brief().prose(b.Archive) + " " + size(b.ArchiveBytes)
	return write(w, o, b, func(p *page) { p.written(b, word) }, line)
}

func (p *page) written(b *WrittenBundle, word span) {
	about := []string{size(b.ArchiveBytes), contentsOf(b.Manifest)}
	if b.UploadedTo != "" {
		about = append(about, "uploaded to "+p.clean(b.UploadedTo))
	}
	p.headline(word, cmp.Or(b.Archive, "standard output"), about...)
	p.list("", plain("?"), b.Problems, len(b.Problems))
	if r := b.Report; r != nil {
		p.blank()
		p.headline(p.verdict(r.Status), where(r.Host, r.Runtime), p.sentence(r.Header, r.Causes, fineNode))
	}
	var reasons []string
	lacks := map[string][]string{} // by reason
	for _, m := range b.NotCollected {
		why := p.prose(m.Why)
		if lacks[why] == nil {
			reasons = append(reasons, why)
		}
		lacks[why] = append(lacks[why], p.prose(m.What))
	}
	var lines []string
	for _, why := range reasons {
		what := lacks[why]
		line := strings.Join(what[:min(len(what), shownTogether)], ", ")
		if more := len(what) - shownTogether; more > 0 {
			line += " and " + units.Number(more) + " more"
		}
		lines = append(lines, line+": "+why)
	}
	p.list("Not collected", plain("-"), lines, shownLacks)
	p.steps(b.NextSteps, nil)
}

// BundleList prints what an archive holds. Intact is set when that is as its manifest has it.
func BundleList(w io.Writer, m *bundle.Manifest, intact bool, o Options) error {
	word := span{"INTACT", strongly(good)}
	if !intact {
		word = span{"DAMAGED", strongly(bad)}
	}
	line := word.text + " " + o.brief().prose(m.Host) + ": " + contentsOf(m)
	return write(w, o, m, func(p *page) { p.bundle(m, word) }, line)
}

// CaptureList prints the archives that the agent of a node has.
func CaptureList(w io.Writer, l *checks.CaptureList, o Options) error {
	t := table{align: "lllr", head: []string{"CAPTURED", "CAUSE", "NAME", "SIZE"}}
	have := units.Count(len(l.Captures), "archive")
	return write(w, o, l, func(p *page) {
		p.put(span{have, strong}, plain("  "+p.prose(l.Host)))
		p.blank()
		for _, c := range l.Captures {
			t.add(c.At.UTC().Format(time.RFC3339), p.prose(c.Cause), p.clean(c.Name), size(c.Bytes))
		}
		p.table(t)
	}, o.brief().prose(l.Host)+" "+have)
}

// contentsOf counts what an archive holds.
func contentsOf(m *bundle.Manifest) string {
	var bytes int64
	redactions := 0
	for _, f := range m.Files {
		bytes += f.Bytes
		redactions += f.Redactions
	}
	text := units.Count(len(m.Files), "file") + ", " + size(bytes) + " unpacked; "
	if m.Redact == "" {
		text += "redaction unknown"
	} else {
		text += units.Count(redactions, "redaction") + " (" + string(m.Redact) + ")"
	}
	if n := len(m.NotCollected); n > 0 {
		text += "; " + units.Number(n) + " not collected"
	}
	return text
}

func (p *page) bundle(m *bundle.Manifest, word span) {
	sentences := []string{p.prose(contentsOf(m))}
	if !m.GeneratedAt.IsZero() {
		line := "captured " + m.GeneratedAt.UTC().Format(time.RFC3339)
		if m.Command != "" {
			line += " by " + p.prose(m.Command+" "+m.KdiagVersion)
		}
		sentences = append(sentences, line)
	}
	p.headline(word, m.Host, sentences...)
	for _, problem := range m.Problems {
		p.item(2, plain("?"), p.prose(problem))
	}
	t := table{indent: 2, align: "lrrl", head: []string{"FILE", "BYTES", "REDACTED", "SOURCE"}}
	for _, f := range m.Files {
		source := p.prose(f.Source)
		if f.Cut != "" {
			source = strings.TrimSpace(source + " (cut: " + p.prose(f.Cut) + ")")
		}
		t.add(p.prose(f.Path), size(f.Bytes), units.Number(f.Redactions), source)
	}
	p.blank()
	p.table(t)
	missing := each(m.NotCollected, func(n bundle.Missing) string { return n.What + ": " + n.Why })
	p.list("Not collected", plain("-"), missing, len(missing))
}
