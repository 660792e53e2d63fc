package render

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// A Tracer prints the life of a pod as it happens. It is not safe for use by several goroutines.
type Tracer struct {
	Out    io.Writer
	Format Format // text, or JSON with one object a line
	Keep   bool   // for HTML

	steps []syncloop.Step
	part  string // of the last step
}

// Step prints one step. A line with the name of the part goes before the first of several steps of it.
func (t *Tracer) Step(s syncloop.Step) {
	if t.Keep {
		t.steps = append(t.steps, s)
	}
	if t.Format == JSON {
		line, _ := json.Marshal(struct { // nothing that JSON lacks
			Kind string  `json:"kind"`
			N    int     `json:"n,omitempty"`
			At   float64 `json:"atSeconds"`
			Took float64 `json:"tookSeconds"`
			Part string  `json:"part,omitempty"`
			Func string  `json:"func,omitempty"`
			Text string  `json:"text"`
		}{s.Kind, s.N, s.At.Seconds(), s.Took.Seconds(), s.Part, s.Func, s.Text})
		_, _ = fmt.Fprintf(t.Out, "%s\n", line)
		return
	}
	text, took := Printable(s.Text), units.Duration(s.Took)
	switch s.Kind {
	case syncloop.StepWork:
		if s.Took == 0 {
			took = ""
		}
		if s.Part != t.part {
			_, _ = fmt.Fprintln(t.Out, " "+s.Part)
		}
		t.part = s.Part
		_, _ = fmt.Fprintf(t.Out, "%4d  +%-7s %-7s %-21s %s\n", s.N, units.Duration(s.At), took, s.Func, text)
		return
	case syncloop.StepWaiting:
		_, _ = fmt.Fprintf(t.Out, "      waiting: %s %s\n", took, text)
		return
	case syncloop.StepEnd:
		text += after(s)
	}
	t.part = ""
	_, _ = fmt.Fprintln(t.Out, text)
}

// after tells how long the slowest work of a chapter took, and the chapter.
func after(s syncloop.Step) string {
	if s.Took == 0 {
		return " after " + units.Duration(s.At)
	}
	return ", " + units.Duration(s.Took) + " of " + units.Duration(s.At)
}

// HTML writes what was kept as one page, with a lane for each part.
func (t *Tracer) HTML(w io.Writer, h checks.Header) error {
	h.Command = "kdiag syncloop"
	return writePage(w, h, func(p *htmlPage) {
		p.raw("<h1>The life of a pod</h1>\n<p>Each row is a step; its lane is the part of the kubelet that makes it.</p>\n")
		for _, s := range t.steps {
			text, took := Printable(s.Text), units.Duration(s.Took)
			if s.Took == 0 {
				took = ""
			}
			switch lane := slices.Index(syncloop.TraceParts, s.Part); s.Kind {
			case syncloop.StepChapter:
				p.raw("<h2>%s</h2>\n<div class=\"lanes head\"><span></span>", text)
				for _, part := range syncloop.TraceParts {
					p.raw("<span>%s</span>", part)
				}
				p.raw("</div>\n")
			case syncloop.StepWork:
				span := min(2, len(syncloop.TraceParts)-lane)
				p.raw("<div class=\"lanes\"><small>+%s</small><div style=\"grid-column: %d / span %d\"><small>%d "+
					"<span>%s</span> %s</small><br>%s <small>%s</small></div></div>\n", units.Duration(s.At), max(lane, 0)+2, span,
					s.N, s.Part, s.Func, text, took)
			case syncloop.StepWaiting:
				p.raw("<p class=\"pause\"><small>waiting: %s %s</small></p>\n", took, text)
			case syncloop.StepEnd:
				p.raw("<p class=\"strong\">%s</p>\n", text+after(s))
			default:
				p.raw("<p class=\"warn\">%s</p>\n", text)
			}
		}
	})
}
