package render

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
)

// A filling is what is put into every field of a document, by the field's type.
type filling struct {
	s  string
	f  float64
	n  int64
	at time.Time
}

// fill fills every field that is exported, with two elements in every list.
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

// FuzzHostile checks the forms of every document, whatever a runtime answers or a log holds, and that a page holds no
// markup but its own.
func FuzzHostile(f *testing.F) {
	f.Add("payments/ledger-db-0", 0.5, int64(20000), int64(1795000000), 80)
	f.Add("\x1b]0;title\x07\x9b31m\u009b\u202e\u2066{{.}}", 1e300, int64(-1), int64(0), 40)
	f.Add("<script>alert(1)</script>\" onload='x", -3.0, int64(1)<<50, int64(-62135596800+100000), 61)
	f.Add(strings.Repeat("a", 300)+"\n"+strings.Repeat("検", 60), 0.0, int64(0), int64(1<<33), 61)
	f.Add("\xff\xfe\u00a0\u2028\U000e0041\ufe0f👩‍👩‍👧 e\u0301\u0301\u0301\u0301", 179.99, int64(3)<<32, int64(253402300799-100000), 120)
	f.Add(" ", 1.0, int64(1), int64(1), 80)
	f.Add("a: b\n- c\t# d\r\n---\n\u0085é 5 s", -3.0, int64(math.MaxInt>>23), int64(7), 100)
	f.Fuzz(func(t *testing.T, s string, v float64, n, unix int64, width int) {
		if v != v || v > 1e308 || v < -1e308 || n > math.MaxInt>>13 || n < math.MinInt>>13 || width > 300 ||
			unix < -62135596800+100000 || unix > 253402300799-100000 || len(s) > 1000 {
			return
		}
		at := time.Unix(unix, 0).In(time.FixedZone("", int(n%14)*3600))
		for name, p := range printers {
			switch name {
			case "causes", "advisory", "advisories", "version", "written", "captures", "settings":
				continue // nothing in it comes from a runtime or a log
			}
			doc := p.empty()
			filling{s, v, n, at}.fill(reflect.ValueOf(doc).Elem())
			switch doc := doc.(type) {
			case *checks.Report:
				doc.Status, doc.Causes[0].CausedBy = checks.Unhealthy, ""
				if utf8.ValidString(s) {
					checkReplay(t, doc)
				}
			case *checks.RelistBenchmark:
				doc.Causes = nil
			case *GCReport:
				doc.Problems = doc.Problems[:2*(n&1)]
			case *journal.Report:
				hostileJournal(doc, n)
				page := journalPage(t, doc)
				if strings.Contains(page, "<script") {
					t.Error("the page holds a script")
				}
				if utf8.ValidString(s) && !strings.ContainsAny(s, ":=@<") { // else the string itself may look like it
					checkPage(t, page)
				}
			}
			t.Run(name, func(t *testing.T) {
				d := document{doc: doc, printer: name, opts: Options{Details: n&1 == 1, More: "kdiag fleet --details"}}
				checkForms(t, d, []int{max(width, 0), max(width, 0) ^ 1}, s)
			})
		}
	})
}

// hostileJournal makes a filled report one of episodes of every kind.
func hostileJournal(r *journal.Report, n int64) {
	later := r.Events[0].At.Add(time.Duration(n % (1 << 40)))
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
}

func checkReplay(t *testing.T, report *checks.Report) {
	t.Helper()
	doc, err := encodeJSON(report)
	must(t, err)
	var again checks.Report
	must(t, json.Unmarshal(doc, &again))
	testkit.Equal(t, "the report after encoding and decoding", *report, again)
}
