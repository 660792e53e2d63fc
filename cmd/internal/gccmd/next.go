package gccmd

import (
	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

// defaultAudit is the audit file that is proposed where none was named.
const defaultAudit = "gc-audit.jsonl"

// narrowing are the flags that make a plan, beside those that name the runtime and where pods are found. A plan in a file
// has its own.
func narrowing() []string {
	return []string{"keep", "min-age", "older-than", "namespace", "pod", "label", "limit"}
}

// A nextStep writes the command lines that go on from an answer with the same flags.
type nextStep struct {
	plan  string // a removal of what a plan made now says
	apply string // the same of a plan in a file; its name is to follow
	look  string // kdiag pleg for the same runtime
	audit string
}

func newNext(cmd *cobra.Command, o *options) nextStep {
	same := append(append(target.RuntimeFlags(), target.SourceFlags()...), "timeout", "rpc-timeout", "rate", "logs", "logs-dir")
	return nextStep{
		plan:  target.CommandLine(cmd, "gc-exited", append(narrowing(), same...)...),
		apply: target.CommandLine(cmd, "gc-exited", same...) + " --apply ",
		look:  target.CommandLine(cmd, "pleg", target.RuntimeFlags()...),
		audit: o.audit,
	}
}

// remove is the command that removes what a plan shows. file is that of --plan or --apply, risky whether it was made with
// --ignore-pod-liveness.
func (n nextStep) remove(file string, risky bool) string {
	line, audit := n.plan, n.audit
	if file != "" {
		line = n.apply + target.Quote(file)
	} else if audit == "" {
		audit = defaultAudit
	}
	if risky {
		line += " --ignore-pod-liveness=" + livenessKnown
	}
	line += " --yes"
	if audit != "" {
		line += " --audit " + target.Quote(audit)
	}
	return line
}

// nextSteps says what to do with the answer.
func (s *session) nextSteps() []checks.NextStep {
	r, next := s.doc, &s.opts.next
	file, risky := s.opts.plan, s.opts.liveness != ""
	if s.older != nil {
		file, risky = s.opts.apply, s.older.Plan.Rules.IgnorePodLiveness
	}
	again := next.remove(file, risky)
	switch {
	case r.Down:
		return []checks.NextStep{judge.StepWhenSilent(next.look)}
	case len(r.Problems) > 0, r.DryRun && len(r.Plan.Remove) == 0:
		return nil
	case r.DryRun:
		return []checks.NextStep{{
			Why: "to remove this, looking at each again right before:", Command: again, Touches: checks.TouchesExited,
		}}
	}
	var steps []checks.NextStep
	if len(r.Stuck) > 0 {
		steps = append(steps, checks.NextStep{
			Why: "what the pods that do not answer wait for:", Command: next.look, Touches: checks.TouchesNothing,
		})
	}
	if len(r.Failed)+r.Left > 0 || r.Stopped != "" {
		steps = append(steps, checks.NextStep{
			Why: "for what is left, once that is mended (the runtime's log says why removals fail):", Command: again,
			Touches: checks.TouchesExited,
		})
	}
	return steps
}
