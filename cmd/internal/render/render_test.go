package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
)

var update = flag.Bool("update", false, "write the goldens of this run, and the documents in their canonical form")

// A document is a saved report of one of the kinds, and how to print it.
type document struct {
	name     string
	commands []string // the commands in it, which text must hold whole
	print    func(o Options) (string, error)
}

// load reads a saved document and refuses fields that the types do not have, so that a typing error in testdata shows.
func load[T any](t testing.TB, name string) *T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc T
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &doc
}

func commandsOf(causes []checks.Cause) []string {
	var out []string
	for _, c := range causes {
		for _, s := range c.NextSteps {
			out = append(out, s.Command)
		}
	}
	return out
}

func documents(t testing.TB) []document {
	t.Helper()
	var all []document
	for _, name := range []string{
		"healthy", "inspect-hang", "runtime-hung", "runtime-down", "exited-flood", "no-permission", "overloaded",
	} {
		r := load[checks.Report](t, name)
		all = append(all, document{name, commandsOf(r.Causes), func(o Options) (string, error) {
			var b strings.Builder
			err := Report(&b, r, o)
			return b.String(), err
		}})
	}
	for _, name := range []string{"probe", "probe-healthy"} {
		r := load[checks.RuntimeProbe](t, name)
		all = append(all, document{name, commandsOf(r.Causes), func(o Options) (string, error) {
			var b strings.Builder
			err := RuntimeProbe(&b, r, o)
			return b.String(), err
		}})
	}
	for _, name := range []string{"relist", "relist-growing"} {
		r := load[checks.RelistBenchmark](t, name)
		all = append(all, document{name, commandsOf(r.Causes), func(o Options) (string, error) {
			var b strings.Builder
			err := RelistBenchmark(&b, r, nil, o)
			return b.String(), err
		}})
	}
	all = append(all, journalDocuments(t)...)
	r, before := load[checks.RelistBenchmark](t, "relist-growing"), load[checks.RelistBenchmark](t, "relist")
	return append(all, document{"relist-against", commandsOf(r.Causes), func(o Options) (string, error) {
		var b strings.Builder
		err := RelistBenchmark(&b, r, before, o)
		return b.String(), err
	}})
}

// golden compares got with a file under testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestGoldens(t *testing.T) {
	views := []struct {
		name string
		o    Options
	}{
		{"text.txt", Options{}},
		{"brief.txt", Options{Format: Brief}},
	}
	for _, d := range documents(t) {
		for _, v := range views {
			t.Run(d.name+"."+v.name, func(t *testing.T) {
				got, err := d.print(v.o)
				if err != nil {
					t.Fatal(err)
				}
				golden(t, d.name+"."+v.name, got)
			})
		}
	}
}

// TestColourOnlyDecorates holds the coloured text against the plain one.
func TestColourOnlyDecorates(t *testing.T) {
	for _, d := range documents(t) {
		plain, err := d.print(Options{})
		if err != nil {
			t.Fatal(err)
		}
		colored, err := d.print(Options{Color: true})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(colored, "\x1b[") {
			t.Errorf("%s: no colour in the coloured text", d.name)
		}
		if diff := cmp.Diff(plain, stripColor(colored)); diff != "" {
			t.Errorf("%s: colour changes the text (-plain +colored):\n%s", d.name, diff)
		}
	}
}

// stripColor takes the escape sequences of colours out of s.
func stripColor(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

// TestYAMLIsTheJSON decodes the YAML of each document and compares it with the document's JSON.
func TestYAMLIsTheJSON(t *testing.T) {
	for _, d := range documents(t) {
		var want, got any
		for format, into := range map[Format]*any{JSON: &want, YAML: &got} {
			text, err := d.print(Options{Format: format})
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(text), into); err != nil {
				t.Fatalf("%s: decoding %s: %v", d.name, format, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: YAML differs from JSON (-JSON +YAML):\n%s", d.name, diff)
		}
	}
}

func TestTextFits(t *testing.T) {
	for _, d := range documents(t) {
		for _, o := range []Options{{Width: 1}, {Width: 40}, {Width: 50, ASCII: true}, {Width: 60}, {Width: 72}, {}, {Width: 132, ASCII: true}, {Width: 250}} {
			got, err := d.print(o)
			if err != nil {
				t.Fatal(err)
			}
			checkText(t, got, o, d.commands)
		}
	}
}

// checkText holds text against what text may be: lines no wider than the page except for commands, which are whole;
// nothing that a terminal acts on; no trailing space, no double blank line; ASCII where asked for.
func checkText(t *testing.T, got string, o Options, commands []string) {
	t.Helper()
	width := o.Width
	if width == 0 {
		width = 80
	}
	width = max(width, 40)
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	whole := map[string]bool{}
	for _, c := range commands {
		if c = (cleaner{ascii: o.ASCII}).clean(strings.TrimSpace(c)); c != "" {
			whole[strings.TrimRight(c, " ")] = false
		}
	}
	for i, line := range lines {
		if _, ok := whole[strings.TrimLeft(line, " ")]; ok {
			whole[strings.TrimLeft(line, " ")] = true
			continue
		}
		if n := lipgloss.Width(line); n > width {
			t.Errorf("line %d has %d columns, more than %d: %q", i+1, n, width, line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("line %d ends in a space: %q", i+1, line)
		}
		if line == "" && i > 0 && lines[i-1] == "" {
			t.Errorf("line %d is a second blank line", i+1)
		}
	}
	for c, seen := range whole {
		if !seen {
			t.Errorf("no line holds the command %q and nothing else", c)
		}
	}
	checkHarmless(t, got, o.ASCII)
}

// checkHarmless reports whatever a terminal acts on, apart from line ends.
func checkHarmless(t *testing.T, got string, ascii bool) {
	t.Helper()
	if !utf8.ValidString(got) {
		t.Errorf("not UTF-8: %q", got)
	}
	for i, r := range got {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%U at byte %d is not harmless: %q", r, i, got[max(0, i-20):min(len(got), i+20)])
		}
		if ascii && r > 0x7e {
			t.Errorf("%U at byte %d is not ASCII", r, i)
		}
	}
}

func TestHealthyIsShort(t *testing.T) {
	var b strings.Builder
	if err := Report(&b, load[checks.Report](t, "healthy"), Options{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 12 {
		t.Errorf("%d lines for a healthy node, want at most 12:\n%s", n, b.String())
	}
}

func TestBriefNamesVerdictCauseAndCulprit(t *testing.T) {
	want := map[string][]string{
		"healthy":       {"HEALTHY", "node-3"},
		"inspect-hang":  {"UNHEALTHY", "InspectHang", "ledger", "payments/ledger-db-0"},
		"runtime-hung":  {"UNHEALTHY", "RuntimeHung", "containerd"},
		"runtime-down":  {"UNHEALTHY", "RuntimeDown", "containerd.service"},
		"exited-flood":  {"UNHEALTHY", "TooManyExited", "batch/thumbnails-28901"},
		"no-permission": {"UNKNOWN", "may not be opened"},
		"overloaded":    {"UNHEALTHY", "RelistOverloaded"},
		"probe":         {"UNHEALTHY", "NetworkNotReady", "Status"},
	}
	for _, d := range documents(t) {
		got, err := d.print(Options{Format: Brief})
		if err != nil {
			t.Fatal(err)
		}
		checkBrief(t, got)
		for _, w := range want[d.name] {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q does not say %q", d.name, got, w)
			}
		}
	}
}

func checkBrief(t *testing.T, got string) {
	t.Helper()
	line, ok := strings.CutSuffix(got, "\n")
	if !ok || strings.Contains(line, "\n") || strings.TrimSpace(line) == "" {
		t.Errorf("%q is not one line", got)
	}
	if len(line) > BriefWidth || lipgloss.Width(line) > BriefWidth {
		t.Errorf("%q has %d bytes and %d columns, more than %d", line, len(line), lipgloss.Width(line), BriefWidth)
	}
	checkHarmless(t, line, false)
}

// TestJSONReplay decodes each saved document and encodes it again: the result is the saved document.
func TestJSONReplay(t *testing.T) {
	for _, d := range documents(t) {
		if d.name == "relist-against" {
			continue // made of two documents
		}
		got, err := d.print(Options{Format: JSON})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", d.name+".json")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-saved +replayed):\n%s", d.name, diff)
		}
	}
}

func TestAgainstInJSON(t *testing.T) {
	r, before := load[checks.RelistBenchmark](t, "relist-growing"), load[checks.RelistBenchmark](t, "relist")
	var b bytes.Buffer
	if err := RelistBenchmark(&b, r, before, Options{Format: JSON}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		checks.RelistBenchmark
		Against *checks.RelistBenchmark `json:"against"`
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*r, got.RelistBenchmark); diff != "" {
		t.Errorf("the benchmark itself (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, got.Against); diff != "" {
		t.Errorf("against (-want +got):\n%s", diff)
	}
}

func TestUnknownFormat(t *testing.T) {
	var b strings.Builder
	err := Report(&b, &checks.Report{}, Options{Format: "xml"})
	if err == nil || !strings.Contains(err.Error(), `format "xml"`) || b.Len() > 0 {
		t.Errorf("error %v after writing %q, want one that names the format and no output", err, b.String())
	}
}
