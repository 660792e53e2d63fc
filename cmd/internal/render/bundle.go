package render

import (
	"cmp"
	"io"
	"slices"
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

// Canary prints the answer of kdiag canary.
func Canary(w io.Writer, r *checks.CanaryReport, o Options) error {
	m, text := o.brief(), r.Summary
	if r.Status == checks.Healthy {
		text = "canary created, started, stopped, removed in " + units.Seconds(r.Seconds)
	}
	line := m.verdict(r.Status).text + " " + m.prose(middle(m.prose(r.Host), mostName)+" "+text)
	if r.Status == checks.Unhealthy { // why it failed stands at the end
		line = middle(line, m.width)
	}
	return write(w, o, r, func(p *page) { p.canary(r) }, line)
}

// canary writes the answer of kdiag canary.
func (p *page) canary(r *checks.CanaryReport) {
	sentence := p.prose(r.Summary)
	if r.Status == checks.Healthy {
		sentence += " in " + units.Seconds(r.Seconds)
	}
	p.headline(p.verdict(r.Status), where(r.Host, r.Runtime), sentence)
	p.canarySteps(r)
	if r.Attempts > 0 {
		p.blank()
		if r.CleanedUp {
			p.text(2, "cleaned up")
		} else {
			p.flow([]span{plain("  ")}, 4, span{"NOT cleaned up: parts of the canary may be left", bad})
		}
	}
	for _, id := range r.Left {
		p.item(4, plain("-"), "sandbox "+p.prose(id))
	}
	if n := len(r.Earlier); n > 0 {
		p.text(2, "removed "+units.Count(n, "leftover")+" of earlier canaries")
	}
	problems := only(r.Problems, func(s string) bool { return s != r.Summary })
	p.list("", plain("?"), problems, len(problems))
	p.steps(r.NextSteps, nil)
	p.short = true
	p.sections(func() {
		p.blank()
		p.runtime(r.Runtime)
		p.pair("image", p.prose(r.Image))
		p.pair("network", p.prose(r.Network))
		p.pair("sandbox", p.prose(r.SandboxID))
	})
}

// canarySteps writes each step with its time, as number and bar; the error of a failed one stands below.
func (p *page) canarySteps(r *checks.CanaryReport) {
	slowest := slices.Max(append(each(r.Steps, func(s checks.CanaryStep) float64 { return s.Seconds }), 0))
	words := map[checks.Status]string{
		checks.StatusOK: "ok", checks.StatusWarning: "slow", checks.StatusCritical: "failed",
		checks.StatusSkipped: "skipped",
	}
	t := table{indent: 2, align: "lrll"}
	for _, s := range r.Steps {
		took := units.Seconds(s.Seconds)
		if s.Status == checks.StatusSkipped {
			took = "-"
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(s.Name)), plain(took), plain(p.glyph.bar(s.Seconds, slowest, callBar)),
			{words[s.Status], statusInk(s.Status)},
		})
	}
	p.section("Steps (total "+units.Seconds(r.Seconds)+")", t, len(r.Steps))
	for _, s := range r.Steps {
		if why := s.Error + s.Skipped; why != "" && !strings.Contains(r.Summary, why) {
			p.flow([]span{plain("  " + p.prose(s.Name) + ": ")}, 4, plain(p.prose(why)))
		}
	}
}
