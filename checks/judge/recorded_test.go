package judge

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

var update = flag.Bool("update", false, "rewrite the recorded reports")

// gallery returns the recorded cases by folder, each read anew: one for each cause, beside its page, and those of this
// package that show none.
func gallery() map[string]*facts.Input {
	all := map[string]*facts.Input{}
	for _, pattern := range []string{"../causes/testdata/*", "testdata/*"} {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			panic(err)
		}
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a field that was renamed must not be lost
	var in facts.Input
	if err := decoder.Decode(&in); err != nil {
		panic(folder + ": " + err.Error())
	}
	return &in
}

// TestRecordedCases judges each recorded case and compares the report with the recorded one.
func TestRecordedCases(t *testing.T) {
	for dir, in := range gallery() {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got := encode(t, NewReport(checks.Header{Host: "node-7", KdiagVersion: "test"}, in))
			file := filepath.Join(dir, "report.json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEveryCauseIsRecorded checks that each cause has a case in the folder that is named as its page, a whole page,
// checks for its claims, and causes for its relations.
func TestEveryCauseIsRecorded(t *testing.T) {
	byName := map[string]*facts.Input{}
	for folder, in := range gallery() {
		if strings.HasPrefix(folder, "../causes") {
			byName[strings.ReplaceAll(filepath.Base(folder), "_", "")] = in
		}
	}
	var ids []string
	for _, r := range readChecks(facts.New(nil)) {
		ids = append(ids, r.ID)
	}
	for _, d := range causes.All() {
		if in := byName[strings.ToLower(d.Code)]; in == nil || index(Judge(in), d.Code) < 0 {
			t.Errorf("checks/causes/testdata holds no case that shows %s", d.Code)
		}
		for _, id := range d.Claims {
			if !slices.Contains(ids, id) {
				t.Errorf("%s claims %s, which is no check", d.Code, id)
			}
		}
		if doc, ok := causes.Doc(d.Code); !ok || doc.Title == "" || doc.Means == "" || len(doc.Confirm) == 0 ||
			len(doc.Fix) == 0 || doc.Mistaken == "" || len(doc.Sources) == 0 {
			t.Errorf("the page of %s is not whole: %+v", d.Code, doc)
		}
		for _, r := range slices.Concat(d.Roots, d.Hidden) {
			if _, ok := causes.Lookup(r.Code); !ok {
				t.Errorf("%s has a relation with %s, which is no cause", d.Code, r.Code)
			}
		}
	}
}
