package gc

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

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
