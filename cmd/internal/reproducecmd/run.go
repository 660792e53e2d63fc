package reproducecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	switch {
	case report != nil && timed.Err() != nil: // the report has how far it came, and whether anything is left
		report.Interrupted, err = true, &cli.ExitError{Code: cli.ExitUnknown}
		if ctx.Err() == nil {
			err = &cli.HintError{
				Err: fmt.Errorf("--timeout %s was over before the incident was", opts.Timeout), Code: cli.ExitUnknown,
				Hint: "give more time, or play it faster with --speed",
			}
			report.Problems = problems(err)
		}
	case err != nil && style.Format == render.Text:
		return err
	case err != nil: // a program that asked for a document gets one
		if report == nil {
			report = &reproduce.Report{Scenario: opts.scenario, Endpoint: opts.Endpoint, Speed: opts.speed, Pods: opts.pods, CleanedUp: true}
			report.Events, report.Missed = []reproduce.Event{}, []string{}
		}
		report.Problems, err = problems(err), &cli.ExitError{Code: cli.ExitUnknown}
	case len(report.Missed) > 0 || !report.CleanedUp:
		err = &cli.ExitError{Code: cli.ExitProblem}
	}
	doc := &render.ReproductionReport{Header: target.Header(env, "ReproductionReport"), Report: report}
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	if printErr := render.Reproduction(env.Out, doc, style); printErr != nil {
		return printErr
	}
	return err
}

// problems are the lines about an error that belong into a document.
func problems(err error) []string {
	_, message, hint := cli.ExitCode(err)
	return slices.DeleteFunc([]string{message, hint}, func(line string) bool { return line == "" })
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
		url, err := socket(ctx, opts.Endpoint)
		if err != nil {
			return nil, err
		}
		cfg.Endpoint, on = url, url
	}
	var logs []io.Writer
	if opts.Verbose {
		logs = append(logs, env.Err)
	}
	if opts.log != "" {
		f, err := create(opts.log)
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
		err = &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: hint(opts)}
	}
	return report, err
}

// socket returns the address of a runtime, unless it is something at which none can answer.
func socket(ctx context.Context, endpoint string) (string, error) {
	url, err := crictl.ParseEndpoint(endpoint)
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		return "", &cli.UsageError{Problem: bad.Error(), Hint: bad.Hint}
	}
	_, err = target.Probe(ctx, url)
	return url, err
}

// create makes a file, or empties the one that is there; a device such as /dev/null will do. To open a pipe may last
// for ever.
func create(name string) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeCharDevice == 0 {
		return nil, fmt.Errorf("%s is there and is no regular file", name)
	}
	return os.Create(name)
}

// hint is the next step when a scenario could not be played.
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
	if err != nil {
		return &cli.HintError{Err: err, Code: cli.ExitProblem, Hint: "run it again once the runtime answers (kdiag runtime says); if it is gone for good, remove the named folder"}
	}
	_, err = fmt.Fprintf(env.Out, "removed %d sandboxes, %d containers and %d folders of runs that were killed\n",
		done.Sandboxes, done.Containers, len(done.Folders))
	return err
}
