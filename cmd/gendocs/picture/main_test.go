package main

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

func TestDraw(t *testing.T) {
	const in = "\x1b[1;31mUNHEALTHY\x1b[0m  a<b & c\n  \x1b[36mtwo\nlines\x1b[0m\n"
	got := draw("kdiag pleg", in)
	for _, want := range []string{
		`<tspan font-weight="bold" fill="#ff7b72">UNHEALTHY</tspan><tspan>  a&lt;b &amp; c</tspan>`,
		`<tspan>  </tspan><tspan fill="#79c0ff">two</tspan>`, `<tspan fill="#79c0ff">lines</tspan>`, "kdiag pleg</text>",
		"<style>text{white-space:pre}</style>", // Chromium ignores xml:space on all but text elements
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture lacks %s:\n%s", want, got)
		}
	}
	testkit.Must(t, xml.Unmarshal([]byte(got), new(struct{}))) // it is well formed
}
