package canarycmd

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
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench"
)

// cleanupShare is the part of the time that is kept for the clean-up: one call that hangs, and a second one.
const cleanupShare = 3

func run(ctx context.Context, env cli.Env, opts options) error {
	env = opts.Host(env)
	facts, err := take(ctx, env, &opts)
	if err != nil {
		return err
	}
	report := judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), *facts)
	if err := render.Canary(env.Out, report, document.Options(env, &opts.Flags)); err != nil {
		return err
	}
	return document.Exit(ctx, report.Status, opts.FailOn)
}

// take opens the runtime and runs the canary. The error is one of usage, or of kdiag itself.
func take(ctx context.Context, env cli.Env, opts *options) (*judge.CanaryFacts, error) {
	facts := &judge.CanaryFacts{CNI: opts.cni, Command: opts.command, Asked: opts.image, Again: opts.again}
	asking, rpc := opts.Budget()
	start := env.Now()
	t, err := connection.Open(ctx, env, &opts.Flags)
	if err != nil {
		facts.Preceding, err = connection.Problems(err, opts.Output)
		return facts, err
	}
	defer t.Close()
	facts.Runtime, facts.Kubelet = t.Runtime(), t.Kubelet
	facts.NoSystemd = errors.Is(host.FindSystemd(env.Root), host.ErrNoSystemd)
	log := cli.Log(env, opts.Verbose)
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
		return nil, fmt.Errorf("preparing a connection to %s: %w", t.Endpoint.URL, err)
	}
	defer func() { go cri.Close() }() // it would wait for a runtime that does not read
	progress := document.NewProgress(env)
	o := canary.Options{
		Image: opts.image, Pull: opts.pull, Command: opts.command, CNI: opts.cni,
		LogDir: os.TempDir(), RPCTimeout: rpc, Course: asking - cleanup, Cleanup: cleanup,
		Progress: func(step string) { progress.Update(plegbench.Progress{Phase: "waiting for the runtime: " + step}) },
	}
	if opts.HostRoot != "" {
		o.LogDir = "" // the runtime has another /tmp
	}
	facts.Result = canary.Run(ctx, cri, o)
	progress.Done()
	if facts.Result.Version == (crictl.Version{}) {
		facts.Connect, err = connection.Probe(ctx, env, t.Socket) // why, where that is not the runtime's doing
	}
	return facts, err
}
