// Package document has the parts that the documents of all commands share: header, problems, options of printing, exit
// code.
package document

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

// Complete adds problems to a document, and the next steps of its first cause.
func Complete(doc checks.Answer, problems []string) {
	head, _, causes := doc.Answer()
	head.Problems = append(append([]string{}, problems...), head.Problems...) // [] in JSON where there are none
	if len(causes) > 0 {
		head.NextSteps = causes[0].NextSteps
	}
}

// NewProgress returns a progress line on standard error.
func NewProgress(env cli.Env) *render.Progress {
	return render.NewProgress(env.Err, env.ErrTTY, env.Width, env.ASCII())
}

// Widest is the most columns of text in a terminal: longer lines are hard to read.
const Widest = 100

// Options returns how to print to standard output: as wide as $COLUMNS, else as the terminal up to a limit, else
// without wrapping, so that a program finds each thing in one line.
func Options(env cli.Env, f *cli.Flags) render.Options {
	o := render.Options{
		Format: render.Format(f.Output), Color: env.Color(f.Color), Width: min(env.Width, Widest),
		NoWrap: !env.OutTTY, ASCII: env.ASCII(), Details: f.Details, All: f.All,
	}
	if n, err := strconv.Atoi(env.Getenv("COLUMNS")); err == nil && n > 0 {
		o.Width, o.NoWrap = n, false
	}
	return o
}

// Show prints a document, and maps its verdict to the exit code.
func Show[D any](
	ctx context.Context, env cli.Env, f *cli.Flags, doc D, v checks.Verdict,
	print func(io.Writer, D, render.Options) error,
) error {
	if err := print(env.Out, doc, Options(env, f)); err != nil {
		return err
	}
	return Exit(ctx, v, f.FailOn)
}

// ExitHistory returns the exit code of a history: a critical cause counts, gone or not.
func ExitHistory(ctx context.Context, h *checks.History) error {
	if slices.ContainsFunc(h.Incidents, func(i checks.Incident) bool { return i.Severity == checks.Critical }) {
		return Exit(ctx, checks.Unhealthy, "")
	}
	return Exit(ctx, checks.Healthy, "")
}

// CaptureSteps makes a step for each archive of a history, the newest first, with times of a zone.
func CaptureSteps(
	h *checks.History, zone *time.Location, command func(checks.TakenCapture) string,
) (steps []checks.NextStep) {
	for _, c := range slices.Backward(h.Captures) {
		if c.Error == "" {
			why := c.Cause + ", " + c.At.In(zone).Format(cli.Zoned) + ", " + units.Size(c.Bytes)
			steps = append(steps, checks.NextStep{Why: why, Command: command(c), Touches: checks.TouchesNothing})
		}
	}
	return steps
}

// Exit maps a verdict to the exit code. An interrupted command ends as one that could not tell.
func Exit(ctx context.Context, v checks.Verdict, failOn string) error {
	switch {
	case ctx.Err() != nil, v == checks.Unknown:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case v == checks.Unhealthy, v == checks.Degraded && failOn == "warning":
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// Header returns the head of a JSON document of a command.
func Header(env cli.Env, command, kind string) checks.Header {
	name, _ := env.Hostname() // empty where there is none
	return checks.Header{
		APIVersion: checks.APIVersion, Kind: kind, Command: strings.TrimSpace("kdiag " + command),
		GeneratedAt: env.Now().UTC().Truncate(time.Second), Host: name, KdiagVersion: cli.Version(),
		Status: checks.Unknown, Problems: []string{},
	}
}
