package fake

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Parse reads a scenario from YAML or JSON, resolves Extends and checks the whole. It is strict: an unknown or
// repeated field is an error that names its line. Errors are one line each.
func Parse(data []byte) (s Scenario, err error) {
	defer func() {
		if err != nil {
			s, err = Scenario{}, fmt.Errorf("reading the scenario: %w", err)
		}
	}()
	if err := decodeStrict(data, &s); err != nil {
		return s, err
	}
	if s.Extends != "" {
		base, ok := Builtin(s.Extends)
		if !ok {
			return s, fmt.Errorf("extends: no built-in scenario is called %q", s.Extends)
		}
		s = extend(base, s)
	}
	return s, s.validate()
}

// ParseFault reads one fault of a scenario, as YAML or JSON in one line. The outer braces may be left out.
//
//	rpc: ContainerStatus, hang: true, object: {pod: web-*}, from: 10s, until: 1m
func ParseFault(text string) (f Fault, err error) {
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, "{") {
		text = "{" + text + "}"
	}
	if err := decodeStrict([]byte(text), &f); err != nil {
		return f, err
	}
	return f, f.validate()
}

// extend lays a scenario over the one that it extends.
func extend(base, s Scenario) Scenario {
	s.Extends = ""
	s.Streaming = s.Streaming || base.Streaming
	s.Latency = slices.Concat(s.Latency, base.Latency)
	s.Faults = slices.Concat(s.Faults, base.Faults)
	s.Exits = slices.Concat(s.Exits, base.Exits)
	s.Pods = slices.Concat(base.Pods, s.Pods)
	s.Images = slices.Concat(base.Images, s.Images)
	s.Runtime = cmp.Or(s.Runtime, base.Runtime)
	s.Limits = cmp.Or(s.Limits, base.Limits)
	s.Socket = cmp.Or(s.Socket, base.Socket)
	if s.Conditions == nil {
		s.Conditions = base.Conditions
	}
	return s
}
