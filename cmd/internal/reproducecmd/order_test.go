package reproducecmd_test

import (
	"slices"
	"testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// wantsOrder checks that these events are in the report, in this order, with others between them.
func wantsOrder(t *testing.T, events []reproduce.Event, want ...reproduce.What) {
	t.Helper()
	for _, what := range want {
		i := slices.IndexFunc(events, func(e reproduce.Event) bool { return e.What == what })
		if i < 0 {
			t.Errorf("no %s in its place; of %v, these are left: %+v", what, want, events)
			return
		}
		events = events[i+1:]
	}
}
