package judge

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
)

// none stands for no cause.
const none = "none"

// A ruling is what kdiag names first of one fault, beside what it is.
type ruling struct {
	fault, want, got string
	confidence       float64
}

// rulings returns those of the recorded cases, and of the real faults in testdata/truth.tsv: what the end-to-end tests
// wrote where KDIAG_TRUTH named a file, and what was tried by hand.
func rulings(t *testing.T) []ruling {
	t.Helper()
	var all []ruling
	cases := gallery()
	for _, dir := range slices.Sorted(maps.Keys(cases)) {
		report := NewReport(checks.Header{}, cases[dir])
		if report.Status == checks.Unknown {
			continue
		}
		r := ruling{fault: "recorded: " + filepath.Base(dir), want: none, got: none}
		if d, ok := causes.Lookup(strings.ReplaceAll(filepath.Base(dir), "_", "-")); ok {
			r.want = d.Code
		}
		if len(report.Causes) > 0 {
			r.got, r.confidence = report.Causes[0].Code, report.Causes[0].Confidence
		}
		all = append(all, r)
	}
	text, err := os.ReadFile("testdata/truth.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		column := strings.Split(strings.TrimSpace(line), "\t")
		if len(column) < 4 {
			t.Fatalf("truth.tsv: %q", line)
		}
		confidence, err := strconv.ParseFloat(column[3], 64)
		if err != nil {
			t.Fatalf("truth.tsv: %v", err)
		}
		fault := strings.TrimPrefix(column[0], "TestEndToEnd")
		all = append(all, ruling{"real: " + strings.ReplaceAll(fault, "_", " "), column[1], column[2], confidence})
	}
	return all
}

// TestTruth compares how often the first cause is right with its confidence. docs/truth.md has the table, and every
// wrong one by name.
func TestTruth(t *testing.T) {
	all := rulings(t)
	var doc, wrong bytes.Buffer
	fmt.Fprintf(&doc, "# How often the first cause is right\n\n"+
		"%d verdicts: the recorded cases of [checks/causes](../checks/causes) and [checks/judge](../checks/judge),\n"+
		"and real faults, each with kdiag node and most with kdiag pleg: those that the end-to-end tests make on a\n"+
		"containerd or on a whole node, and others that were made by hand on two versions of containerd. A verdict is\n"+
		"right when the first cause is the fault that was made, and when nothing is named on a healthy node. Most of\n"+
		"these faults were known when the program was written: on others it is right less often.\n\n"+
		"`go test ./checks/judge -run TestTruth -update` writes this page from testdata/truth.tsv there, to which\n"+
		"`KDIAG_TRUTH=FILE make e2e` writes the verdicts of the tests.\n\n"+
		"| confidence of the first cause | verdicts | right | goal |\n|---|---|---|---|\n", len(all))
	for _, band := range []struct {
		name      string
		low, high float64
		goal      float64 // share of the verdicts
	}{
		{"0.8 to 1", 0.8, 1.01, 0.95},
		{"0.5 to 0.8", 0.5, 0.8, 0.7},
		{"below 0.5", 0.001, 0.5, 0},
		{"nothing named", 0, 0.001, 0},
	} {
		n, right := 0, 0
		for _, r := range all {
			if r.confidence < band.low || r.confidence >= band.high {
				continue
			}
			n++
			if r.got == r.want {
				right++
				continue
			}
			fmt.Fprintf(&wrong, "- %s: %s (%.2f), it is %s\n", r.fault, r.got, r.confidence, r.want)
		}
		share := float64(right) / float64(max(n, 1))
		if n > 0 && share < band.goal {
			t.Errorf("with a confidence of %s, %d of %d are right", band.name, right, n)
		}
		goal := "-"
		if band.goal > 0 {
			goal = fmt.Sprintf("%.0f%%", 100*band.goal)
		}
		fmt.Fprintf(&doc, "| %s | %d | %d (%d%%) | %s |\n", band.name, n, right, int(100*share), goal)
	}
	if wrong.Len() == 0 {
		wrong.WriteString("None.\n")
	}
	fmt.Fprintf(&doc, "\n## Wrong\n\n%s", wrong.String())
	const file = "../../docs/truth.md"
	if *update {
		if err := os.WriteFile(file, doc.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	had, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(had), doc.String()); diff != "" {
		t.Errorf("docs/truth.md (-has +is; run with -update):\n%s", diff)
	}
}
