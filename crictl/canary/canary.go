// Package canary creates, starts, stops and removes one pod sandbox with one container, and times each call.
//
// A running kubelet kills unknown sandboxes: every 2 s its housekeeping compares the ready sandboxes of the runtime
// with its pods, by the UID in their metadata, and stops the others (HandlePodCleanups in
// pkg/kubelet/kubelet_pods.go). No label prevents that. So a canary is quick, notices when another client stopped its
// sandbox, and then tries again: right after a round of housekeeping there are nearly two seconds until the next.
package canary

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// attempts is how often a canary is tried that another client stops. Each has nearly a whole housekeeping period.
const attempts = 3

// Options configure a canary.
type Options struct {
	Image   string   // name or id; empty picks one that is on the node, else the pause image
	Pull    bool     // pull Image when it is not on the node
	Command []string // to run instead of sleep; it should stay for some seconds
	CNI     bool     // with a network set up by CNI; else on the host's
	LogDir  string   // where the folder of its logs is made for the time being; empty keeps no logs

	RPCTimeout time.Duration // of one call, as the remote.Service has it; RunPodSandbox gets twice that
	Course     time.Duration // for all but the clean-up
	Cleanup    time.Duration // for the clean-up, which also runs after ctx has ended
	Progress   func(step string)
}

// A Result says how the steps of a canary ended, and which objects are left.
type Result struct {
	Version   crictl.Version // of the runtime; empty when it did not answer
	Image     string         // that was run
	Unfit     []Unfit        // chosen images that did not run before this one
	SandboxID string         // of the last attempt; empty when there is none
	Attempts  int            // 0 when the canary was not begun
	Steps     []Step         // of the last attempt
	Spoiled   Spoiled        // why the result is no evidence about the runtime; empty when it is
	CleanedUp bool           // nothing of it is left in the runtime
	Left      []string       // sandboxes that are left
	LogsLeft  string         // the folder of its logs, if it could not be removed
	Earlier   Earlier        // canaries of earlier runs
}

// A Step is one timed call.
type Step struct {
	Name    string // of the RPC
	Elapsed time.Duration
	Outcome Outcome
	Err     string // the runtime's error, unchanged, or the reason for a skipped step
}

// An Outcome is how a step ended.
type Outcome string

// The outcomes of steps.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // the runtime answered with an error
	Hung    Outcome = "hung"    // no answer within the deadline of the call
	Cut     Outcome = "cut"     // by the end of the command
	Skipped Outcome = "skipped" // not possible with this image
)

// Spoiled is the reason why a failed canary is no evidence about the runtime.
type Spoiled string

// The reasons.
const (
	ByOther   Spoiled = "other"    // another client, usually the kubelet, stopped or removed its sandbox
	ByImage   Spoiled = "image"    // the image cannot run the program
	NoImage   Spoiled = "no image" // the image, or any that would do, is not on the node
	Interrupt Spoiled = "interrupted"
)

// An Unfit image is one that did not run while another may.
type Unfit struct{ Name, Err string }

// Earlier are the canaries left by earlier runs that were killed.
type Earlier struct {
	Removed []string // sandboxes
	Failed  []string // sandboxes
	Err     string   // of the last that failed, or of looking for them
}

// Run runs a canary. It returns within Options.Course plus Options.Cleanup even if calls hang. When ctx ends, it stops
// and cleans up.
func Run(ctx context.Context, cri *remote.Service, opts Options) *Result {
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	within, cancel := context.WithTimeout(ctx, opts.Course)
	defer cancel()
	c := &canaryRun{cri: cri, opts: opts, res: &Result{CleanedUp: true}}
	if c.prepare(within) {
		before := len(c.res.Steps)
		for {
			c.res.Steps, c.res.Spoiled, c.unfit = c.res.Steps[:before], "", ""
			c.res.Attempts++
			c.live(within)
			c.cleanUp(context.WithoutCancel(ctx))
			again := c.res.Spoiled == ByOther && c.res.Attempts < attempts
			if !c.res.CleanedUp || within.Err() != nil || !again && !c.nextImage() {
				break
			}
		}
	}
	if ctx.Err() != nil {
		c.res.Spoiled = Interrupt
	}
	return c.res
}
