package fake

import (
	"cmp"
	"fmt"
	"slices"
)

// Parse reads a scenario from YAML or JSON, resolves Extends and checks the whole. It is strict: an unknown or
// repeated field is an error that names its line. Errors are one line each.
func Parse(data []byte) (Scenario, error) {
	s, err := parse(data, 0)
	if err != nil {
		return Scenario{}, fmt.Errorf("reading the scenario: %w", err)
	}
	return s, nil
}

// maxExtends bounds the chain of scenarios that extend each other.
const maxExtends = 4

func parse(data []byte, depth int) (Scenario, error) {
	var s Scenario
	if err := decodeStrict(data, &s); err != nil {
		return Scenario{}, err
	}
	if s.Extends != "" {
		if depth == maxExtends {
			return Scenario{}, fmt.Errorf("extends: more than %d scenarios extend each other", maxExtends)
		}
		text, ok := builtinText(s.Extends)
		if !ok {
			return Scenario{}, fmt.Errorf("extends: no built-in scenario is called %q", s.Extends)
		}
		base, err := parse(text, depth+1)
		if err != nil {
			return Scenario{}, fmt.Errorf("extends %s: %w", s.Extends, err)
		}
		s = extend(base, s)
	}
	if err := s.validate(); err != nil {
		return Scenario{}, err
	}
	return s, nil
}

// extend lays a scenario over the one that it extends.
func extend(base, s Scenario) Scenario {
	s.Extends = ""
	s.Streaming = s.Streaming || base.Streaming
	s.Latency = slices.Concat(s.Latency, base.Latency)
	s.Faults = slices.Concat(s.Faults, base.Faults)
	s.Pods = slices.Concat(base.Pods, s.Pods)
	s.Images = slices.Concat(base.Images, s.Images)
	if s.Runtime == (RuntimeInfo{}) {
		s.Runtime = base.Runtime
	}
	if s.Limits == (MessageLimits{}) {
		s.Limits = base.Limits
	}
	if s.Conditions == nil {
		s.Conditions = base.Conditions
	}
	if s.Socket == SocketListen {
		s.Socket = base.Socket
	}
	return s
}

// A Mischief is the part of a scenario that a proxy can play in front of any runtime: what is slow and what goes wrong.
type Mischief struct {
	Latency    []Latency   `json:"latency,omitempty"`    // first match wins
	Faults     []Fault     `json:"faults,omitempty"`     // first match in force wins
	Conditions []Condition `json:"conditions,omitempty"` // written over those that Status answers
}

// ParseMischief reads it from YAML or JSON, as strictly as Parse.
func ParseMischief(data []byte) (Mischief, error) {
	var m Mischief
	err := decodeStrict(data, &m)
	if err == nil {
		err = cmp.Or((&Scenario{Conditions: m.Conditions}).validateRuntime(), validateLatency(m.Latency),
			validateFaults(m.Faults))
	}
	if err != nil {
		return Mischief{}, fmt.Errorf("reading the faults: %w", err)
	}
	return m, nil
}
