package judge

import (
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

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
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
			got := map[string]checks.Status{}
			for _, r := range report.Checks {
				if got[r.ID] = r.Status; shown[r.ID] == nil {
					shown[r.ID] = map[checks.Status]bool{}
				}
				if shown[r.ID][r.Status] = true; r.Summary == "" || strings.Contains(r.Summary, "%!") {
					t.Errorf("%s: summary %q", r.ID, r.Summary)
				}
			}
			for line := range strings.SplitSeq(strings.TrimSpace(want), "\n> ") {
				id, status, _ := strings.Cut(line, " ")
				if strings.Contains(id, ".") && string(got[id]) != status {
					t.Errorf("%s is %q, want %s", id, got[id], status)
				} else if !strings.Contains(id, ".") && line != finds(in) {
					t.Error(cmp.Diff(line, finds(in)))
				}
			}
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
		"journal calm": calm(), "journal quiet": quiet,
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
				runtimeChange(t, strings.Fields(line))(f)
			}
		}
	}
}

// runtimeChange makes a tweak of a line about calls of the runtime.
func runtimeChange(t *testing.T, words []string) tweak {
	names := words[min(len(words), 2):]
	if slices.Contains(names, "all") {
		names = everyRPC()
	}
	switch words[0] {
	case "socket":
		return socket(crictl.ConnectState(words[1]), words[1])
	case "call":
		switch d, err := time.ParseDuration(words[1]); {
		case err == nil:
			return takes(d, names...)
		case words[1] == "hangs":
			return hangs(names...)
		default:
			return fails(crictl.Code(words[1]), "some reason", names...)
		}
	case "status":
		if words[1] == "hangs" {
			return statusHangs(names...)
		}
		return statuses(every, withError(crictl.Code(words[1]), strings.Join(names, " ")))
	case "exited":
		var total, perPod int
		var bytes uint32
		if _, err := fmt.Sscan(strings.Join(words[1:], " "), &total, &perPod, &bytes); err == nil {
			return exited(total, perPod, bytes)
		}
	}
	t.Fatalf("%q is no change", words)
	return nil
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
