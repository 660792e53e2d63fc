package judge

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
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
		if radius < last {
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

// poison puts the hostile text wherever a runtime or host can put one.
func poison(f *facts.Input) {
	f.Summary = nil
	f.Runtime.Name, f.Runtime.Endpoint, f.Runtime.EndpointReason = hostile, "unix:///run/"+hostile, hostile
	f.HostMissing = hostile
	poisonNode(f.Node)
	if f.Journal == nil {
		f.JournalProblem = hostile
	} else {
		poisonJournal(f.Journal)
	}
	for i := range f.Processes {
		f.Processes[i].Name, f.Processes[i].Wchan = hostile, hostile
	}
	m := f.Measurement
	m.Interrupted, m.Connect.Err, m.Connect.FirstByte = hostile, hostile, hostile
	m.Sweep.Reach, m.Sweep.Total = hostile, 1000
	if m.Version != nil {
		*m.Version = crictl.Version{RuntimeName: hostile, RuntimeVersion: hostile, RuntimeAPIVersion: hostile}
	}
	if m.Status != nil {
		for i := range m.Status.Conditions {
			m.Status.Conditions[i].Reason, m.Status.Conditions[i].Message = hostile, hostile
		}
	}
	for i := range m.Probes {
		if m.Probes[i].Err != "" {
			m.Probes[i].Err += hostile
		}
	}
	for i := range m.Sweep.Inspections {
		in := &m.Sweep.Inspections[i]
		in.ID, in.Name = in.ID+hostile, hostile
		in.Pod = crictl.Pod{Namespace: hostile, Name: hostile, UID: in.Pod.UID + hostile}
	}
	if m.Containers != nil {
		for i := range m.Containers.Containers {
			c := &m.Containers.Containers[i]
			c.ID, c.Name = c.ID+hostile, hostile
			c.Pod = &crictl.Pod{Namespace: hostile, Name: hostile, UID: c.Pod.UID + hostile}
		}
	}
}

// poisonJournal puts the hostile text into a log, without making it another log.
func poisonJournal(r *journal.Report) {
	for i := range r.Signatures {
		c := &r.Signatures[i]
		c.Example = strings.Replace(c.Example, " ", hostile, 1) + hostile
		for k := range c.Subjects {
			c.Subjects[k].ID += hostile
		}
	}
	for i := range r.Events {
		r.Events[i].What, r.Events[i].Subject = hostile, r.Events[i].Subject+hostile
	}
	for i := range r.Episodes {
		e := &r.Episodes[i]
		e.Culprits = append(e.Culprits, journal.Culprit{
			Kind: hostile, ID: hostile, Name: hostile, Namespace: hostile, Pod: hostile, PodUID: hostile,
		})
		e.Causes = append(e.Causes, journal.Cause{Code: causes.InspectHang, Confidence: 0.5, Summary: hostile})
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
			walkStrings(decoded, func(s string) {
				if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s: %q leaves", name, s)
				}
			})
		}
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				if strings.Contains(s.Command, "reboot)") || strings.Contains(s.Command, "evil") {
					t.Errorf("%s: command %q", name, s.Command)
				}
			}
		}
	}
}

// walkStrings visits every string of a decoded JSON document.
func walkStrings(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			walkStrings(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			walkStrings(e, visit)
		}
	}
}
