//go:build !linux

package app

import (
	"context"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// workerArgument is given to no process.
const workerArgument = "kdiag-run"

func supervise([]string) (code int, ok bool) { return 0, false }

func work(context.Context, cli.Env, []string) int { return cli.ExitUnknown }
