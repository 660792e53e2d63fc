package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
)

func fleetText(t *testing.T, r *checks.FleetReport, o Options) string {
	t.Helper()
	var b strings.Builder
	must(t, Fleet(&b, r, o))
	return b.String()
}

func savedFleet(t *testing.T) *checks.FleetReport {
	t.Helper()
	r := new(checks.FleetReport)
	load(t, "testdata/fleet.json", r)
	return r
}

// TestFleetTables checks the formats that are for other programs.
func TestFleetTables(t *testing.T) {
	r := savedFleet(t)
	r.Nodes[0].Name, r.Nodes[1].Zone = "\x1b[31mred", "\u202ezone"
	for format, want := range map[Format]int{Wide: len(r.Nodes), Name: 9} {
		text := fleetText(t, r, Options{Format: format, Width: 40, Bare: true})
		checkHarmless(t, text, false)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) != want || !strings.Contains(lines[0], `\x1b[31mred`) {
			t.Errorf("%s has %d lines, want %d:\n%s", format, len(lines), want, text)
		}
		for _, line := range lines {
			if n := len(strings.Fields(line)); n < 15 && format == Wide {
				t.Errorf("%d fields, want 15 or more: %s", n, line)
			}
		}
	}
	r.Nodes = slices.DeleteFunc(r.Nodes, func(n checks.FleetNode) bool { return n.Cause != "" })
	if text := fleetText(t, r, Options{Format: Name}); text != "" {
		t.Errorf("names of no node: %q", text)
	}
}

// TestFleetHeadline has the sentence of each kind of fleet.
func TestFleetHeadline(t *testing.T) {
	groups := func(n int) (all []checks.FleetGroup) {
		for i := range n {
			all = append(all, checks.FleetGroup{Cause: fmt.Sprint("Cause", i), Nodes: []string{"n"}})
		}
		return all
	}
	cordoned := []checks.FleetNode{{Name: "n", Ready: "True", Unschedulable: true}}
	warning := []checks.Result{{ID: "x", Status: checks.StatusOK}, {ID: "y", Status: checks.StatusWarning, Summary: "z"}}
	for _, tt := range []struct {
		r    checks.FleetReport
		want string
	}{
		{
			checks.FleetReport{Counts: checks.FleetCounts{Nodes: 5000, NotReady: 6}, Groups: groups(6)},
			"6 of 5,000 nodes not ready: 1 Cause0, 1 Cause1, 1 Cause2, 1 Cause3, 2 other causes",
		},
		{
			checks.FleetReport{Counts: checks.FleetCounts{Nodes: 9, Silent: 1, Problems: 1}, Groups: groups(2)},
			"1 of 9 nodes not ready, 1 ready but sick: 1 Cause0, 1 Cause1",
		},
		{
			checks.FleetReport{Counts: checks.FleetCounts{Nodes: 9, Problems: 1}, Groups: groups(1)},
			"1 of 9 nodes ready but sick: 1 Cause0",
		},
		{
			checks.FleetReport{Counts: checks.FleetCounts{Nodes: 1, Diagnosed: 1}, Nodes: cordoned, Checks: warning},
			"1 node, all ready; kdiag agent on 1 finds nothing critical; 1 cordoned; y: z",
		},
		{
			checks.FleetReport{Header: checks.Header{Status: checks.Unknown, Problems: []string{"no such nodes"}}},
			"no such nodes",
		},
	} {
		if got := (cleaner{}).fleet(&tt.r); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}
