package gccmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// How long a write may go on when the command's time is up, or when it was interrupted: what was removed is to be
// recorded then too.
const (
	afterDeadline  = cli.Margin * 2 / 3
	afterInterrupt = 2 * time.Second
)

// disk does what may hang on a dead disk, and gives it up soon after ctx has ended.
func disk[T any](ctx context.Context, flag string, do func() (T, error)) (T, error) {
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		patience := afterInterrupt
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			patience = afterDeadline
		}
		time.AfterFunc(patience, cancel)
	})()
	type answer struct {
		value T
		err   error
	}
	a, late := cli.Await(waiting, func(context.Context) answer {
		v, err := do()
		return answer{v, err}
	})
	if late != nil {
		return a.value, &cli.HintError{
			Err: fmt.Errorf("the disk of %s does not answer", flag), Code: cli.ExitUnknown, Hint: "name a file on another disk",
		}
	}
	return a.value, a.err
}

// destination prepares the file of --plan.
func (s *session) destination(ctx context.Context) (*cli.Destination, error) {
	return disk(ctx, "--plan", func() (*cli.Destination, error) {
		d, err := cli.OpenDestination("--plan", s.opts.plan)
		if err == nil && ctx.Err() != nil {
			d.Close() // nobody waits for it any more
			return nil, ctx.Err()
		}
		return d, err
	})
}
