package canarycmd

import (
	"context"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

func run(ctx context.Context, env cli.Env, opts options) error {
	env = opts.Host(env)
	facts := judge.CanaryFacts{CNI: opts.cni, Command: opts.command, Asked: opts.image, Again: opts.again}
	if err := diagnosis.TakeCanary(ctx, env, &opts.Flags, &facts, opts.pull); err != nil {
		return err
	}
	report := judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), facts)
	if err := render.Canary(env.Out, report, document.Options(env, &opts.Flags)); err != nil {
		return err
	}
	return document.Exit(ctx, report.Status, opts.FailOn)
}
