package reproducecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

func run(ctx context.Context, env cli.Env, opts options) error {
	switch {
	case opts.scenario == "help":
		return list(env.Out)
	case opts.cleanup:
		return cleanup(ctx, env)
	}
	s, ok := reproduce.Find(opts.scenario)
	if !ok {
		return &cli.UsageError{Problem: fmt.Sprintf("there is no scenario %q", opts.scenario), Hint: "kdiag reproduce help lists them"}
	}
	if opts.pods < s.MinPods {
		return &cli.UsageError{
			Problem: fmt.Sprintf("%s does not show with fewer than %d pods", s.Name, s.MinPods), Hint: "leave out --pods",
		}
	}
	cfg := reproduce.Config{
		Scenario: s, Pods: opts.pods, Exited: opts.exited, Image: opts.image, Speed: opts.speed, Dir: os.TempDir(),
	}
	on := "the embedded runtime"
	if opts.Endpoint != "" {
		url, err := crictl.ParseEndpoint(opts.Endpoint)
		if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
			return &cli.UsageError{Problem: bad.Error(), Hint: bad.Hint}
		}
		cfg.Endpoint, on = url, url
	}
	if opts.log != "" {
		f, err := os.Create(opts.log)
		if err != nil {
			return &cli.UsageError{Problem: "--log: " + err.Error(), Hint: "name a file in a folder that you may write to"}
		}
		defer f.Close()
		cfg.Log = f
	}
	style := answer.Render(env, &opts.Flags)
	if style.Format == render.Text {
		cfg.Notify = render.NewTimeline(env.Out, s, on, opts.speed, style).Event
	}
	report, err := reproduce.Run(ctx, cfg)
	if report == nil || err != nil && ctx.Err() == nil {
		return &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: hint(opts)}
	}
	report.Log, report.Interrupted = opts.log, ctx.Err() != nil
	doc := &render.ReproductionReport{Header: target.Header(env, "ReproductionReport"), Report: report}
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	if err := render.Reproduction(env.Out, doc, style); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case len(report.Missed) > 0 || !report.CleanedUp:
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// hint says what to do when a scenario could not be played.
func hint(opts options) string {
	if opts.Endpoint == "" {
		return "kdiag reproduce --cleanup removes what is left, if anything is"
	}
	return "kdiag runtime --runtime-endpoint " + opts.Endpoint + " says how the runtime is; kdiag reproduce --cleanup removes what is left"
}

func list(w io.Writer) error {
	for _, name := range reproduce.Names() {
		s, ok := reproduce.Find(name)
		if !ok {
			continue
		}
		outcome := "stays Ready"
		if s.NotReady != "" {
			outcome = "NotReady"
		}
		if _, err := fmt.Fprintf(w, "%-20s %-12s %s\n", s.Name, outcome, s.Summary); err != nil {
			return err
		}
	}
	return nil
}

func cleanup(ctx context.Context, env cli.Env) error {
	done, err := reproduce.Cleanup(ctx, os.TempDir())
	_, printErr := fmt.Fprintf(env.Out, "removed %d sandboxes and %d containers of runs that were killed, and their folders\n", done.Sandboxes, done.Containers)
	if err = errors.Join(err, printErr); err != nil {
		return &cli.HintError{Err: err, Code: cli.ExitProblem, Hint: "run it again once the runtime answers: kdiag runtime"}
	}
	return nil
}
