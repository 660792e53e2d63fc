package fake

import (
	"embed"
	"fmt"
)

//go:embed scenarios/*.yaml
var scenarioFiles embed.FS

// Names lists the built-in scenarios in the order in which they are shown to a person. It parses none of them.
func Names() []string {
	return []string{
		"healthy", "runtime-down", "runtime-hung", "runtime-slow", "runtime-not-ready", "network-not-ready", "cni-hung",
		"list-hang", "inspect-hang", "sandbox-hang", "image-service-hung", "exited-flood", "list-too-large",
		"relist-overloaded", "flapping",
	}
}

// Builtins returns the scenarios that kdiag brings along, in the order in which they are listed to a person. The caller
// owns the result.
func Builtins() []Scenario {
	var all []Scenario
	for _, name := range Names() {
		s, _ := Builtin(name)
		all = append(all, s)
	}
	return all
}

// Builtin returns the built-in scenario of that name, and whether there is one. The caller owns the result. An embedded
// scenario that does not parse is a mistake in this program, and a panic.
func Builtin(name string) (Scenario, bool) {
	text, err := scenarioFiles.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return Scenario{}, false
	}
	s, err := Parse(text)
	if err != nil {
		panic(fmt.Sprintf("fake: embedded scenario %s: %v", name, err))
	}
	return s, true
}
