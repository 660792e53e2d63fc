// Package reproducecmd is kdiag reproduce: an incident played from end to end.
package reproducecmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

type options struct {
	cli.Flags // Endpoint, Output, Color, Timeout and Verbose

	scenario string
	pods     int
	exited   int
	image    string
	speed    float64
	log      string
	tui      bool
	pause    bool
	cleanup  bool
}

// defaultTimeout leaves time for a large flood: all else in a scenario ends within twenty minutes at a kubelet's own
// pace.
const defaultTimeout = 2 * time.Hour

// The speeds of the embedded runtime: an incident of five minutes takes five seconds, or, for a person who looks at it
// as it happens, half a minute.
const (
	defaultSpeed = 60
	watchedSpeed = 10
)

// NewCommand returns the command.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "reproduce SCENARIO",
		Short: "Replay an incident end to end: runtime, syncLoop, fault, NotReady, recovery",
		Long: `Start a small kubelet, which behaves as that of Kubernetes 1.36, with some pods, put a fault between it and the
runtime, and print events as they happen: relists get stuck, PLEG events stop, the loop skips, the node turns NotReady,
and recovers when the fault ends.

The runtime is the embedded one, or a real one with --runtime-endpoint. On a real one the pods use the host's network
and an image that is on the node; the fault is in a proxy before the runtime, so its other clients are not affected. At
the end everything created is removed, also after Ctrl-C or --timeout; --cleanup removes what a killed run left.

The embedded runtime runs at 60x speed; a real one at the kubelet's own, where an incident takes about five minutes.
--speed changes that. "help" as SCENARIO lists the scenarios. They are those of --simulate, as incidents: where one
differs in size from the node that kdiag pleg --simulate shows, the list names both.

--pause stops before the fault, before its end and before the clean-up, so that you can look around meanwhile, with
other commands too.

--tui shows the run in the terminal as it goes on: the present step and what to look at, the loop, the age of PLEG's
last relist against its limit, the node's condition, the pods, the events, and at the end the verdict. q or Ctrl-C
leaves; text follows that is the same as without --tui.

Exit codes: 0 the incident matched the scenario; 1 it did not, or something could not be removed; 2 it could not run
(bad usage, no such runtime, interrupted, --timeout).`,
		Example: `  kdiag reproduce runtime-hung
  kdiag reproduce runtime-hung --tui
  kdiag reproduce list-hang --log kubelet.log && kdiag journal kubelet.log
  kdiag reproduce runtime-down --runtime-endpoint /run/containerd/containerd.sock --speed 10
  kdiag reproduce help`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: append(reproduce.Names(), "help"),
		PreRunE:   opts.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&opts.Endpoint, "runtime-endpoint", "r", "",
		"run on this CRI socket, unix:///path or a bare path (default: the embedded runtime)")
	fs.IntVar(&opts.pods, "pods", 6, "number of pods to run")
	fs.IntVar(&opts.exited, "exited", 200, "number of exited containers that exited-flood creates")
	fs.StringVar(&opts.image, "image", "",
		"image of the pods; its own command must not exit (default: the pause image on the node)")
	fs.Float64Var(&opts.speed, "speed", 0,
		"divide all times by this factor (default: 60 on the embedded runtime, 10 with --tui, 1 on a real one)")
	fs.StringVar(&opts.log, "log", "", "write the kubelet's log of the run to this file")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", defaultTimeout, "stop by then, as Ctrl-C does, and clean up")
	opts.AddVerbose(cmd, "print the kubelet's log of the run to stderr")
	fs.BoolVar(&opts.tui, "tui", false, "show the run in the terminal, as it goes on; q leaves")
	fs.BoolVar(&opts.pause, "pause", false, "wait for Enter before the fault, before its end and before the clean-up")
	fs.BoolVar(&opts.cleanup, "cleanup", false, "remove what killed runs left, and end")
	return cmd
}

func (o *options) check(cmd *cobra.Command, args []string) error {
	if err := o.Check(cmd, nil); err != nil {
		return err
	}
	if len(args) > 0 {
		o.scenario = args[0]
	}
	if o.speed == 0 && !cmd.Flags().Changed("speed") {
		o.speed = 1
		if o.Endpoint == "" {
			o.speed = defaultSpeed
			if o.tui {
				o.speed = watchedSpeed
			}
		}
	}
	return cmp.Or(
		cli.Reject(o.scenario == "" && !o.cleanup, "which incident?",
			"kdiag reproduce help lists them; a good one to begin with: kdiag reproduce runtime-hung"),
		cli.Reject(o.scenario != "" && o.cleanup, "--cleanup runs no scenario", "leave out the scenario"),
		cli.Reject(math.IsNaN(o.speed) || o.speed < 1 || o.speed > 200, fmt.Sprintf("--speed %v is out of range",
			o.speed), "give a factor from 1 to 200, such as --speed 60"),
		cli.Reject(o.pods < 2 || o.pods > 100, fmt.Sprintf("--pods %d is out of range", o.pods), "give 2 to 100"),
		cli.Reject(o.exited < 2 || o.exited > 20000, fmt.Sprintf("--exited %d is out of range", o.exited),
			"give 2 to 20000"),
		cli.RejectEmpty(cmd, "image", "log"),
		cli.Reject(o.tui && o.Output != string(render.Text), "--tui and -o "+o.Output+" exclude each other",
			"leave out one of them"),
		cli.Reject(o.tui && o.pause, "--tui and --pause exclude each other", "leave out one of them"),
		cli.Reject(o.tui && o.Verbose > 0, "--tui and -v exclude each other", "write the log to a file with --log"),
	)
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if opts.scenario == "help" {
		return list(env.Out)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	timed, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	if opts.cleanup {
		return cleanup(timed, env)
	}
	style := document.Options(env, &opts.Flags)
	report, err := play(timed, leave, env, opts, style)
	if report == nil {
		if style.Format == render.Text {
			return err
		}
		report = &reproduce.Report{ // a program that asked for a document gets one
			Scenario: opts.scenario, Endpoint: opts.Endpoint, Speed: opts.speed, Pods: opts.pods, CleanedUp: true,
			Events: []reproduce.Event{}, Missed: []string{}, Interrupted: timed.Err() != nil,
		}
	}
	header := document.Header(env, "reproduce", "ReproductionReport")
	switch {
	case report.Interrupted && ctx.Err() == nil:
		err = cli.Fail(fmt.Errorf("--timeout %s was reached before the incident ended", opts.Timeout), cli.ExitUnknown,
			"raise --timeout or --speed")
	case report.Interrupted: // the report has how far it came, and whether anything is left
		err = &cli.ExitError{Code: cli.ExitUnknown}
	case err == nil && (len(report.Missed) > 0 || !report.CleanedUp):
		err, header.Status = &cli.ExitError{Code: cli.ExitProblem}, checks.Degraded
	case err == nil:
		header.Status = checks.Healthy
	case style.Format == render.Text:
		return err
	}
	_, message, hint := cli.ExitCode(err)
	if message != "" {
		header.Problems = []string{message}
		if !report.Interrupted {
			err = &cli.ExitError{Code: cli.ExitUnknown}
		}
	}
	doc := &render.ReproductionReport{Header: header, Hint: hint, Report: report}
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	if printErr := render.Reproduction(env.Out, doc, style); printErr != nil {
		return printErr
	}
	return err
}

// play plays the scenario; leave ends it, as an interrupt does. The report is nil if nothing was begun.
func play(
	ctx context.Context, leave func(), env cli.Env, opts options, style render.Options,
) (report *reproduce.Report, err error) {
	var terminal *screen.Screen
	if opts.tui {
		if terminal, err = screen.Open(env); err != nil {
			return nil, err
		}
	}
	s, ok := reproduce.Find(opts.scenario)
	if !ok {
		return nil, cli.Usage(fmt.Sprintf("there is no scenario %q", opts.scenario), cmp.Or(
			cli.DidYouMean("kdiag reproduce ", opts.scenario, reproduce.Names()), "kdiag reproduce help lists them"))
	}
	if opts.pods < s.MinPods {
		return nil, cli.Usage(fmt.Sprintf("%s needs at least %d pods", s.Name, s.MinPods),
			"leave out --pods")
	}
	cfg := reproduce.Config{
		Scenario: s, Pods: opts.pods, Exited: opts.exited, Image: opts.image, Speed: opts.speed, Dir: os.TempDir(),
		Listen: env.Sockets.Listen, Dialer: env.Sockets.Dial,
	}
	on := "the embedded runtime"
	if opts.Endpoint != "" {
		url, err := connection.ParseEndpoint("--runtime-endpoint", opts.Endpoint)
		if err != nil {
			return nil, err
		}
		if _, err := connection.Probe(ctx, env, url); err != nil { // nothing can answer there
			return nil, err
		}
		cfg.Endpoint, on = url, url
	}
	var logs []io.Writer
	if opts.Verbose > 0 {
		logs = append(logs, env.Err)
	}
	if opts.log != "" {
		f, err := os.Create(opts.log)
		if err != nil {
			return nil, cli.Usage("--log: "+err.Error(), "name a file in a folder that you may write to")
		}
		defer f.Close()
		logs = append(logs, f)
	}
	cfg.Log = io.MultiWriter(logs...)
	if opts.pause {
		lines := bufio.NewScanner(env.In)
		cfg.Pause = func(ctx context.Context, before string) error {
			_, _ = fmt.Fprintf(env.Err, "kdiag: paused before %s; Enter goes on\n", before)
			_, err := deadline.Run(ctx, "waiting for Enter", func(context.Context) (bool, error) { return lines.Scan(), nil })
			return err
		}
	}
	if opts.tui {
		v := &view{opts: style}
		report, err = v.play(ctx, leave, terminal, cfg)
		timeline := render.NewTimeline(env.Out, s, on, opts.speed, style)
		for _, e := range v.story.Events {
			timeline.Event(e)
		}
	} else {
		if style.Format == render.Text {
			cfg.Notify = render.NewTimeline(env.Out, s, on, opts.speed, style).Event
		}
		report, err = reproduce.Run(ctx, cfg)
	}
	if report != nil {
		report.Log = opts.log
	}
	hint := "kdiag reproduce --cleanup removes what is left; kdiag runtime shows whether the runtime answers"
	if _, ok := errors.AsType[*fs.PathError](err); ok && report == nil {
		hint = cli.TempHint
	}
	if err != nil {
		err = cli.Fail(err, cli.ExitUnknown, hint)
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
		return cli.Fail(err, cli.ExitProblem, "run it again once kdiag runtime shows a reply; "+
			"if the runtime is gone for good, remove the named folder")
	}
	_, err = fmt.Fprintf(env.Out, "removed %d sandboxes, %d containers and %d folders of killed runs\n",
		done.Sandboxes, done.Containers, len(done.Folders))
	return err
}

// A view shows a run in the terminal.
type view struct {
	opts render.Options

	mu    sync.Mutex
	story render.Story
	loop  *syncloop.SyncLoop // nil before there is one
}

// play plays a scenario and shows it, until the person at the terminal leaves; the verdict stays on the screen.
func (v *view) play(
	ctx context.Context, leave func(), s *screen.Screen, cfg reproduce.Config,
) (report *reproduce.Report, err error) {
	v.story = render.Story{Scenario: cfg.Scenario, Endpoint: cfg.Endpoint, Speed: cfg.Speed}
	cfg.Notify = func(e reproduce.Event) {
		v.set(func() { v.story.Events = append(v.story.Events, e) })
	}
	cfg.Made = func(loop *syncloop.SyncLoop) {
		v.set(func() { v.loop = loop })
	}
	err = s.Show(ctx, leave, v.draw, func(ctx context.Context) error {
		var err error
		if report, err = reproduce.Run(ctx, cfg); err != nil {
			return err
		}
		v.set(func() { v.story.Report = &render.ReproductionReport{Report: report} })
		<-ctx.Done()
		return nil
	})
	return report, err
}

func (v *view) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func (v *view) draw(width, height int) []string {
	v.mu.Lock()
	story, loop := v.story, v.loop
	v.mu.Unlock()
	shown := render.LoopView{Now: time.Now(), Story: &story}
	if loop != nil { // not under the lock: whoever reports an event may hold one of the syncLoop's
		shown.Snapshot = loop.Snapshot()
	}
	return shown.Draw(width, height, v.opts)
}
