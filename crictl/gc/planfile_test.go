package gc

import (
	"bytes"
	"strings"
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
	if err := WritePlan(&buf, somePlan(), here(), noon()); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestPlanFile(t *testing.T) {
	newer := here()
	newer.RuntimeVersion = "v2.2.0" // an upgrade of the runtime
	file, err := ReadPlan(strings.NewReader(planFile(t)), newer)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadPlan(strings.NewReader(planFile(t)), here())
	if diff := cmp.Diff(file, again); err != nil || diff != "" || len(file.Plan.Remove) != 2 ||
		file.Plan.Rules.MinAge != time.Minute {
		t.Errorf("%v, %+v\n%s", err, file, diff)
	}
	if err := WritePlan(&bytes.Buffer{}, Plan{}, Identity{}, noon()); err == nil {
		t.Error("a plan without an identity was written")
	}
}

func TestPlanFileRefused(t *testing.T) {
	change := func(f func(*Identity)) Identity { id := here(); f(&id); return id }
	text := planFile(t)
	for _, tt := range []struct {
		name, text string
		here       Identity
		want       string
	}{
		{"another node", text, change(func(i *Identity) { i.MachineID = "x" }), "made on another node"},
		{"another boot", text, change(func(i *Identity) { i.BootID = "x" }), "has booted since"},
		{"another endpoint", text, change(func(i *Identity) { i.Endpoint = "x" }), "made for another runtime"},
		{"another runtime", text, change(func(i *Identity) { i.RuntimeName = "cri-o" }), "made for another runtime"},
		{"no node", "", Identity{}, "not a plan file"},
		{"cut", text[:len(text)/2], here(), "not a plan file"},
		{"more behind", text + "{}", here(), "not a plan file"},
		{"no plan", "{}", here(), "not a plan file"},
		{"a list", "[]", here(), "not a plan file"},
	} {
		if _, err := ReadPlan(strings.NewReader(tt.text), tt.here); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(planFile(f)))
	f.Add([]byte(`{"apiVersion":"kdiag/v1","kind":"GCPlan","plan":{"remove":[{"id":"a"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ReadPlan(bytes.NewReader(text), here())
		if err != nil {
			return
		}
		// What is accepted can be written and read again, and whatever it lists, only what a plan made now has too is left.
		var buf bytes.Buffer
		if err := WritePlan(&buf, file.Plan, file.Made, file.CreatedAt); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPlan(&buf, here())
		if err != nil {
			t.Fatal(err)
		}
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
