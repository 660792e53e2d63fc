package render

import (
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
)

// load decodes a saved document and refuses fields that the types do not have, so that a stale one shows.
func load(t testing.TB, file string, doc any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(testkit.Read(t, file)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var must = testkit.Must

// A printer prints documents of one type.
type printer struct {
	empty func() any // a pointer to a new document
	print func(w io.Writer, doc any, o Options) error
}

func printerOf[T any](print func(io.Writer, *T, Options) error) printer {
	return printer{
		func() any { return new(T) },
		func(w io.Writer, doc any, o Options) error { return print(w, doc.(*T), o) },
	}
}

// printers are those of each kind of document, and of each command with a layout of its own.
var printers = map[string]printer{
	"report": printerOf(Report), "node": printerOf(Node), "probe": printerOf(RuntimeProbe),
	"exited": printerOf(Exited), "gc": printerOf(GC),
	"canary": printerOf(Canary), "reproduction": printerOf(Reproduction), "fleet": printerOf(Fleet),
	"written": printerOf(BundleWritten), "captures": printerOf(CaptureList), "version": printerOf(PrintVersion),
	"stacks": printerOf(Stacks), "history": printerOf(History),
	"relist": printerOf(func(w io.Writer, r *checks.RelistBenchmark, o Options) error {
		return RelistBenchmark(w, r, nil, o)
	}),
	"relist against": printerOf(func(w io.Writer, r *checks.RelistBenchmark, o Options) error {
		return RelistBenchmark(w, r, r, o)
	}),
	"bundle": printerOf(func(w io.Writer, m *bundle.Manifest, o Options) error {
		return BundleList(w, m, len(m.Problems) == 0, o)
	}),
	"journal": printerOf(JournalReport), "cause": printerOf(Definition), "causes": printerOf(Definitions),
	"advisory": printerOf(Advisory), "advisories": printerOf(Advisories), "settings": printerOf(KubeletSettings),
}

// A document is an answer of one of the commands, and how it is printed.
type document struct {
	name, file string // the saved JSON; no file for what journal reads in a log
	doc        any
	printer    string
	opts       Options
}

// print prints a document, with options beside its own.
func (d document) print(t testing.TB, o Options) string {
	t.Helper()
	o.Details, o.All, o.More = o.Details || d.opts.Details, d.opts.All, d.opts.More
	var b strings.Builder
	must(t, printers[d.printer].print(&b, d.doc, o))
	return b.String()
}

// saved are answers of each command, as kdiag recorded them with --simulate.
var saved = []document{
	{name: "healthy", printer: "report"},
	{name: "inspect-hang", printer: "report"},
	{name: "node", file: "inspect-hang", printer: "node"},
	{name: "node-details", file: "inspect-hang", printer: "node", opts: Options{Details: true, All: true}},
	{name: "probe", printer: "probe"},
	{name: "relist", printer: "relist"},
	{name: "relist-overloaded", printer: "relist"},
	{name: "relist-against", file: "relist-overloaded", printer: "relist against"},
	{name: "exited", printer: "exited"},
	{name: "bundle", printer: "bundle"},
	{name: "bundle-written", printer: "written"},
	{name: "captures", printer: "captures"},
	{name: "gc-plan", printer: "gc"},
	{name: "gc-partly", printer: "gc"},
	{name: "canary", printer: "canary"},
	{name: "reproduction", printer: "reproduction"},
	{name: "stacks", printer: "stacks", opts: Options{More: "kdiag stacks --capture --details"}},
	{name: "stacks-details", file: "stacks", printer: "stacks", opts: Options{Details: true}},
	{name: "history", printer: "history", opts: Options{More: "kdiag history --details"}},
	{name: "history-details", file: "history", printer: "history", opts: Options{Details: true}},
	{name: "fleet", printer: "fleet", opts: Options{More: "kdiag fleet --details"}},
	{name: "fleet-details", file: "fleet", printer: "fleet", opts: Options{Details: true}},
	{name: "explain", printer: "cause"},
	{name: "causes", printer: "causes"},
	{name: "advisory", printer: "advisory"},
	{name: "advisories", printer: "advisories"},
	{name: "settings", printer: "settings"},
	{name: "settings-details", file: "settings", printer: "settings", opts: Options{Details: true}},
	{name: "version", printer: "version"},
}

// logs are logs of package journal, with an end of what is read: a broken node without an incident; none; nothing read;
// relists that fail at the end; three incidents that return; one; records without a time.
var logs = []struct{ name, file, until string }{
	{"journal-broken", "corpus/033-ghfile14970692672-cgroup-fatal.log", ""},
	{"journal-clear", "corpus/007-k8s45419-zihaoyu-decoy-ignoring-events.log", ""},
	{"journal-denied", "no-such.log", ""},
	{"journal-failing", "kubelet/unsupported.log", "2026-11-22T01:23:24Z"},
	{"journal-flapping", "derived/d01-short.log", ""},
	{"journal-frozen", "real/kubelet-1.36-containerd-frozen.log.zst", ""},
	{"journal-timeless", "corpus/025-containerd5274-bare.log", ""},
}

// documents are the saved answers, and those of journal to logs.
func documents(t testing.TB) []document {
	t.Helper()
	var all []document
	for _, d := range saved {
		if d.file == "" {
			d.file = d.name
		}
		d.file = filepath.Join("testdata", d.file+".json")
		d.doc = printers[d.printer].empty()
		load(t, d.file, d.doc)
		all = append(all, d)
	}
	for _, l := range logs {
		d := document{name: l.name, doc: readLog(t, l.file, l.until), printer: "journal"}
		all = append(all, d)
		if l.name == "journal-frozen" || l.name == "journal-flapping" {
			d.name, d.opts.Details = l.name+"-details", true
			all = append(all, d)
		}
	}
	return all
}

// golden compares got with a file under testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	testkit.Golden(t, filepath.Join("testdata", "golden", name+".txt"), got)
}

// TestGoldens has one golden for each command and layout, text of 80 columns, and one of all brief lines.
func TestGoldens(t *testing.T) {
	lines := ""
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) { golden(t, d.name, d.print(t, Options{})) })
		lines += d.name + ": " + d.print(t, Options{Format: Brief})
	}
	golden(t, "brief", lines)
}

// TestEveryAnswer checks what holds for every answer, that of each recorded cause and incident among them.
func TestEveryAnswer(t *testing.T) {
	all := documents(t)
	causes, err := filepath.Glob("../../../checks/causes/testdata/*/report.json")
	must(t, err)
	incidents, err := filepath.Glob("../../../journal/testdata/incidents/*.log.gz")
	must(t, err)
	if len(causes) < 30 || len(incidents) < 9 {
		t.Fatalf("%d recorded causes, %d incidents", len(causes), len(incidents))
	}
	for _, file := range causes {
		r := new(checks.Report)
		load(t, file, r)
		name := filepath.Base(filepath.Dir(file))
		all = append(all, document{name: name, file: file, doc: r, printer: "report"},
			document{name: name + "-node", file: file, doc: r, printer: "node"})
	}
	for _, file := range incidents {
		r := readLog(t, "incidents/"+filepath.Base(file), "")
		all = append(all, document{name: filepath.Base(file), doc: r, printer: "journal"})
	}
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			doc, whole := d.print(t, Options{Format: JSON}), d.print(t, Options{Details: true, Width: 250})
			commands := commandsIn(t, doc)
			checkForms(t, d, []int{0, 1, 50, 61, 132, 250}, commands...)
			for _, c := range commands {
				if c = shown(c, Options{}); c != "" && !strings.Contains(whole, " "+c+"\n") && d.printer != "relist against" {
					t.Errorf("no line holds the command %q and nothing else", c)
				}
			}
			colored := d.print(t, Options{Color: true})
			if !strings.Contains(colored, "\x1b[") && d.name != "version" {
				t.Error("no colour in the coloured text")
			}
			text, line := d.print(t, Options{}), d.print(t, Options{Format: Brief})
			testkit.Equal(t, "colour changes the text", text, colors.ReplaceAllString(colored, ""))
			verdict := verdicts.FindString(line)
			if !strings.Contains("\n"+text, "\n"+verdict) {
				t.Errorf("the brief line begins with %q, the text has no such verdict:\n%s", verdict, text)
			}
			if !d.opts.Details && slices.Contains([]string{
				"report", "node", "probe", "relist", "relist against", "exited", "gc", "canary", "stacks", "journal",
				"history", "fleet",
			}, d.printer) {
				checkScreen(t, verdict, text)
			}
			if r, ok := d.doc.(*journal.Report); ok && strings.HasPrefix(d.name, "journal-") { // the others name web sites
				page := journalPage(t, r)
				checkPage(t, page)
				for _, s := range r.Signatures {
					count := ` title="records">` + units.Number(s.Count) + "<" // on a narrow screen
					if !strings.Contains(page, ">"+s.Code+"<") || !strings.Contains(page, count) {
						t.Errorf("no signature %s with %d records on the page", s.Code, s.Count)
					}
				}
				lasted := func(e journal.Episode) bool { return e.Seconds > 0 }
				if slices.ContainsFunc(r.Incidents(), lasted) && !strings.Contains(page, "<rect class=\"bad\"") {
					t.Error("an incident is not drawn")
				}
			}
			if d.printer == "report" {
				checkWatch(t, d.print(t, Options{Width: 79, Rows: 20}))
			}
			for _, code := range codes.FindAllString(line, -1) {
				if !strings.Contains(whole, code) {
					t.Errorf("%q of the brief line is not in the text: %s\n%s", code, line, whole)
				}
			}
			if d.file == "" || d.printer == "relist against" {
				return
			}
			testkit.Equal(t, d.file, testkit.Read(t, d.file), doc)
		})
	}
}

var (
	colors   = regexp.MustCompile("\x1b\\[[0-9;]*m")
	verdicts = regexp.MustCompile(`^[A-Z]{2,}( [A-Z]{2,})*\b`)
	codes    = regexp.MustCompile(`\b[A-Z][a-z]+[A-Z]\w+`)
)

// checkWatch checks that --watch shows the whole answer and what changed on a terminal of 80 columns and 24 lines, each
// command in one line, which the terminal wraps.
func checkWatch(t *testing.T, answer string) {
	t.Helper()
	lines := Above(answer, []string{"A begins", "B is gone"}, "q ends", 80, 24)
	rows := 0
	for _, line := range lines {
		rows += 1 + max(columns(line)-1, 0)/80
	}
	shown := strings.ReplaceAll(strings.Join(lines, "\n"), " \n", "\n") + "\n"
	if want := answer + "\nA begins\nB is gone\nq ends\n"; rows > 24 || shown != want {
		t.Errorf("%d rows of 24 (-want +got):\n%s", rows, cmp.Diff(want, shown))
	}
}

// checkScreen checks that a terminal of 80 columns and 24 lines shows verdict and first step when a command ends.
func checkScreen(t *testing.T, verdict, text string) {
	t.Helper()
	var rows []string
	for line := range strings.Lines(text) {
		for n := columns(strings.TrimRight(line, "\n")); n > 80; n -= 80 {
			rows = append(rows, line)
		}
		rows = append(rows, line)
	}
	screen := "\n" + strings.Join(rows[max(0, len(rows)-23):], "")
	if !strings.Contains(screen, "\n"+verdict) ||
		strings.Contains(text, "\nNext") && !strings.Contains(screen, "\n  1. ") {
		t.Errorf("the last screen is\n%s", screen)
	}
}

// checkForms checks what holds for every document, whatever is in it: text fits, brief is one line, YAML is the JSON.
// Commands are those that text shows whole.
func checkForms(t *testing.T, d document, widths []int, commands ...string) {
	t.Helper()
	doc, out := d.print(t, Options{Format: JSON}), d.print(t, Options{Format: YAML})
	checkHarmless(t, doc, false)
	checkHarmless(t, out, false)
	var want, got any
	must(t, json.Unmarshal([]byte(doc), &want))
	must(t, yaml.Unmarshal([]byte(out), &got))
	testkit.Equal(t, "YAML differs from JSON", want, got)
	checkBrief(t, d.print(t, Options{Format: Brief}))
	if d.printer == "fleet" {
		checkHarmless(t, d.print(t, Options{Format: Wide})+d.print(t, Options{Format: Name}), false)
	}
	for _, width := range widths {
		for _, details := range []bool{false, true} {
			o := Options{Width: width, Details: details, ASCII: width%2 == 0}
			checkText(t, d.print(t, o), o, commands...)
		}
	}
}

// commandsIn returns the commands of a JSON document, without that with which it was made.
func commandsIn(t *testing.T, doc string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^ {4,}"command": (".*?"),?$`).FindAllStringSubmatch(doc, -1) {
		var c string
		must(t, json.Unmarshal([]byte(m[1]), &c))
		all = append(all, c)
	}
	return all
}

// shown returns a command as text shows it.
func shown(command string, o Options) string {
	command = strings.TrimRight(cleaner{ascii: o.ASCII}.clean(strings.TrimSpace(command)), " ")
	if strings.HasPrefix(command, "crictl ") {
		return shortIDs(command)
	}
	return command
}

// checkText checks that lines are no wider than the page, except for commands, which are whole; that nothing acts on a
// terminal; that there is no trailing space and no double blank line; and that text is ASCII where asked for.
func checkText(t *testing.T, got string, o Options, commands ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	for i, line := range lines {
		text := strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(line, " "), "# "), "More: ")
		if slices.ContainsFunc(commands, func(c string) bool { return shown(c, o) == text }) ||
			strings.HasPrefix(text, "kdiag ") || strings.HasPrefix(text, "journalctl ") {
			continue
		}
		if n := columns(line); n > widthOf(o) {
			t.Errorf("line %d has %d columns, more than %d: %.100q", i+1, n, widthOf(o), line)
		}
		if strings.HasSuffix(line, " ") || line == "" && i > 0 && lines[i-1] == "" {
			t.Errorf("line %d ends in a space, or is a second blank line: %q", i+1, line)
		}
	}
	checkHarmless(t, got, o.ASCII)
}

func widthOf(o Options) int {
	if o.Width == 0 {
		return defaultWidth
	}
	return max(o.Width, minWidth)
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

func checkBrief(t *testing.T, got string) {
	t.Helper()
	line, ok := strings.CutSuffix(got, "\n")
	if !ok || strings.Contains(line, "\n") || strings.TrimSpace(line) == "" {
		t.Errorf("%q is not one line", got)
	}
	if len(line) > BriefWidth || ansi.StringWidth(line) > BriefWidth {
		t.Errorf("%q has %d bytes and %d columns, more than %d", line, len(line), ansi.StringWidth(line), BriefWidth)
	}
	checkHarmless(t, line, false)
}

// TestBriefNames checks that verdict, code and culprit are in the brief line, however long the rest is.
func TestBriefNames(t *testing.T) {
	pod := &checks.Subject{Kind: "Container", Name: "ledger", Namespace: "payments", Pod: "ledger-db-0"}
	long := strings.Repeat("very long ", 20)
	for _, tt := range []struct {
		causes []checks.Cause
		want   string
	}{
		{
			[]checks.Cause{{Code: "InspectHang", Confidence: 0.8, Summary: long, Subject: pod}, {}},
			"UNHEALTHY InspectHang payments/ledger-db-0/ledger: very long very long... (+1)",
		},
		{
			[]checks.Cause{{Code: "ListHang", Confidence: 0.45, Summary: "ListContainers hangs"}},
			"UNHEALTHY ListHang (0.45): ListContainers hangs",
		},
		{nil, "UNHEALTHY no permission"},
	} {
		d := document{printer: "report", doc: &checks.Report{
			Header: checks.Header{Status: checks.Unhealthy, Problems: []string{"no permission"}}, Causes: tt.causes,
		}}
		testkit.Equal(t, "brief", tt.want+"\n", d.print(t, Options{Format: Brief}))
	}
}

func TestClean(t *testing.T) {
	for _, tt := range []struct{ name, in, want, ascii string }{
		{"escape sequence", "\x1b[31mred\x07", `\x1b[31mred\x07`, `\x1b[31mred\x07`},
		{"C1 control", "a\u009b31m", `a\u009b31m`, `a\u009b31m`},
		{"bidi override", "a\u202eb\u2066", `a\u202eb\u2066`, `a\u202eb\u2066`},
		{"invisible", "a\u200b\ufeff\U000e0041", `a\u200b\ufeff\U000e0041`, `a\u200b\ufeff\U000e0041`},
		{"not UTF-8", "a\xff\xc3", `a\xff\xc3`, `a\xff\xc3`},
		{"letters", "Prüfung 検査", "Prüfung 検査", `Pr\u00fcfung \u691c\u67fb`},
		{"pile of marks", "e\u0301\u0301\u0301", "e\u0301\u0301\\u0301", `e\u0301\u0301\u0301`},
		{"wide by selector", "\u2764\ufe0f", "\u2764\\ufe0f", `\u2764\ufe0f`},
	} {
		testkit.Equal(t, tt.name, tt.want, cleaner{}.clean(tt.in))
		testkit.Equal(t, tt.name+" in ASCII", tt.ascii, cleaner{ascii: true}.clean(tt.in))
	}
}

// FuzzFill checks that no line is too wide, and that nothing is lost but spaces.
func FuzzFill(f *testing.F) {
	f.Add("a few words of prose", 5, 3, 20)
	f.Add(strings.Repeat("x", 200)+" y", 38, 2, 40)
	f.Add("検査検査検査検査 検査", 0, 39, 40)
	f.Add("e\u0301\u0301 \U0001f1e9\U0001f1ea\U0001f1e9 \u1112\u1161\u11ab", 10, 10, 41)
	f.Add("", 0, 0, 40)
	f.Fuzz(func(t *testing.T, text string, used, hang, width int) {
		if width < minWidth || width > 200 || used < 0 || used > width || hang < 0 || hang > width-4 {
			return
		}
		text = cleaner{}.prose(text)
		lines := fill(text, used, hang, width)
		for i, line := range lines {
			start := hang
			if i == 0 {
				start = used
			}
			if n := ansi.StringWidth(line); line != "" && start+n > width {
				t.Errorf("line %d starts at column %d and has %d, more than %d: %q", i, start, n, width, line)
			}
		}
		squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if got := squeeze(strings.Join(lines, "")); got != squeeze(text) {
			t.Errorf("%q became %q", text, lines)
		}
	})
}
