package gc

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func somePlan() Plan {
	w := newWorld().sandbox("s1", "web<&>", crictl.SandboxNotReady, 9*hour).sandbox("s2", "web<&>", crictl.SandboxReady, 8*hour).
		container("a", "s2", "web<&>", "app", exited, 2*hour).container("b", "s2", "web<&>", "app", exited, hour)
	return Make(w.node, Rules{Keep: 1, MinAge: time.Minute, Labels: map[string]string{}}, noon())
}

func sealed(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	plan := somePlan()
	plan.Remove = append(plan.Remove, Victim{Kind: KindContainer, ID: "x", PodUID: "u", Container: "c", CreatedAt: noon()})
	if err := WritePlan(&buf, plan, here(), noon()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestPlanFile(t *testing.T) {
	text := sealed(t)
	file, err := ReadPlan(bytes.NewReader(text), here())
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Plan.Remove) != 3 || file.Plan.Rules.MinAge != time.Minute || !file.CreatedAt.Equal(noon()) {
		t.Errorf("read back: %+v", file)
	}
	var flat bytes.Buffer
	if err := json.Compact(&flat, text); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(&flat, here()); err != nil {
		t.Errorf("without white space: %v", err)
	}
	newer := here()
	newer.RuntimeVersion = "v2.2.0"
	if _, err := ReadPlan(bytes.NewReader(text), newer); err != nil {
		t.Errorf("after an upgrade of the runtime: %v", err)
	}
	if err := WritePlan(&flat, Plan{}, Identity{}, noon()); err == nil {
		t.Error("a plan without an identity was written")
	}
}

func TestPlanFileRefused(t *testing.T) {
	change := func(f func(*Identity)) Identity { id := here(); f(&id); return id }
	text := string(sealed(t))
	tests := []struct {
		name, text string
		here       Identity
		want       error
	}{
		{"an id edited", strings.Replace(text, `"id": "x"`, `"id": "y"`, 1), here(), &EditedError{}},
		{"a victim's twin key", strings.Replace(text, `"id": "x"`, `"id": "x", "id": "y"`, 1), here(), &EditedError{}},
		{"the digest edited", strings.Replace(text, `"sha256:`, `"sha256:0`, 1), here(), &EditedError{}},
		{"another node", text, change(func(i *Identity) { i.MachineID = "x" }), &NodeError{}},
		{"another boot", text, change(func(i *Identity) { i.BootID = "x" }), &BootError{}},
		{"another endpoint", text, change(func(i *Identity) { i.Endpoint = "x" }), &EndpointError{}},
		{"another runtime", text, change(func(i *Identity) { i.RuntimeName = "cri-o" }), &EndpointError{}},
		{"cut", text[:len(text)/2], here(), nil},
		{"more behind", text + "{}", here(), nil},
		{"empty", "", here(), nil},
		{"no plan", "{}", here(), nil},
		{"a list", "[]", here(), nil},
	}
	texts := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadPlan(strings.NewReader(tt.text), tt.here)
			if err == nil {
				t.Fatal("taken")
			}
			if tt.want != nil && reflect.TypeOf(err) != reflect.TypeOf(tt.want) {
				t.Errorf("%T: %v", err, err)
			}
			if tt.want != nil && texts[err.Error()] {
				t.Errorf("the same text as another: %v", err)
			}
			texts[err.Error()] = true
		})
	}
}

func TestPlanFileVictims(t *testing.T) {
	for name, v := range map[string]Victim{
		"no id":             {Kind: KindContainer, PodUID: "u", Container: "c", CreatedAt: noon()},
		"no uid":            {Kind: KindContainer, ID: "x", Container: "c", CreatedAt: noon()},
		"no container name": {Kind: KindContainer, ID: "x", PodUID: "u", CreatedAt: noon()},
		"unknown kind":      {Kind: "Image", ID: "x", PodUID: "u", CreatedAt: noon()},
		"no creation":       {Kind: KindSandbox, ID: "x", PodUID: "u"},
	} {
		var buf bytes.Buffer
		if err := WritePlan(&buf, Plan{Remove: []Victim{v}}, here(), noon()); err != nil {
			t.Fatal(err)
		}
		_, err := ReadPlan(&buf, here())
		if edited := (*EditedError)(nil); !errors.As(err, &edited) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add(sealed(f))
	f.Add([]byte(`{"digest":"sha256:","content":{}}`))
	f.Add([]byte(`{"digest":"x","content":{"plan":{"remove":[{"id":"a"}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ReadPlan(bytes.NewReader(text), here())
		if err != nil {
			return
		}
		// What is taken can be written and read again.
		var buf bytes.Buffer
		if err := WritePlan(&buf, file.Plan, file.Made, file.CreatedAt); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPlan(&buf, here())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(file.Plan, again.Plan); diff != "" {
			t.Error(diff)
		}
	})
}
