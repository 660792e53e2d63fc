// Command picture draws the output of a command in a terminal of 80 columns as SVG:
//
//	kdiag pleg --simulate inspect-hang --color always | go run ./cmd/gendocs/picture 'kdiag pleg' > docs/pleg.svg
package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	columns     = 80
	charWidth   = 8.4 // pixels, of a monospaced font of 14
	lineHeight  = 19
	margin      = 16
	font        = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace"
	background  = "#0d1117"
	foreground  = "#e6edf3"
	boldAttrs   = ` font-weight="bold"`
	promptColor = "#8b949e"
)

// colors are a terminal's colors, by the parameter that selects one (ECMA-48, SGR).
var colors = map[string]string{"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "35": "#d2a8ff", "36": "#79c0ff"}

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	printed, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(command, string(printed)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// draw returns a picture of the output, below a prompt with the command.
func draw(command, printed string) string {
	lines := []string{`<tspan fill="` + promptColor + `"># </tspan>` + html.EscapeString(command)}
	attrs := ""
	for line := range strings.Lines(printed) {
		line, attrs = spans(strings.TrimSuffix(line, "\n"), attrs)
		lines = append(lines, line)
	}
	w, h := int(columns*charWidth)+2*margin, len(lines)*lineHeight+2*margin
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">
<style>text{white-space:pre}</style>
<rect width="100%%" height="100%%" rx="8" fill="%s"/>
<g font-family="%s" font-size="14" fill="%s">
`, w, h, background, font, foreground)
	for i, line := range lines {
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\">%s</text>\n", margin, margin+(i+1)*lineHeight-5, line)
	}
	out.WriteString("</g>\n</svg>\n")
	return out.String()
}

// spans returns a line with the attributes that its escape sequences set, from the last attributes of the line before.
func spans(line, attrs string) (marked, after string) {
	var b strings.Builder
	write := func(text string) {
		if text != "" {
			fmt.Fprintf(&b, "<tspan%s>%s</tspan>", attrs, html.EscapeString(text))
		}
	}
	from := 0
	for _, m := range sgr.FindAllStringSubmatchIndex(line, -1) {
		write(line[from:m[0]])
		from, attrs = m[1], ""
		for _, p := range strings.Split(line[m[2]:m[3]], ";") {
			if p == "1" {
				attrs += boldAttrs
			} else if c := colors[p]; c != "" {
				attrs += ` fill="` + c + `"`
			}
		}
	}
	write(line[from:])
	return b.String(), attrs
}
