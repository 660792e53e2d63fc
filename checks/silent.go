package checks

import (
	"slices"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// WhySilent says why a runtime gave no answer, in the words of the report on the node, by what a knock at its socket found and what
// became of the first call. It is for the commands that go no further then.
func WhySilent(r Runtime, c crictl.Connect, call crictl.Call) string {
	m := &plegbench.Measurement{Connect: c, Probes: []crictl.Call{call}}
	f := &Facts{Runtime: r, Limits: DefaultLimits(), Measurement: m}
	for _, cause := range Judge(f) {
		if slices.Contains([]string{codeRuntimeDown, codeRuntimeHung, codeRuntimeUnsupported}, cause.Code) {
			return cause.Code + ": " + cause.Summary
		}
	}
	return "the runtime gave no answer: " + callLine(call)
}

// StepWhenSilent is what to do about that: the same runtime is diagnosed. command is kdiag pleg with its flags.
func StepWhenSilent(command string) NextStep {
	return NextStep{Why: "Who is to blame: the daemon, a shim, CNI or a disk?", Command: command, Touches: TouchesNothing}
}
