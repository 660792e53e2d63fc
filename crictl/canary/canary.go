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

const (
	// attempts is how often a canary is tried that another client stops. Each has nearly a whole housekeeping period.
	attempts = 3
	// maxImages is how many images are tried when kdiag is to choose: one with a shell, a pause image, and another.
	maxImages = 3
)

// Options configure a canary.
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

// A Result is the outcome of a canary.
type Result struct {
	Version   crictl.Version // of the runtime; empty when it did not answer
	Image     string         // that was run
	Unfit     []Unfit        // images that kdiag chose before and that did not run
	SandboxID string         // of the last attempt; empty when none came to be
	Attempts  int            // 0 when nothing was made
	Steps     []Step         // of the last attempt
	Spoiled   Spoiled        // why the result is no evidence about the runtime; empty when it is
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

// Spoiled is why a failed canary is no evidence about the runtime.
type Spoiled string

// What spoils a canary.
const (
	ByOther   Spoiled = "other"    // another client, usually the kubelet, stopped or removed its sandbox
	ByImage   Spoiled = "image"    // the image cannot run the program
	NoImage   Spoiled = "no image" // there is none to run
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

// Run runs a canary. It returns within Options.Course plus Options.Cleanup, whatever hangs. When ctx ends, it stops
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
			c.res.Steps, c.res.Spoiled = c.res.Steps[:before], ""
			c.res.Attempts++
			c.unfit = ""
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
