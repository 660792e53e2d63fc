package gc

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

// TestMake has cases worked out by hand. TestMakeAgainstNaive has all rules.
func TestMake(t *testing.T) {
	loop := func() *world {
		return newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
			container("c3", "s", "web", "app", exited, 3*hour).
			container("c5", "s", "web", "app", exited, 5*hour).
			container("c4", "s", "web", "app", exited, 4*hour).
			container("c1", "s", "web", "app", running, 1*hour)
	}
	initial := newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
		container("i1", "s", "web", "init-db", exited, 5*hour).
		container("i2", "s", "web", "init-db", exited, 4*hour).
		container("m", "s", "web", "my-init", running, 3*hour)
	dead := newWorld().sandbox("s1", "web", crictl.SandboxNotReady, 9*hour).
		sandbox("s2", "web", crictl.SandboxNotReady, 8*hour).
		container("c", "s1", "web", "app", exited, 8*hour).container("d", "s2", "web", "app", exited, 7*hour)
	unknown := loop()
	delete(unknown.node.Ends, "c4")
	for _, tt := range []struct {
		name   string
		world  *world
		rules  Rules
		remove []string
		kept   []Kept
	}{
		{"the newest exited stays, oldest first", loop(), Rules{}, []string{"c5", "c4"}, []Kept{{KeptNewest, 1}}},
		{
			"min age counts from the end", loop(),
			Rules{MinAge: 5*hour - 30*time.Second},
			[]string{},
			[]Kept{{KeptNewest, 1}, {KeptYoung, 2}},
		},
		{
			"beyond the limit no end is needed", unknown,
			Rules{Limit: 1},
			[]string{"c5"},
			[]Kept{{KeptNewest, 1}, {KeptLimit, 1}},
		},
		{"init only, by name", initial, Rules{}, []string{}, []Kept{{KeptNewest, 1}, {KeptStarting, 1}}},
		{
			"dead sandbox emptied by the plan", dead,
			Rules{},
			[]string{"c", "s1"},
			[]Kept{{KeptNewest, 1}, {KeptOccupied, 1}},
		},
	} {
		plan := Make(tt.world.node, tt.rules, noon())
		if diff := cmp.Diff(tt.remove, ids(plan)) + cmp.Diff(tt.kept, plan.KeptBy); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestNarrow(t *testing.T) {
	w := newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
		container("a", "s", "web", "app", exited, 4*hour).
		container("b", "s", "web", "app", exited, 3*hour).
		container("c", "s", "web", "app", exited, 2*hour)
	older := Make(w.node, Rules{}, noon())
	later := w.node
	later.Containers = slices.Clone(later.Containers[:2]) // c went away by other hands: b is the newest now
	got, skipped := Narrow(older, Make(later, Rules{}, noon()))
	if diff := cmp.Diff([]string{"a"}, ids(got)); diff != "" || older.Bytes != 2000 || got.Bytes != 1000 {
		t.Errorf("removes %d bytes of %d (-want +got):\n%s", got.Bytes, older.Bytes, diff)
	}
	if diff := cmp.Diff([]Skipped{{ID: "b", Why: notPlanned}}, skipped); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
	later.Containers[0].CreatedAt++ // another container of the same id
	if got, _ := Narrow(older, Make(later, Rules{}, noon())); len(got.Remove) != 0 {
		t.Errorf("removes %v", ids(got))
	}
}
