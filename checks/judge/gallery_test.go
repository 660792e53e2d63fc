package judge

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/internal/testkit"
)

var must, equal = testkit.Must, testkit.Equal

// gallery returns the recorded cases by folder, each read anew: one for each cause, beside its page, and those of this
// package that show none.
func gallery() map[string]*facts.Input {
	all := map[string]*facts.Input{}
	for _, pattern := range []string{"../causes/testdata/*", "testdata/*"} {
		folders, _ := filepath.Glob(pattern) // which is good
		for _, folder := range folders {
			if _, err := os.Stat(folder + "/facts.json"); err == nil {
				all[folder] = readCase(folder)
			}
		}
	}
	return all
}

func readCase(folder string) *facts.Input {
	text, err := os.ReadFile(folder + "/facts.json")
	if err != nil {
		panic(err)
	}
	in := &facts.Input{}
	if err := decode(text, in); err != nil {
		panic(folder + ": " + err.Error())
	}
	return in
}

// decode reads JSON, in which a field that was renamed must not be lost.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// encode writes a document.
func encode(t testing.TB, v any) string { return testkit.JSON(t, v, "  ") }

// TestRecordedCases judges each recorded case and compares the report with the recorded one, with that of the same
// facts after a way through JSON, and with that of facts out of a bundle.
func TestRecordedCases(t *testing.T) {
	recorded := gallery()
	shown := map[string]bool{}
	for dir, in := range recorded {
		for _, c := range Judge(in) {
			own := strings.EqualFold(strings.ReplaceAll(filepath.Base(dir), "_", ""), c.Code)
			shown[c.Code] = shown[c.Code] || own && strings.Contains(dir, "causes")
		}
	}
	for _, d := range causes.All() {
		if !shown[d.Code] {
			t.Errorf("checks/causes/testdata has no case of %s that shows it", d.Code)
		}
	}
	for dir, in := range recorded {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			report := NewReport(checks.Header{Host: "node-7", KdiagVersion: "test"}, in)
			checkReport(t, report)
			checkTexts(t, report)
			testkit.Golden(t, filepath.Join(dir, "report.json"), encode(t, report))
			var again facts.Input
			must(t, decode([]byte(encode(t, in)), &again))
			equal(t, "after a way through JSON", report, NewReport(report.Header, &again))
			checkRedacted(t, redact.Standard, in, report)
			checkRedacted(t, redact.Strict, in, report)
		})
	}
}

// checkReport checks what must hold for every report.
func checkReport(t *testing.T, r *checks.Report) {
	t.Helper()
	if r.Status == checks.Unknown && len(r.Problems) == 0 {
		t.Error("unknown, and no problem is named")
	}
	if len(slices.Compact(slices.Sorted(slices.Values(r.Problems)))) != len(r.Problems) {
		t.Errorf("repeated: %q", r.Problems)
	}
	placed := map[string]bool{}
	for _, c := range r.Causes {
		if placed[c.Code] || c.CausedBy != "" && !placed[c.CausedBy] {
			t.Errorf("%s is there twice, or stands before its root %s", c.Code, c.CausedBy)
		}
		placed[c.Code] = true
		checkCause(t, c)
	}
}

func checkCause(t *testing.T, c checks.Cause) {
	t.Helper()
	d, ok := causes.Lookup(c.Code)
	if !ok || c.Confidence <= 0 || c.Confidence > 1 || c.Subject == nil || len(c.NextSteps) == 0 ||
		c.Severity != checks.Critical && c.Severity != checks.Warning {
		t.Errorf("%s: %+v", c.Code, c)
	}
	if len(c.Evidence.For) == 0 || c.Evidence.Against == nil || c.Evidence.Missing == nil {
		t.Errorf("%s: evidence %+v", c.Code, c.Evidence)
	}
	root, _ := causes.Lookup(c.CausedBy)
	last := 0
	for _, s := range c.NextSteps {
		radius := slices.Index(causes.BlastRadii(), s.Touches)
		if s.Command == "" || s.Why == "" || radius < 0 {
			t.Errorf("%s: step %+v", c.Code, s)
		}
		if radius < last && !strings.HasPrefix(s.Command, "kdiag explain ") { // an upgrade is the last remedy
			t.Errorf("%s: %q touches less than the step before it", c.Code, s.Command)
		}
		last = radius
		restarts := slices.Contains(
			[]string{checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode}, s.Touches)
		waits := strings.Contains(s.Why, "Only if it persists after "+c.CausedBy+" is fixed.")
		if waits != (restarts && c.CausedBy != "" && !root.Past) {
			t.Errorf("%s < %s: %q: %s", d.Code, c.CausedBy, s.Command, s.Why)
		}
	}
}

// checkTexts checks the texts of a report on names that are not empty.
func checkTexts(t *testing.T, r *checks.Report) {
	t.Helper()
	var all []string
	for _, c := range r.Causes {
		all = slices.Concat(all, c.Evidence.For, c.Evidence.Against, c.Evidence.Missing, []string{c.Summary})
	}
	for _, c := range r.Checks {
		all = append(all, strings.Join(strings.Fields(c.Summary), " ")) // where a name may be empty
	}
	for _, s := range all {
		if strings.TrimSpace(s) != s || s == "" || strings.Contains(s, "  ") || strings.Contains(s, "%!") {
			t.Errorf("text %q", s)
		}
	}
}

// hostile is a text that a sick or malicious runtime may give for any name.
const hostile = "evil\x1b]0;x\x07\r\n\u202e\u009b`$(reboot)` -rf \xff"

// poison puts the hostile text wherever a runtime, a host or a log can put one. What code chooses from its own lists is
// left.
func poison(f *facts.Input) {
	if f.Journal == nil {
		f.JournalProblem = hostile
	}
	f.HostMissing, f.Measurement.Interrupted, f.Measurement.Sweep.Total = hostile, hostile, 1000
	walkStrings(reflect.ValueOf(f).Elem(), func(field string, v reflect.Value) {
		switch field {
		case "Role", "Code", "Kind", "Method", "EndpointSource", "State", "Mode", "Lane", "Simulate", "Unit", "Key":
		default:
			v.SetString(v.String() + hostile)
		}
	})
	if f.Node != nil && f.Node.Mounts.Value.ByType != nil {
		f.Node.Mounts.Value.ByType[hostile] = 1 << 20
	}
}

func TestControlCharactersNeverLeave(t *testing.T) {
	control := regexp.MustCompile(`[^\\](\\\\)*\\[bfnrtu]`) // as JSON writes one
	for name, f := range gallery() {
		poison(f)
		f.Summary = node(t, "").Summary
		f.Summary.Sweep.SlowestID, f.Summary.Sweep.Reach = hostile, hostile
		for _, document := range []any{
			NewReport(checks.Header{Host: hostile}, f),
			NewRuntimeProbe(checks.Header{}, f), NewRelistBenchmark(checks.Header{}, f),
		} {
			text := strings.ReplaceAll(encode(t, document), "\n", " ")
			if control.MatchString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: %q leaves: %s", name, control.FindString(text), text)
			}
			if !strings.Contains(text, `\\u001b`) {
				t.Errorf("%s: no hostile text is in the document", name)
			}
		}
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				if strings.Contains(s.Command, "reboot)") || strings.Contains(s.Command, "evil") {
					t.Errorf("%s: %q", name, s.Command)
				}
			}
		}
	}
}

// TestStepsWithoutSystemd has what is found on a host with systemd once more on one without.
func TestStepsWithoutSystemd(t *testing.T) {
	for name, in := range gallery() {
		in.NoSystemd = true
		for _, c := range Judge(in) {
			for _, s := range c.NextSteps {
				for _, program := range []string{"systemctl ", "journalctl ", "timedatectl"} {
					if strings.Contains(s.Command, program) {
						t.Errorf("%s: %q", name, s.Command)
					}
				}
			}
		}
	}
}
