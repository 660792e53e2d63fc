package fake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

func TestParseErrors(t *testing.T) {
	fault := func(text string) string { return "name: x\nfaults: [" + text + "]" }
	pods := func(text string) string { return "name: x\npods: [" + text + "]" }
	tests := []struct{ name, text, want string }{
		{"a file of passwords", "root:*:20228:0:99999:7::\n", "it is not a YAML document"},
		{"duration without a unit", "name: x\nlatency: [{rpc: '*', base: 5}]", `"5" is not a duration such as 250ms`},
		{
			"unknown code", fault("{rpc: '*', error: 'Broken: x'}"),
			`faults[0]: error: "Broken: x" does not begin with a gRPC code`,
		},
		{"extends nobody", "name: x\nextends: nobody", `extends: no built-in scenario is called "nobody"`},
		{"bad object pattern", fault("{rpc: '*', hang: true, object: {pod: '[a'}}"), `faults[0]: object: "[a" is not`},
		{
			"too many objects", pods("{name: a, count: 1000, containers: [{name: b, exited: 1000}]}"),
			"pods[0]: more than 1000000 sandboxes",
		},
	}
	for _, test := range tests {
		_, err := Parse([]byte(test.text))
		if got := fmt.Sprint(err); !strings.HasPrefix(got, "reading the scenario: "+test.want) ||
			strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("%s: %q does not begin with %q, or is not one line", test.name, got, test.want)
		}
	}
}

// FuzzParse reads any text: a scenario that is accepted reads the same after it was written, and errors have one line.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		text, _ := scenarioFiles.ReadFile("scenarios/" + name + ".yaml")
		f.Add(text)
	}
	f.Add([]byte(`{"name":"x","pods":[{"name":"a","count":3,"age":"5m"}]}`))
	f.Add([]byte("name: x\nfaults: [{rpc: '*', error: 'Unavailable: \"x\"'}]"))
	f.Add([]byte("name: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("name: !!binary aGk="))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		text := must(yaml.Marshal(s))(t)
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("reading it again: %v\n%s", err, text)
		}
		if diff := cmp.Diff(s, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("written and read again (-first +second):\n%s", diff)
		}
	})
}
