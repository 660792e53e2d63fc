package reproduce

import (
	_ "embed"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl/fake"
)

// A Scenario is an incident as data. All its times are at a kubelet's own pace; a run shortens them with the
// kubelet's periods.
type Scenario struct {
	Name    string `json:"name"`
	Summary string `json:"summary"` // one line: what goes wrong
	Cause   string `json:"-"`       // cause code of kdiag pleg; empty for healthy

	// What goes wrong, at the proxy between the syncLoop and the runtime.
	Faults     []fake.Fault     `json:"faults"`
	Latency    []fake.Latency   `json:"latency"`
	Conditions []fake.Condition `json:"conditions"` // that Status answers instead of the runtime's own
	Down       bool             `json:"down"`       // the socket refuses connections

	Steps []Step        `json:"steps"` // what happens besides, counted from the fault
	Hold  fake.Duration `json:"hold"`  // how long the fault stays
	Times int           `json:"times"` // how often the fault comes; 0 means once
	Pause fake.Duration `json:"pause"` // between the times

	NotReady string `json:"notReady"` // part of the Ready condition's message; empty if the node must stay Ready
	Why      string `json:"why"`      // why the node turns NotReady, or does not
	Look     string `json:"look"`     // what to look at while the fault is in force
	MinPods  int    `json:"minPods"`  // fewer do not show it; 0 means 2
}

// A Step is something that happens to the pods. It is done at the runtime itself, past the proxy: containers die
// whether or not anything works.
type Step struct {
	At  fake.Duration `json:"at"` // after the fault
	Do  Action        `json:"do"`
	Pod int           `json:"pod"` // for Die: its number
}

// An Action is what a Step does.
type Action string

// The actions.
const (
	Die    Action = "die"     // the pod's container is killed
	DieAll Action = "die-all" // every pod's
	Add    Action = "add"     // one more pod is wanted
	Flood  Action = "flood"   // many containers of a pod exit
)

//go:embed scenarios.yaml
var scenarios []byte

// Names lists the scenarios in the order in which they are shown to a person.
func Names() []string { return fake.Names() }

// Find returns the scenario of that name, and whether there is one. The caller owns the result.
func Find(name string) (Scenario, bool) {
	var all []Scenario
	if err := yaml.UnmarshalStrict(scenarios, &all); err != nil {
		panic(fmt.Sprintf("scenarios.yaml: %v", err)) // a mistake in the file, which the tests read
	}
	shown, known := fake.Builtin(name)
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 || !known {
		return Scenario{}, false
	}
	all[i].Cause = shown.Cause
	return all[i], true
}

// faster returns faults and latencies with their times shortened by a factor.
func faster(faults []fake.Fault, latency []fake.Latency, factor float64) ([]fake.Fault, []fake.Latency) {
	scale := func(times ...*fake.Duration) {
		for _, d := range times {
			*d = fake.Duration(float64(*d) / factor)
		}
	}
	faults, latency = slices.Clone(faults), slices.Clone(latency)
	for i := range faults {
		scale(&faults[i].Delay, &faults[i].From, &faults[i].Until, &faults[i].Every, &faults[i].For)
	}
	for i := range latency {
		scale(&latency[i].Base, &latency[i].PerItem, &latency[i].Jitter)
	}
	return faults, latency
}
