package gc

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func somePlan() Plan {
	w := newWorld().sandbox("s1", "web<&>", crictl.SandboxNotReady, 9*hour).sandbox("s2", "web<&>", crictl.SandboxReady,
		8*hour).
		container("a", "s2", "web<&>", "app", exited, 2*hour).container("b", "s2", "web<&>", "app", exited, hour)
	return Make(w.node, Rules{Keep: 1, MinAge: time.Minute, Labels: map[string]string{}}, noon())
}

func planFile(t testing.TB) string {
	t.Helper()
	var buf bytes.Buffer
	must(t, WritePlan(&buf, somePlan(), here(), noon()))
	return buf.String()
}

func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(planFile(f)))
	f.Add([]byte(`{"apiVersion":"kdiag/v1","kind":"GCPlan","plan":{"remove":[{"id":"a"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ReadPlan(bytes.NewReader(text), here())
		if err != nil {
			return
		}
		// What is accepted can be written and read again, and whatever it lists, only what a plan made now has too is
		// left.
		var buf bytes.Buffer
		must(t, WritePlan(&buf, file.Plan, file.Made, file.CreatedAt))
		again, err := ReadPlan(&buf, here())
		must(t, err)
		now := somePlan()
		narrow, _ := Narrow(file.Plan, now)
		if diff := cmp.Diff(file.Plan, again.Plan); diff != "" || len(narrow.Remove) > len(file.Plan.Remove) {
			t.Error(diff)
		}
		for _, c := range narrow.Remove {
			if c.ID != now.Remove[0].ID && c.ID != now.Remove[1].ID {
				t.Errorf("%s is not planned now", c.ID)
			}
		}
	})
}
