package render

import (
	"encoding/json"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// A filling is what is put into every field of a document, by the field's type.
type filling struct {
	s  string
	f  float64
	n  int64
	at time.Time
}

// filled returns a document of which every field that is exported is filled, with two elements in every list.
func filled[T any](v filling) *T {
	doc := new(T)
	v.fill(reflect.ValueOf(doc).Elem())
	return doc
}

func (v filling) fill(to reflect.Value) {
	switch {
	case !to.CanSet():
	case to.Type() == reflect.TypeFor[time.Time]():
		to.Set(reflect.ValueOf(v.at))
	case to.Type() == reflect.TypeFor[*time.Location]():
		to.Set(reflect.ValueOf(v.at.Location()))
	case to.Kind() == reflect.String:
		to.SetString(v.s)
	case to.CanFloat():
		to.SetFloat(v.f)
	case to.CanInt():
		to.SetInt(v.n)
	case to.Kind() == reflect.Bool:
		to.SetBool(v.n&1 == 1)
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		v.fill(to.Elem())
	case to.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), 2, 2))
		v.fill(to.Index(0))
		v.fill(to.Index(1))
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			if to.Type().Field(i).Tag.Get("json") != "-" { // that is for the judge
				v.fill(to.Field(i))
			}
		}
	}
}

// FuzzHostile checks that, whatever a runtime answers, text fits and nothing that a terminal acts on is printed, brief
// is one line of at most 80 columns, and JSON loses nothing.
func FuzzHostile(f *testing.F) {
	f.Add("payments/ledger-db-0", 0.5, 20000, 80)
	f.Add("\x1b]0;title\x07\x9b31m\u009b\u202e\u2066", 1e300, -1, 40)
	f.Add(strings.Repeat("a", 300)+"\n"+strings.Repeat("検", 60), 0.0, 0, 61)
	f.Add("\xff\xfe\u00a0\u2028\U000e0041\ufe0f👩‍👩‍👧 e\u0301\u0301\u0301\u0301", 179.99, 7, 80)
	f.Add(" ", 1.0, 1, 80)
	f.Add("a: b\n- c\t# d\r\n---\n\u0085é 5 s", -3.0, math.MaxInt>>23, 100)
	f.Fuzz(func(t *testing.T, s string, v float64, n, width int) {
		if v != v || v > 1e308 || v < -1e308 || n > math.MaxInt>>13 || n < math.MinInt>>13 || width > 300 {
			return
		}
		fill := filling{s, v, int64(n), time.Unix(int64(n%1e9), 0).UTC()}
		report := filled[checks.Report](fill)
		report.Status, report.Causes[0].CausedBy = checks.Unhealthy, ""
		probe, canary := filled[checks.RuntimeProbe](fill), filled[checks.CanaryReport](fill)
		bench, census, clean := filled[checks.RelistBenchmark](fill), filled[ExitedCensus](fill), filled[GCReport](fill)
		bench.Causes, clean.Problems = nil, clean.Problems[:2*(n&1)]
		played := &ReproductionReport{report.Header, filled[reproduce.Report](fill)}
		nodes := filled[checks.FleetReport](fill)
		def, told := filled[checks.Definition](fill), filled[checks.History](fill)
		for name, print := range map[string]func(io.Writer, Options) error{
			"report": func(w io.Writer, o Options) error { return Report(w, report, o) },
			"node":   func(w io.Writer, o Options) error { return Node(w, report, o) },
			"probe":  func(w io.Writer, o Options) error { return RuntimeProbe(w, probe, o) },
			"bench":  func(w io.Writer, o Options) error { return RelistBenchmark(w, bench, bench, o) },
			"cause":  func(w io.Writer, o Options) error { return Definition(w, checks.Header{}, *def, o) },
			"census": func(w io.Writer, o Options) error { return Exited(w, census, o) },
			"gc":     func(w io.Writer, o Options) error { return GC(w, clean, o) },
			"canary": func(w io.Writer, o Options) error { return Canary(w, canary, o) },
			"told":   func(w io.Writer, o Options) error { return History(w, told, "kdiag history", o) },
			"fleet": func(w io.Writer, o Options) error {
				o.Details = n&1 == 1
				o.More = "kdiag fleet --details"
				return Fleet(w, nodes, o)
			},
			"played": func(w io.Writer, o Options) error { return Reproduction(w, played, o) },
		} {
			t.Run(name, func(t *testing.T) { checkPrinted(t, s, print, width) })
		}
		if utf8.ValidString(s) {
			checkReplay(t, report)
		}
	})
}

// checkPrinted checks what holds for every document; command is one that is printed whole.
func checkPrinted(t *testing.T, command string, print func(io.Writer, Options) error, width int) {
	t.Helper()
	do := func(o Options) string {
		var b strings.Builder
		if err := print(&b, o); err != nil {
			if (o.Format == JSON || o.Format == YAML) && strings.Contains(err.Error(), "year outside of range") {
				return "{}\n"
			}
			t.Fatal(err)
		}
		return b.String()
	}
	for _, ascii := range []bool{false, true} {
		o := Options{Width: max(width, 0), ASCII: ascii}
		checkText(t, do(o), o, command)
	}
	checkBrief(t, do(Options{Format: Brief}))
	checkHarmless(t, do(Options{Format: JSON}), false)
	doc := do(Options{Format: YAML})
	checkHarmless(t, doc, false)
	var tree any
	if err := yaml.Unmarshal([]byte(doc), &tree); err != nil {
		t.Errorf("the YAML cannot be read: %v\n%s", err, doc)
	}
}

func checkReplay(t *testing.T, report *checks.Report) {
	t.Helper()
	doc, err := encodeJSON(report)
	if err != nil {
		t.Fatal(err)
	}
	var again checks.Report
	if err := json.Unmarshal(doc, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*report, again); diff != "" {
		t.Errorf("the report after encoding and decoding (-want +got):\n%s", diff)
	}
}

// FuzzHostileJournal checks the same of whatever a log holds, and that the page holds no markup but its own.
func FuzzHostileJournal(f *testing.F) {
	f.Add("payments/ledger-db-0", 0.5, int64(20000), int64(1795000000), 80)
	f.Add("<script>alert(1)</script>\" onload='x", 1e300, int64(-1), int64(0), 40)
	f.Add("\x1b]0;title\x07\x9b31m\u009b\u202e{{.}}", -3.0, int64(1)<<60, int64(-62135596800), 61)
	f.Add("/a'b.journal\n\xff", 179.99, int64(3)<<32, int64(253402300799), 120)
	f.Add(strings.Repeat("a", 300)+" "+strings.Repeat("検", 60), 0.0, int64(0), int64(1<<33), 200)
	f.Fuzz(func(t *testing.T, s string, v float64, n, unix int64, width int) {
		if v != v || v > 1e308 || v < -1e308 || width > 300 || unix < -62135596800+100000 ||
			unix > 253402300799-2000 || len(s) > 1000 {
			return
		}
		at := time.Unix(unix, 0).In(time.FixedZone("", int(n%14)*3600))
		r := filled[journal.Report](filling{s, v, n, at})
		later := at.Add(time.Duration(n % (1 << 40)))
		r.Events[0].Lane, r.Events[0].Marker, r.Events[0].Until = "kernel", "error", &later
		e := r.Episodes[0]
		e.Kind, e.End, e.Recovered = journal.Incident, &later, false
		ended, start, timeless := e, e, e
		ended.Recovered, start.Kind = true, journal.Startup
		timeless.Start, timeless.End, timeless.Anchor = nil, nil, nil
		r.Episodes = []journal.Episode{e, ended, start, timeless, e}
		if n&2 == 0 {
			r.Failing = nil
		}
		findings := slices.Clone(r.Findings)
		judge.Journal(r)
		r.Findings = findings[:n&1]
		checkPrinted(t, s, func(w io.Writer, o Options) error { return JournalReport(w, r, o, n&4 == 0) }, width)
		page := journalPage(t, r)
		checkHarmless(t, strings.ReplaceAll(page, glue, " "), false)
		if strings.Contains(page, "<script") {
			t.Error("the page holds a script")
		}
		if utf8.ValidString(s) && !strings.ContainsAny(s, ":=@<") { // else the string itself may look like it
			checkPage(t, page)
		}
	})
}

// TestLongStrings prints what is absurdly long: a report must not take longer than the measurement.
func TestLongStrings(t *testing.T) {
	for _, s := range []string{strings.Repeat("a", 100_000), strings.Repeat("検", 20_000)} {
		report := filled[checks.Report](filling{s: s, f: 1, n: 1})
		for _, f := range []Format{Text, Brief, YAML} {
			if err := Report(io.Discard, report, Options{Format: f}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
