package reproducecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

func run(ctx context.Context, env cli.Env, opts options) error {
	if opts.scenario == "help" {
		return list(env.Out)
	}
	timed, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	if opts.cleanup {
		return cleanup(timed, env)
	}
	style := answer.Render(env, &opts.Flags)
	report, err := play(timed, env, opts, style)
	if report == nil {
		if style.Format == render.Text {
			return err
		}
		report = &reproduce.Report{ // a program that asked for a document gets one
			Scenario: opts.scenario, Endpoint: opts.Endpoint, Speed: opts.speed, Pods: opts.pods, CleanedUp: true,
			Events: []reproduce.Event{}, Missed: []string{},
		}
	}
	report.Interrupted = timed.Err() != nil
	switch {
	case report.Interrupted && ctx.Err() == nil:
		err = &cli.HintError{
			Err: fmt.Errorf("--timeout %s was over before the incident was", opts.Timeout), Code: cli.ExitUnknown,
			Hint: "give more time, or play it faster with --speed",
		}
	case report.Interrupted: // the report has how far it came, and whether anything is left
		err = &cli.ExitError{Code: cli.ExitUnknown}
	case err == nil && (len(report.Missed) > 0 || !report.CleanedUp):
		err = &cli.ExitError{Code: cli.ExitProblem}
	case err != nil && style.Format == render.Text:
		return err
	}
	if _, message, hint := cli.ExitCode(err); err != nil && message != "" {
		report.Problems = slices.DeleteFunc([]string{message, hint}, func(line string) bool { return line == "" })
		if !report.Interrupted {
			err = &cli.ExitError{Code: cli.ExitUnknown}
		}
	}
	doc := &render.ReproductionReport{Header: target.Header(env, "ReproductionReport"), Report: report}
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	if printErr := render.Reproduction(env.Out, doc, style); printErr != nil {
		return printErr
	}
	return err
}

// play plays the scenario. The report is nil if nothing was begun.
func play(ctx context.Context, env cli.Env, opts options, style render.Options) (*reproduce.Report, error) {
	s, ok := reproduce.Find(opts.scenario)
	if !ok {
		return nil, &cli.UsageError{Problem: fmt.Sprintf("there is no scenario %q", opts.scenario), Hint: "kdiag reproduce help lists them"}
	}
	if opts.pods < s.MinPods {
		return nil, &cli.UsageError{
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
			return nil, &cli.UsageError{Problem: bad.Error(), Hint: bad.Hint}
		}
		if _, err := target.Probe(ctx, url); err != nil { // nothing can answer there
			return nil, err
		}
		cfg.Endpoint, on = url, url
	}
	var logs []io.Writer
	if opts.Verbose {
		logs = append(logs, env.Err)
	}
	if opts.log != "" {
		f, err := os.Create(opts.log)
		if err != nil {
			return nil, &cli.UsageError{Problem: "--log: " + err.Error(), Hint: "name a file in a folder that you may write to"}
		}
		defer f.Close()
		logs = append(logs, f)
	}
	cfg.Log = io.MultiWriter(logs...)
	if style.Format == render.Text {
		cfg.Notify = render.NewTimeline(env.Out, s, on, opts.speed, style).Event
	}
	report, err := reproduce.Run(ctx, cfg)
	if report != nil {
		report.Log = opts.log
	}
	if err != nil {
		err = &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "kdiag reproduce --cleanup removes what is left; kdiag runtime shows whether the runtime answers"}
	}
	return report, err
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
	if err != nil {
		return &cli.HintError{Err: err, Code: cli.ExitProblem, Hint: "run it again once the runtime answers (kdiag runtime says); if it is gone for good, remove the named folder"}
	}
	_, err = fmt.Fprintf(env.Out, "removed %d sandboxes, %d containers and %d folders of runs that were killed\n",
		done.Sandboxes, done.Containers, len(done.Folders))
	return err
}
