package judge

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// WhySilent is why a runtime gave no answer, in the words of the report on the node, by what a probe of its socket
// found and what became of the first call. It is for the commands that go no further then.
func WhySilent(r checks.Runtime, c crictl.Connect, call crictl.Call) string {
	m := &plegbench.Measurement{Connect: c, Probes: []crictl.Call{call}}
	f := &facts.Input{Runtime: r, Limits: checks.DefaultLimits(), Measurement: m}
	for _, cause := range Judge(f) {
		if slices.Contains([]string{causes.RuntimeDown, causes.RuntimeHung, causes.RuntimeUnsupported}, cause.Code) {
			return cause.Code + ": " + cause.Summary
		}
	}
	return "the runtime gave no answer: " + facts.CallLine(call)
}

// StepWhenSilent is what to do about that: the same runtime is diagnosed. command is kdiag pleg with its flags.
func StepWhenSilent(command string) checks.NextStep {
	return checks.NextStep{
		Why: "Find the cause: the daemon, a shim, CNI or a disk.", Command: command,
		Touches: checks.TouchesNothing,
	}
}
