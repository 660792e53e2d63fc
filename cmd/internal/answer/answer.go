// Package answer is what the diagnosing commands have in common around their own work: asking with progress shown,
// saying what kept kdiag from looking, how to print, and the exit code.
package answer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// Render returns how to print to standard output.
func Render(env cli.Env, f *cli.Flags) render.Options {
	return render.Options{
		Format: render.Format(f.Output), Color: env.Color(f.Color), Width: env.Width, ASCII: env.ASCII(),
		GeneratedAt: env.Now().UTC().Truncate(time.Second),
	}
}

// Ask gathers the facts with progress on standard error, and says what kept kdiag from looking. The error is one of
// usage, or of kdiag itself.
func Ask(
	ctx context.Context, env cli.Env, f *cli.Flags, opts plegbench.Options, limits checks.Limits, looks target.Looks,
) (*facts.Input, []string, error) {
	progress := render.NewProgress(env.Err, env.ErrTTY, env.Width)
	progress.ASCII = env.ASCII()
	opts.Progress = progress.Update
	facts, err := target.Gather(ctx, env, f, opts, limits, looks)
	progress.Done()
	lines, err := wayOut(facts, err, f.Output)
	return facts, lines, err
}

// wayOut splits what kept kdiag from looking: facts of the node go into the report; bad usage is returned as an
// error, since nothing was looked at. A program that asked for a document gets one in that case too.
func wayOut(f *facts.Input, err error, format string) ([]string, error) {
	problems, err := problems(f, err)
	if err == nil {
		return problems, nil
	}
	return Unopened(err, format)
}

// Unopened splits the error of opening a runtime in the same way: lines for the document, or an error.
func Unopened(err error, format string) ([]string, error) {
	if lines := noEndpoint(err); lines != nil {
		return lines, nil
	}
	if err == nil || format == string(render.Text) {
		return nil, err
	}
	if usage, ok := errors.AsType[*cli.UsageError](err); ok && usage.Hint != "" {
		return []string{usage.Problem, usage.Hint}, nil
	}
	return []string{err.Error()}, nil
}

func problems(f *facts.Input, err error) ([]string, error) {
	if lines := noEndpoint(err); lines != nil {
		return lines, nil
	}
	if err != nil {
		return nil, err
	}
	if f.Measurement == nil {
		return nil, nil
	}
	if facts.NamedTTRPC(f) {
		return nil, &cli.UsageError{Problem: f.Runtime.Endpoint + " is containerd's ttrpc socket, for its shims", Hint: facts.CRISocketBeside(f.Runtime.Endpoint)}
	}
	if f.Measurement.Connect.State == crictl.ConnectDenied {
		return []string{fmt.Sprintf("%s may not be opened by this user: run kdiag as root (sudo kdiag ...)", f.Runtime.Endpoint)}, nil
	}
	return nil, target.NotSocket(f.Runtime.Endpoint, f.Measurement.Connect)
}

// noEndpoint says what was looked at, when err says that this host has no runtime to ask; else it returns nil.
func noEndpoint(err error) []string {
	none, ok := errors.AsType[*crictl.NoEndpointError](err)
	if !ok {
		return nil
	}
	lines := []string{"no runtime socket was found; name one with --runtime-endpoint"}
	return append(lines, passedOver(none.Tried)...)
}

// passedOver says what was looked at on the way to no endpoint, one line for each reason: most well-known sockets do
// not exist on any one node.
func passedOver(tried []crictl.Tried) []string {
	var order []string
	whats := map[string][]string{}
	for _, t := range tried {
		if whats[t.Why] == nil {
			order = append(order, t.Why)
		}
		whats[t.Why] = append(whats[t.Why], t.What)
	}
	lines := make([]string, len(order))
	for i, why := range order {
		lines[i] = why + ": " + strings.Join(whats[why], ", ")
	}
	return lines
}

// Exit maps a verdict to the exit code. A command that was interrupted could not tell, whatever it had seen by then.
func Exit(ctx context.Context, v checks.Verdict, failOn string) error {
	if ctx.Err() != nil {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	switch v {
	case checks.Unhealthy:
		return &cli.ExitError{Code: cli.ExitProblem}
	case checks.Degraded:
		if failOn == "warning" {
			return &cli.ExitError{Code: cli.ExitProblem}
		}
	case checks.Unknown:
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	return nil
}
