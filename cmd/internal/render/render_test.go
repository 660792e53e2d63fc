package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/kubelet"
)

var update = flag.Bool("update", false, "write the goldens of this run")

// A document is an answer of one of the commands, and how to print it.
type document struct {
	name  string
	file  string // the saved JSON; empty for one that is made here
	print func(o Options) (string, error)
}

// saved decodes a saved answer and refuses fields that the types do not have, so that a stale one shows.
func saved[T any](t testing.TB, file string, print func(io.Writer, *T, Options) error) document {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc T
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return document{strings.TrimSuffix(filepath.Base(file), ".json"), file, func(o Options) (string, error) {
		var b strings.Builder
		err := print(&b, &doc, o)
		return b.String(), err
	}}
}

// documents are answers of each command, as kdiag recorded them with --simulate, and what journal reads in logs.
func documents(t testing.TB) []document {
	t.Helper()
	alone := func(w io.Writer, r *checks.RelistBenchmark, o Options) error { return RelistBenchmark(w, r, nil, o) }
	twice := func(w io.Writer, r *checks.RelistBenchmark, o Options) error { return RelistBenchmark(w, r, r, o) }
	node, compared := saved(t, "testdata/inspect-hang.json", Node), saved(t, "testdata/relist-overloaded.json", twice)
	node.name, compared.name, compared.file = "node", "relist-against", ""
	details := saved(t, "testdata/inspect-hang.json", func(w io.Writer, r *checks.Report, o Options) error {
		o.Details, o.All = true, true
		return Node(w, r, o)
	})
	details.name = "node-details"
	dumps := func(w io.Writer, r *checks.StacksReport, o Options) error {
		return Stacks(w, r, "kdiag stacks --capture --details", o)
	}
	stacks := saved(t, "testdata/stacks.json", func(w io.Writer, r *checks.StacksReport, o Options) error {
		o.Details = true
		return dumps(w, r, o)
	})
	stacks.name = "stacks-details"
	story := func(w io.Writer, h *checks.History, o Options) error {
		return History(w, h, "kdiag history --details", o)
	}
	history := saved(t, "testdata/history.json", func(w io.Writer, h *checks.History, o Options) error {
		o.Details = true
		return story(w, h, o)
	})
	history.name = "history-details"
	nodes := func(w io.Writer, r *checks.FleetReport, o Options) error {
		o.More = "kdiag fleet --details"
		return Fleet(w, r, o)
	}
	fleet := saved(t, "testdata/fleet.json", func(w io.Writer, r *checks.FleetReport, o Options) error {
		o.Details = true
		return nodes(w, r, o)
	})
	fleet.name = "fleet-details"
	return append(
		journalDocuments(t), node, details, compared, explanations(), settings(false), settings(true),
		saved(t, "testdata/healthy.json", Report),
		saved(t, "testdata/inspect-hang.json", Report),
		saved(t, "testdata/probe.json", RuntimeProbe),
		saved(t, "testdata/relist.json", alone),
		saved(t, "testdata/relist-overloaded.json", alone),
		saved(t, "testdata/exited.json", Exited),
		saved(t, "testdata/bundle.json", func(w io.Writer, m *bundle.Manifest, o Options) error {
			return BundleList(w, m, len(m.Problems) == 0, o)
		}),
		saved(t, "testdata/bundle-written.json", BundleWritten),
		saved(t, "testdata/gc-plan.json", GC),
		saved(t, "testdata/gc-partly.json", GC),
		saved(t, "testdata/canary.json", Canary),
		saved(t, "testdata/reproduction.json", Reproduction),
		saved(t, "testdata/stacks.json", dumps), stacks, saved(t, "testdata/history.json", story), history,
		saved(t, "testdata/fleet.json", nodes), fleet,
	)
}

func explanations() document {
	ds := []checks.Definition{
		{
			Code: "ListHang", Title: "one list hangs", Means: "The list waits for a lock.\n\nThe relist waits with it.",
			Confirm:  []string{"ps -C runc: what is old is stuck.", "The log repeats the same id."},
			Fix:      []string{"Kill the stuck runc: the lock is freed."},
			Mistaken: "RuntimeHung: there nothing answers.",
			Sources:  []string{"kubernetes/kubernetes#45419"}, RootOf: []string{"RelistOverloaded"},
		},
		{Code: "RuntimeDown", Title: "nothing listens", Means: "The daemon is stopped."},
	}
	return document{name: "explain", print: func(o Options) (string, error) {
		var one, all strings.Builder
		if err := Definition(&one, checks.Header{}, ds[0], o); err != nil || o.Format != Text && o.Format != "" {
			return one.String(), err
		}
		err := Definitions(&all, checks.Header{}, ds, nil, o)
		return one.String() + "\n" + all.String(), err
	}}
}

// settings are those of a kubelet, as a table or with their texts.
func settings(details bool) document {
	e := kubelet.Explanation{
		PID: 812, Process: "kubelet", Files: []string{"/var/lib/kubelet/config.yaml"},
		Settings: []kubelet.Explained{
			{
				Name: "containerRuntimeEndpoint", Field: "containerRuntimeEndpoint", Flag: "--container-runtime-endpoint",
				Value: "unix:///var/run/\x1b[31m/crio.sock", From: "flag", Where: "--container-runtime-endpoint",
				Default: "unix:///run/containerd/containerd.sock", Versions: "until 1.26 only the flag sets it",
				Means: "Socket of the runtime.",
			},
			{
				Name: "evictionHard", Field: "evictionHard", Value: "memory.available: 5%, pid.available: 10%",
				From: "drop-in", Where: "/d/1.conf", Default: "memory.available: 100Mi, nodefs.available: 10%",
				Means: "Thresholds at which pods are evicted.",
			},
			{
				Name: "maximum-dead-containers-per-container", Value: "1", From: "default", Default: "1",
				Means: "Dead instances.",
			},
			{Name: "kubeReserved", Value: "-", From: "default", Default: "-", Means: "For the daemons."},
		},
		Constants: []kubelet.Constant{{Name: "housekeepingPeriod", Value: "2s", Means: "Two lists."}},
	}
	name := map[bool]string{false: "settings", true: "settings-details"}[details]
	return document{name: name, print: func(o Options) (string, error) {
		var b strings.Builder
		o.Details = o.Details || details
		h := checks.Header{Kind: "KubeletSettings", Problems: []string{"/d/2.conf does not exist"}}
		err := KubeletSettings(&b, h, e, o)
		return b.String(), err
	}}
}

// golden compares got with a file under testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	if *update {
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

func printed(t *testing.T, d document, o Options) string {
	t.Helper()
	got, err := d.print(o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestGoldens has one golden for each command and layout: text of 80 columns, and the brief line below it.
func TestGoldens(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			golden(t, d.name, printed(t, d, Options{})+"\n"+printed(t, d, Options{Format: Brief}))
		})
	}
}

// TestEveryAnswer checks what holds for every answer, that of each recorded cause among them: colour only decorates,
// text fits, brief is one line, YAML is the JSON, and JSON is what was saved.
func TestEveryAnswer(t *testing.T) {
	all := documents(t)
	causes, err := filepath.Glob("../../../checks/causes/testdata/*/report.json")
	if err != nil || len(causes) < 30 {
		t.Fatalf("%d recorded causes, %v", len(causes), err)
	}
	for _, file := range causes {
		d := saved(t, file, Report)
		d.name = filepath.Base(filepath.Dir(file))
		all = append(all, d)
	}
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			doc := printed(t, d, Options{Format: JSON})
			var want, got any
			if err := json.Unmarshal([]byte(doc), &want); err != nil {
				t.Fatal(err)
			}
			colored := printed(t, d, Options{Color: true})
			if !strings.Contains(colored, "\x1b[") {
				t.Error("no colour in the coloured text")
			}
			if diff := cmp.Diff(printed(t, d, Options{}), stripColor(colored)); diff != "" {
				t.Errorf("colour changes the text (-plain +colored):\n%s", diff)
			}
			for _, width := range []int{0, 1, 50, 60, 132, 250} {
				o := Options{Width: width, ASCII: width%4 == 0}
				checkText(t, printed(t, d, o), o, commandsIn(want)...)
				o.Details = true
				text := printed(t, d, o)
				checkText(t, text, o, commandsIn(want)...)
				for _, c := range commandsIn(want) {
					if c = shown(c, o); c != "" && !strings.Contains(text, " "+c+"\n") {
						t.Errorf("no line holds the command %q and nothing else", c)
					}
				}
			}
			checkBrief(t, printed(t, d, Options{Format: Brief}))
			if err := yaml.Unmarshal([]byte(printed(t, d, Options{Format: YAML})), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("YAML differs from JSON (-JSON +YAML):\n%s", diff)
			}
			if d.file == "" {
				return
			}
			before, err := os.ReadFile(d.file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(before), doc); diff != "" {
				t.Errorf("%s (-saved +printed):\n%s", d.file, diff)
			}
		})
	}
}

// commandsIn returns the commands of a JSON document.
func commandsIn(doc any) []string {
	var all []string
	switch doc := doc.(type) {
	case []any:
		for _, v := range doc {
			all = append(all, commandsIn(v)...)
		}
	case map[string]any:
		for name, v := range doc {
			_, frame := doc["apiVersion"] // whose command is what was typed
			if command, ok := v.(string); ok && name == "command" && !frame {
				all = append(all, command)
			}
			all = append(all, commandsIn(v)...)
		}
	}
	return all
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
		text := strings.TrimPrefix(strings.TrimLeft(line, " "), "# ")
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
	if len(line) > BriefWidth || lipgloss.Width(line) > BriefWidth {
		t.Errorf("%q has %d bytes and %d columns, more than %d", line, len(line), lipgloss.Width(line), BriefWidth)
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
			[]checks.Cause{{
				Code: "InspectHang", Confidence: 0.8, Summary: "payments/ledger-db-0 (ledger) hangs", Subject: pod,
			}},
			"UNHEALTHY InspectHang: payments/ledger-db-0 (ledger) hangs",
		},
		{
			[]checks.Cause{{Code: "InspectHang", Confidence: 0.8, Summary: long, Subject: pod}, {}},
			"UNHEALTHY InspectHang payments/ledger-db-0/ledger: very long very long... (+1)",
		},
		{
			[]checks.Cause{{Code: "InspectHang", Confidence: 0.8, Summary: long, Subject: &checks.Subject{ID: "x17"}}},
			"UNHEALTHY InspectHang x17: very long very long very long very long very long...",
		},
		{
			[]checks.Cause{{Code: "ListHang", Confidence: 0.45, Summary: "ListContainers hangs"}},
			"UNHEALTHY ListHang (0.45): ListContainers hangs",
		},
		{nil, "UNHEALTHY no permission"},
	} {
		var b strings.Builder
		r := &checks.Report{
			Header: checks.Header{Status: checks.Unhealthy, Problems: []string{"no permission"}}, Causes: tt.causes,
		}
		if err := Report(&b, r, Options{Format: Brief}); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(b.String()); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

// TestScreen checks that a terminal of 80 columns and 24 lines shows verdict and first command when a command ends,
// whatever was found.
func TestScreen(t *testing.T) {
	files, err := filepath.Glob("../../../checks/causes/testdata/*/report.json")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d recorded causes, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/inspect-hang.json", "testdata/healthy.json") {
		for _, print := range []func(io.Writer, *checks.Report, Options) error{Report, Node} {
			text := printed(t, saved(t, file, print), Options{})
			var rows []string
			for line := range strings.Lines(text) {
				for n := columns(strings.TrimRight(line, "\n")); n > 80; n -= 80 {
					rows = append(rows, line)
				}
				rows = append(rows, line)
			}
			screen := "\n" + strings.Join(rows[max(0, len(rows)-23):], "")
			verdict := regexp.MustCompile(`\n(UN)?HEALTHY |\nDEGRADED |\nUNKNOWN `).MatchString(screen)
			if !verdict || strings.Contains(text, "\nNext\n") && !strings.Contains(screen, "\n  1. ") {
				t.Errorf("%s: the last screen is\n%s", file, screen)
			}
		}
	}
}

// TestRelated has processes of one name and pod in one line.
func TestRelated(t *testing.T) {
	process := func(pid, uid string) checks.Subject {
		return checks.Subject{Kind: "Process", ID: pid, Name: "runc", Namespace: "shop", Pod: "web", PodUID: uid}
	}
	r := &checks.Report{Header: checks.Header{Status: checks.Unhealthy}, Causes: []checks.Cause{{
		Code: "TaskStuck", Subject: new(process("11", "u")),
		Related: []checks.Subject{process("12", "u"), process("13", "u"), process("14", "v")},
	}}}
	var b strings.Builder
	if err := Report(&b, r, Options{Width: 120, Details: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Culprit  process runc of shop/web, pid 11", "also process runc of shop/web, pid 12, pod uid u\n",
		"pid 14, pod uid v\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}
