package judge

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

// TestSound checks what must hold for each cause of each recorded case, and that judging twice, or facts that were read
// anew, gives the same causes.
func TestSound(t *testing.T) {
	again := gallery()
	for name, f := range gallery() {
		for _, c := range Judge(f) {
			checkCause(t, name, c)
		}
		if diff := cmp.Diff(Judge(f), Judge(again[name])); diff != "" {
			t.Errorf("%s, anew: %s", name, diff)
		}
	}
}

func checkCause(t *testing.T, name string, c checks.Cause) {
	t.Helper()
	if _, ok := causes.Lookup(c.Code); !ok {
		t.Errorf("%s: %s is not defined", name, c.Code)
	}
	if c.Confidence <= 0 || c.Confidence > 1 || c.Summary == "" || c.Subject == nil {
		t.Errorf("%s: %s: confidence %v, summary %q, subject %v", name, c.Code, c.Confidence, c.Summary, c.Subject)
	}
	if c.Severity != checks.Critical && c.Severity != checks.Warning {
		t.Errorf("%s: %s: severity %q", name, c.Code, c.Severity)
	}
	if len(c.Evidence.For) == 0 || c.Evidence.Against == nil || c.Evidence.Missing == nil {
		t.Errorf("%s: %s: evidence %+v", name, c.Code, c.Evidence)
	}
	if len(c.NextSteps) == 0 {
		t.Errorf("%s: %s has no next step", name, c.Code)
	}
	last := 0
	for _, s := range c.NextSteps {
		radius := slices.Index(causes.BlastRadii(), s.Touches)
		if s.Command == "" || s.Why == "" || radius < 0 {
			t.Errorf("%s: %s: step %+v", name, c.Code, s)
		}
		if radius < last && !strings.HasPrefix(s.Command, "kdiag explain ") { // an upgrade is the last remedy
			t.Errorf("%s: %s: %q touches less than the step before it", name, c.Code, s.Command)
		}
		last = radius
	}
	for i, s := range slices.Concat(c.Evidence.For, c.Evidence.Against, c.Evidence.Missing, []string{c.Summary}) {
		if strings.TrimSpace(s) != s || s == "" || strings.Contains(s, "  ") || strings.Contains(s, "%!") {
			t.Errorf("%s: %s: text %d is %q", name, c.Code, i, s)
		}
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// hostile is a text that a sick or malicious runtime may give for any name.
const hostile = "evil\x1b]0;x\x07\r\n\u202e\u009b`$(reboot)` -rf \xff"

// poison puts the hostile text wherever a runtime, a host or a log can put one. What code chooses from its own lists is
// left.
func poison(f *facts.Input) {
	f.Summary = nil
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
	for name, f := range gallery() {
		poison(f)
		f.Summary = node().Summary
		f.Summary.Sweep.SlowestID, f.Summary.Sweep.Reach = hostile, hostile
		for _, document := range []any{
			NewReport(checks.Header{Host: hostile}, f),
			NewRuntimeProbe(checks.Header{}, f), NewRelistBenchmark(checks.Header{}, f),
		} {
			var decoded any
			if err := json.Unmarshal(encode(t, document), &decoded); err != nil {
				t.Fatal(err)
			}
			escaped := false
			eachString(decoded, func(s string) {
				escaped = escaped || strings.Contains(s, `\u001b`)
				if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s: %q leaves", name, s)
				}
			})
			if !escaped {
				t.Errorf("%s: no hostile text is in the document", name)
			}
		}
		for _, c := range Judge(f) {
			if got := lines(c.NextSteps); mentions(got, "reboot)") || mentions(got, "evil") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// eachString visits every string of a decoded JSON document.
func eachString(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			eachString(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			eachString(e, visit)
		}
	}
}
