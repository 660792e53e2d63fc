package exitedcmd

import (
	"testing"

	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/internal/testkit"
)

func TestDone(t *testing.T) {
	skipped := []gc.Skipped{{ID: "a", Why: "now running"}, {ID: "b", Why: "already gone"}}
	for _, tt := range []struct {
		name    string
		result  gc.Result
		planned int
		want    bool
	}{
		{"all removed", gc.Result{Removed: 2}, 2, true},
		{"nothing planned", gc.Result{}, 0, true},
		{"one changed meanwhile", gc.Result{Removed: 1, Skipped: skipped[:1]}, 2, true},
		{"all changed meanwhile", gc.Result{Skipped: skipped}, 2, false},
		{"one failed", gc.Result{Removed: 1, Failed: []gc.Failed{{ID: "c"}}}, 2, false},
		{"one log left", gc.Result{Removed: 2, LogsLeft: []gc.Failed{{ID: "a"}}}, 2, false},
		{"one left", gc.Result{Removed: 1, Left: 1}, 2, false},
	} {
		testkit.Equal(t, tt.name, tt.want, done(tt.result, tt.planned))
	}
}
