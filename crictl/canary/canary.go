// Package canary runs one new pod sandbox and one container in it through their whole life, times each call, and
// removes them again.
//
// A running kubelet kills what it does not know: each 2 s its housekeeping compares the ready sandboxes of the runtime with
// its pods, by the UID in their metadata, and stops the others (HandlePodCleanups in pkg/kubelet/kubelet_pods.go). No label
// keeps it from that, so a canary is made to be quick, notices when its sandbox was stopped by somebody else, and then
// tries once more: right after a round of housekeeping there are nearly two seconds to the next.
package canary

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// attempts is how often a canary is tried that somebody else stops. Each has nearly the whole of a housekeeping period.
const attempts = 3

// Options say how a canary is to be.
type Options struct {
	Image   string   // to run, by a name or id; empty picks one that is on the node
	Pull    bool     // pull Image when it is not on the node
	Command []string // to run instead of sleep; it should stay for some seconds
	CNI     bool     // a network of its own, set up by CNI; else the host's
	LogDir  string   // where the folder of its logs is made for the time being; empty keeps no logs

	RPCTimeout time.Duration // of one call, as the remote.Service has it; RunPodSandbox gets twice that
	Course     time.Duration // for all but the clean-up
	Cleanup    time.Duration // for the clean-up, which also runs after ctx has ended
	Progress   func(step string)
}

// A Result is what became of a canary.
type Result struct {
	Version   crictl.Version // of the runtime; empty when it did not answer
	Image     string         // that was run
	SandboxID string         // of the last attempt; empty when none came to be
	Attempts  int            // 0 when nothing was made
	Steps     []Step         // of the last attempt
	Spoiled   Spoiled        // why the canary says little about the runtime; empty when it does
	CleanedUp bool           // nothing of it is left in the runtime
	Left      []string       // sandboxes that are left
	LogsLeft  string         // the folder of its logs, when it could not be removed
	Earlier   Earlier        // canaries that earlier runs left
}

// A Step is one timed call.
type Step struct {
	Name    string // of the RPC
	Elapsed time.Duration
	Outcome Outcome
	Err     string // what the runtime said, or why the step was skipped; as it came
}

// An Outcome is how a step ended.
type Outcome string

// The outcomes of steps.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // the runtime answered with an error
	Hung    Outcome = "hung"    // no answer within the deadline of the call
	Cut     Outcome = "cut"     // the whole command came to its end, or was interrupted
	Skipped Outcome = "skipped" // not possible with this image
)

// Spoiled says why a canary that failed tells nothing of the runtime.
type Spoiled string

// What spoils a canary.
const (
	ByOther   Spoiled = "other"    // something else stopped or removed its sandbox: usually the kubelet
	ByImage   Spoiled = "image"    // the image has not the program that was to run
	NoImage   Spoiled = "no image" // there is none to run
	Interrupt Spoiled = "interrupted"
)

// Earlier says what became of the canaries that earlier runs left, because they were killed.
type Earlier struct {
	Removed []string // sandboxes
	Failed  []string // sandboxes
	Err     string   // of the last that failed, or of looking for them
}

// Run runs a canary. It ends within the time of the course and that of the clean-up, whatever hangs. When ctx ends, it
// ends the course and cleans up.
func Run(ctx context.Context, cri *remote.Service, opts Options) *Result {
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	within, cancel := context.WithTimeout(ctx, opts.Course)
	defer cancel()
	c := &course{cri: cri, opts: opts, res: &Result{CleanedUp: true}}
	if c.prepare(within) {
		before := len(c.res.Steps)
		for range attempts {
			c.res.Steps, c.res.Spoiled = c.res.Steps[:before], ""
			c.res.Attempts++
			c.live(within)
			c.cleanUp(context.WithoutCancel(ctx))
			if c.res.Spoiled != ByOther || !c.res.CleanedUp || within.Err() != nil {
				break
			}
		}
	}
	if ctx.Err() != nil {
		c.res.Spoiled = Interrupt
	}
	return c.res
}
