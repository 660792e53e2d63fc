// Package document has the parts that the documents of all commands share: header, problems, options of printing, exit
// code.
package document

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
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
