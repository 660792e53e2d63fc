package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench"
)

// cleanupShare is the part of the time that is kept for the clean-up: one call that hangs, and a second one.
const cleanupShare = 3

// TakeCanary opens the runtime and runs the canary that facts ask for; pull allows to pull its image. It completes the
// facts. The error is one of usage, or of kdiag itself.
func TakeCanary(ctx context.Context, env cli.Env, f *cli.Flags, facts *judge.CanaryFacts, pull bool) error {
	asking, rpc := f.Budget()
	start := env.Now()
	t, err := connection.Open(ctx, env, f)
	if err != nil {
		facts.Preceding, err = connection.Problems(err, f.Output)
		return err
	}
	defer t.Close()
	facts.Runtime, facts.Kubelet = t.Runtime(), t.Kubelet
	facts.NoSystemd = errors.Is(host.FindSystemd(env.Root), host.ErrNoSystemd)
	log := cli.Log(env, f.Verbose)
	asking -= env.Now().Sub(start) + connection.ProbeTimeout
	cleanup := max(asking, 0) / cleanupShare
	rpc = min(rpc, cleanup/2)
	cri, err := remote.Dial(t.Socket, remote.Options{
		Timeout: rpc, Dialer: env.Sockets.Dial,
		Observe: func(operation string, took time.Duration, err error) {
			log.Debug("call", "operation", operation, "took", took, "err", err)
		},
	})
	if err != nil {
		return fmt.Errorf("preparing a connection to %s: %w", t.Endpoint.URL, err)
	}
	defer func() { go cri.Close() }() // it would wait for a runtime that does not read
	progress := document.NewProgress(env)
	o := canary.Options{
		Image: facts.Asked, Pull: pull, Command: facts.Command, CNI: facts.CNI,
		LogDir: os.TempDir(), RPCTimeout: rpc, Course: asking - cleanup, Cleanup: cleanup,
		Progress: func(step string) { progress.Update(plegbench.Progress{Phase: "waiting for the runtime: " + step}) },
	}
	if f.HostRoot != "" {
		o.LogDir = "" // the runtime has another /tmp
	}
	facts.Result = canary.Run(ctx, cri, o)
	progress.Done()
	if facts.Result.Version == (crictl.Version{}) {
		facts.Connect, err = connection.Probe(ctx, env, t.Socket) // why, where that is not the runtime's doing
	}
	return err
}

// leastCanary is the shortest time in which a canary can be run and removed.
const leastCanary = 6 * time.Second

// tryCanary runs a canary with a pod network in the time that a command has left, and one on the host's network where
// the first shows nothing. It is nil where there is no time.
func tryCanary(ctx context.Context, env cli.Env, f *cli.Flags, began time.Time) (r *checks.CanaryReport, err error) {
	for _, cni := range []bool{true, false} {
		left := *f
		if left.Timeout -= env.Now().Sub(began); left.Timeout < leastCanary {
			return r, nil
		}
		facts := judge.CanaryFacts{CNI: cni, Again: "kdiag canary"}
		if err := TakeCanary(ctx, env, &left, &facts, false); err != nil {
			return nil, err
		}
		r = judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), facts)
		if r.Status != checks.Unknown {
			break
		}
	}
	return r, nil
}
