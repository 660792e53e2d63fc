package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// TestScenarios judges the nodes of testdata/scenarios, which nodes.txtar describes, and compares what is found. Each
// check must be shown as ok and in two other ways at least, and docs/checks.md must describe it.
func TestScenarios(t *testing.T) {
	shown, defined := map[string]map[checks.Status]bool{}, map[string]string{}
	for _, s := range scenarioFiles(t, defined) {
		t.Run(s.Name, func(t *testing.T) {
			text, want, _ := strings.Cut("\n"+string(s.Data), "\n> ")
			in := node(changes(t, defined, text))
			report := NewReport(checks.Header{}, in)
			for _, c := range report.Causes {
				checkCause(t, s.Name, c)
			}
			for _, r := range report.Checks {
				if shown[r.ID] == nil {
					shown[r.ID] = map[checks.Status]bool{}
				}
				if shown[r.ID][r.Status] = true; r.Summary == "" || strings.Contains(r.Summary, "%!") {
					t.Errorf("%s: summary %q", r.ID, r.Summary)
				}
			}
			for line := range strings.SplitSeq(strings.TrimSpace(want), "\n> ") {
				checkLine(t, in, report, line)
			}
			checkRedacted(t, in, report)
		})
	}
	doc, err := os.ReadFile("../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(doc), "\n# Looks\n")
	for _, r := range readChecks(facts.New(nil)) {
		if s := shown[r.ID]; !s[checks.StatusOK] || len(s) < 3 || !strings.Contains(list, "\n## "+r.ID+"\n") {
			t.Errorf("%s is shown as %v only, or is not in docs/checks.md", r.ID, s)
		}
	}
}

// checkRedacted judges facts as a bundle has them: as JSON, without secrets, and with pseudonyms.
func checkRedacted(t *testing.T, in *facts.Input, report *checks.Report) {
	for _, level := range []redact.Level{redact.Standard, redact.Strict} {
		var text bytes.Buffer
		if _, err := redact.New(level, nil).Copy(&text, bytes.NewReader(encode(t, in)), redact.JSON); err != nil {
			t.Fatal(err)
		}
		var again facts.Input
		if err := json.Unmarshal(text.Bytes(), &again); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(essence(report), essence(NewReport(checks.Header{}, &again))); diff != "" {
			t.Errorf("out of a bundle (%s): %s", level, diff)
		}
	}
}

// essence is what two reports must have in common of which one has pseudonyms.
func essence(r *checks.Report) []string {
	all := []string{string(r.Status)}
	for _, c := range r.Causes {
		all = append(all, fmt.Sprint(c.Code, c.Severity, c.Confidence, c.CausedBy, c.Subject.Kind))
	}
	for _, c := range r.Checks {
		all = append(all, c.ID+" "+string(c.Status))
	}
	return all
}

// checkLine compares one line of what is found with the report.
func checkLine(t *testing.T, in *facts.Input, report *checks.Report, line string) {
	var steps, said, effects, blamed, evidence []string
	for _, c := range report.Causes {
		steps, said = append(steps, lines(c.NextSteps)...), append(said, c.Summary)
		effects = append(effects, c.Effect...)
		evidence = slices.Concat(evidence, c.Evidence.For, c.Evidence.Against, c.Evidence.Missing)
		for _, s := range append([]checks.Subject{*c.Subject}, c.Related...) {
			name := cmp.Or(s.ID, s.Name)
			if s.Kind == "Cgroup" {
				name = cmp.Or(s.Pod, s.Name)
			}
			for _, p := range s.Processes {
				name += fmt.Sprintf(" [%d]", p.PID)
			}
			blamed = append(blamed, s.Kind+" "+name)
		}
	}
	var status checks.Status
	verb, rest, _ := strings.Cut(line, " ")
	for _, r := range report.Checks {
		said = append(said, r.Summary)
		if r.ID == verb {
			status = r.Status
		}
	}
	if more := len(blamed) - 3; more > 0 {
		blamed = append(blamed[:3], fmt.Sprint(more, " more"))
	}
	ends := func(line string) bool { return strings.HasSuffix(line, rest) }
	var diff string
	switch {
	case strings.Contains(verb, "."):
		diff = gocmp.Diff(rest, string(status))
	case verb == "blames":
		diff = gocmp.Diff(rest, strings.Join(blamed, ", "))
	case verb == "effect":
		diff = gocmp.Diff(rest, strings.Join(effects, "; "))
	case verb == "does" && !mentions(steps, rest), verb == "never" && mentions(steps, rest):
		diff = strings.Join(steps, "\n")
	case verb == "says" && !mentions(said, rest):
		diff = strings.Join(said, "\n")
	case verb == "shows" && !slices.ContainsFunc(evidence, ends):
		diff = strings.Join(evidence, "\n")
	case !slices.Contains([]string{"does", "never", "says", "shows"}, verb):
		diff = gocmp.Diff(line, finds(in))
	}
	if diff != "" {
		t.Errorf("%s:\n%s", line, diff)
	}
}

// scenarioFiles returns the nodes of all files, and keeps what they define.
func scenarioFiles(t *testing.T, defined map[string]string) []txtar.File {
	paths, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var files []txtar.File
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range archive.Files {
			if name, ok := strings.CutPrefix(s.Name, "define "); ok {
				defined[name] = string(s.Data)
			} else {
				files = append(files, s)
			}
		}
	}
	return files
}

// changes makes a tweak of the lines of a scenario.
func changes(t *testing.T, defined map[string]string, text string) tweak {
	named := map[string]tweak{
		"host": seen(), "kubelet": surfaces(), "no kubelet": noKubelet, "nothing read": notSeen,
		"journal calm": calm(), "journal quiet": quiet, "sweep": sweep,
	}
	return func(f *facts.Input) {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			path, value, isValue := strings.Cut(line, " = ")
			switch {
			case line == "" || line[0] == '#':
			case named[line] != nil:
				named[line](f)
			case defined[line] != "":
				changes(t, defined, defined[line])(f)
			case strings.HasPrefix(line, "stacks "):
				dumped(t, f, line)
			case strings.HasPrefix(line, "journal of "):
				if f.Journal == nil {
					logs()(f)
				}
				logLine(t, line)(f.Journal)
			case isValue:
				if err := setPath(reflect.ValueOf(f).Elem(), strings.Split(path, "."), value); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			default:
				otherChange(t, line)(f)
			}
		}
	}
}

// dumped enters what package stacks makes of a real dump, as one of the daemon or of another role.
func dumped(t *testing.T, f *facts.Input, line string) {
	words := strings.Fields(line)
	text, err := os.ReadFile("../stacks/testdata/reports/" + words[1] + ".json")
	if err != nil {
		t.Fatal(err)
	}
	f.Stacks = &checks.StacksReport{}
	if err := json.Unmarshal(text, f.Stacks); err != nil {
		t.Fatal(err)
	}
	s := &f.Stacks.Sources[0]
	s.Role, s.PID = "runtime", 4711
	if len(words) > 2 {
		s.Role = words[2]
	}
	facts.TieStacks(f)
}

// otherChange makes a tweak of a line about calls of the runtime, what it holds, or PLEG.
func otherChange(t *testing.T, line string) tweak {
	line, text, _ := strings.Cut(line, " | ")
	words := append(strings.Fields(line), "")
	names := words[min(len(words), 2) : len(words)-1]
	took, err := time.ParseDuration(words[1])
	change := withError(crictl.Code(words[1]), cmp.Or(text, "some reason"))
	switch {
	case words[1] == "hangs":
		change = lost
	case err == nil:
		change = func(c crictl.Call) crictl.Call { c.Elapsed = took; return c }
	}
	var total, perPod int
	var bytes uint32
	_, _ = fmt.Sscan(strings.Join(words[1:], " "), &total, &perPod, &bytes)
	switch words[0] {
	case "socket":
		return socket(crictl.ConnectState(words[1]), words[1])
	case "call":
		if slices.Contains(names, "all") {
			names = everyRPC()
		}
		if err == nil {
			return takes(took, names...)
		}
		return each(names, change)
	case "status":
		return statuses(picked(names), change)
	case "pods":
		return pods(total, perPod)
	case "exited":
		return exited(total, perPod, bytes)
	case "pleg":
		return pleg(t, words[1:len(words)-1])
	}
	t.Fatalf("%q is no change", line)
	return nil
}

// picked picks status calls: all, the first so many, those of containers, or those about objects by their ids.
func picked(words []string) func(int, plegbench.Inspection) bool {
	first := 0
	if words[0] == "first" {
		first, _ = strconv.Atoi(words[1])
	}
	return func(n int, i plegbench.Inspection) bool {
		return n < first || words[0] == "all" || words[0] == "containers" && i.Kind == facts.KindContainer ||
			slices.Contains(words, i.ID)
	}
}

// pleg adds an incident, by when it began, ended, and the kubelet's loop ran again.
func pleg(t *testing.T, words []string) tweak {
	var times []time.Duration
	for _, w := range words {
		d, err := time.ParseDuration(w)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, d)
	}
	return func(f *facts.Input) {
		if f.Journal == nil {
			logs()(f)
		}
		e := incident(times[0], times[1])
		if len(times) > 2 {
			e = incident(times[0], times[1], recovered(times[2]))
		}
		e(f.Journal)
	}
}

// logLine makes an entry of "journal of N CODE FIRST LAST EXAMPLE | SUBJECT | ...".
func logLine(t *testing.T, line string) entry {
	text, subjects, _ := strings.Cut(line, " | ")
	var n int64
	var code, first, last string
	if _, err := fmt.Sscanf(text, "journal of %d %s %s %s", &n, &code, &first, &last); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	from, err := time.ParseDuration(first)
	to, err2 := time.ParseDuration(last)
	if err != nil || err2 != nil {
		t.Fatal(line)
	}
	_, example, _ := strings.Cut(text, " "+first+" "+last+" ")
	if subjects == "" {
		return signs(code, n, from, to, example)
	}
	return signs(code, n, from, to, example, strings.Split(subjects, " | ")...)
}

// setPath sets a field of the input, or of its node, to a JSON value, or to a duration, or to a moment so long after
// now. Of a reading the path leads on into its value; * is every element of a list, and + one more.
func setPath(v reflect.Value, path []string, value string) error {
	for v.Kind() == reflect.Pointer && (len(path) > 0 || value != "null") {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if len(path) == 0 {
		return setValue(v, value)
	}
	if v.Kind() == reflect.Struct {
		f := v.FieldByName(path[0])
		for _, inside := range []string{"Value", "Node"} {
			if outer := v.FieldByName(inside); !f.IsValid() && outer.IsValid() {
				return setPath(outer, path, value)
			}
		}
		if !f.IsValid() {
			return fmt.Errorf("%s has no %s", v.Type(), path[0])
		}
		return setPath(f, path[1:], value)
	}
	i, err := strconv.Atoi(path[0])
	switch {
	case v.Kind() != reflect.Slice:
		return fmt.Errorf("%s has no %s", v.Type(), path[0])
	case path[0] == "+":
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		i = v.Len() - 1
	case path[0] == "*":
		for i := range v.Len() {
			if err := setPath(v.Index(i), path[1:], value); err != nil {
				return err
			}
		}
		return nil
	case err != nil || i >= v.Len():
		return fmt.Errorf("no element %s of %d", path[0], v.Len())
	}
	return setPath(v.Index(i), path[1:], value)
}

func setValue(v reflect.Value, value string) error {
	d, err := time.ParseDuration(value)
	switch v.Addr().Interface().(type) {
	case *time.Duration:
		v.SetInt(int64(d))
		return err
	case *time.Time:
		v.Set(reflect.ValueOf(now().Add(d)))
		return err
	}
	if v.Kind() == reflect.Struct && v.FieldByName("Skipped").IsValid() {
		v = v.FieldByName("Value") // of a reading
	}
	v.SetZero()
	decoder := json.NewDecoder(strings.NewReader(states.Replace(value)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v.Addr().Interface())
}

// states writes the states of processes as JSON has them.
var states = strings.NewReplacer(`"State":"S"`, `"State":83`, `"State":"T"`, `"State":84`, `"State":"D"`, `"State":68`)
