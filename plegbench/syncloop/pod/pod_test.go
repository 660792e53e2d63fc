package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestRestarts(t *testing.T) {
	never := new(v1.ContainerRestartPolicyNever)
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator) v1.Container {
		return v1.Container{RestartPolicy: never, RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}},
		}}}
	}
	for _, tt := range []struct {
		name string
		pod  v1.RestartPolicy
		c    v1.Container
		want [3]bool // after 0, 1 and 42
	}{
		{"not set", "", v1.Container{}, [3]bool{true, true, true}},
		{"always", v1.RestartPolicyAlways, v1.Container{}, [3]bool{true, true, true}},
		{"on failure", v1.RestartPolicyOnFailure, v1.Container{}, [3]bool{false, true, true}},
		{"never", v1.RestartPolicyNever, v1.Container{}, [3]bool{}},
		{"its own policy", v1.RestartPolicyNever, v1.Container{RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, [3]bool{true, true, true}},
		{"in", "", rule(v1.ContainerRestartRuleOnExitCodesOpIn), [3]bool{false, false, true}},
		{"not in", "", rule(v1.ContainerRestartRuleOnExitCodesOpNotIn), [3]bool{true, true, false}},
		{"its own never", v1.RestartPolicyAlways, v1.Container{RestartPolicy: never}, [3]bool{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
			if got := [3]bool{Restarts(p, &tt.c, 0), Restarts(p, &tt.c, 1), Restarts(p, &tt.c, 42)}; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "": "none", "A b": "2", "A(": "odd", "E": ""}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$(NO)": "$(NO)", "$$(A)": "$(A)", "$$$(A)": "$1", "$(E)": "",
		"$": "$", "$$": "$", "a$": "a$", "a$$b": "a$b", "$(A)$": "1$", "$(A": "$(A", "$A": "$A", "$()": "none", "$(A b)": "2", "$(A()": "odd",
		"$($(A))": "$($(A))", "$)": "$)", "$é(A)": "$é(A)",
	} {
		if got := Expand(text, values); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := ExpandAll([]string{"$(A)", "$(X)"}, values); !cmp.Equal(got, []string{"1", "$(X)"}) {
		t.Errorf("a command became %q", got)
	}
	if got := ExpandAll([]string{}, values); got != nil {
		t.Errorf("no command became %q", got)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{
		"", "$", "$$", "$(A)", "$$(A)", "$(B", "$(B)", "a$(A)b$(A)", "$()", "$(A", "$A", "$(($(A)", "$$$(A)", "$($(A))", "$\xff(A)",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain := Expand(text, nil)
		// A variable that is its own reference changes nothing but what is escaped.
		if got := Expand(text, map[string]string{"A": "$(A)"}); got != plain {
			t.Errorf("%q: %q with $(A)=$(A), %q without", text, got, plain)
		}
		if !strings.Contains(text, "$$") && plain != text {
			t.Errorf("%q became %q without a variable or an escape", text, plain)
		}
		if got := Expand(strings.ReplaceAll(text, "$", "$$"), map[string]string{"A": "1"}); got != text {
			t.Errorf("%q escaped and expanded is %q", text, got)
		}
	})
}
