package nodecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type plegOptions struct {
	cli.Flags
	samples       int
	deep          bool
	exitedWarning int
	noAPIServer   bool
	stacks        bool
}

// NewPleg returns kdiag pleg.
func NewPleg(env cli.Env) *cobra.Command {
	var opts plegOptions
	cmd := &cobra.Command{
		Use:   "pleg",
		Short: "Say whether PLEG is healthy on this node, why not, and what to do next",
		Long: `Do what the kubelet's PLEG does each second, from outside and with a deadline on every call: list all pod
sandboxes and containers, ask for the status of each, and work out how long the kubelet's own serial relist takes.
Then name the cause, the culprit and the next command.

Reads only. Needs the runtime's socket, so usually root; neither the API server nor the kubelet. Where the kubelet's
client certificate opens the API server, this node's own object and lease are read too.

With --stacks the runtime writes a goroutine dump while a call hangs: kdiag sends SIGUSR1 to its daemon (into the log
and /tmp; nothing stops) or reads its debug socket, sends it to shims that are stuck too, and reads the
kubelet's goroutines from its endpoint where its loop stands still. The report then names the goroutine that holds up
the others, and why.`,
		Example: `  kdiag pleg                           # on the sick node
  kdiag pleg --simulate inspect-hang   # anywhere: the embedded runtime with one hung container
  kdiag pleg --from x.tar.zst          # anywhere, out of an archive of kdiag bundle
  kdiag pleg --stacks                  # and who holds the lock: takes a goroutine dump of the runtime
  kdiag pleg -o brief                  # one line, for the node problem detector`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddFrom(cmd)
	cli.AddAdvisories(cmd)
	opts.AddOutput(cmd)
	opts.AddWatch(cmd)
	fs := cmd.Flags()
	fs.IntVar(&opts.samples, "samples", 5, "number of relists to time")
	fs.BoolVar(&opts.deep, "deep", false, "ask for the status of every container, however many, until --timeout")
	fs.BoolVar(&opts.Details, "details", false, "print all evidence, steps, measurements and checks")
	fs.BoolVar(&opts.stacks, "stacks", false,
		"take goroutine dumps too: SIGUSR1 to the runtime's daemon and stuck shims, or its debug socket")
	fs.BoolVar(&opts.noAPIServer, "no-api-server", false,
		"do not ask the API server that the kubelet's kubeconfig names")
	fs.IntVar(&opts.exitedWarning, "exited-warning", checks.DefaultLimits().ExitedWarning,
		"warn from this number of exited containers on")
	return cmd
}

func (o *plegOptions) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		cli.Reject(o.samples < 1 || o.samples > 1000, "--samples must be between 1 and 1000",
			"kdiag relist times long series"),
		cli.Reject(o.exitedWarning < 1, "--exited-warning must be at least 1", "leave it out for the default of 1000"),
	); err != nil {
		return err
	}
	return cmp.Or(o.CheckFrom(cmd, nil), o.Check(cmd, nil))
}

// plegGarbage makes the collector work more often than usual. On a sick node memory is worth more than the
// CPU time that it costs, above all where thousands of containers are asked for their status.
const plegGarbage = 80

func (o *plegOptions) run(ctx context.Context, env cli.Env) error {
	debug.SetGCPercent(plegGarbage)
	limits := checks.DefaultLimits()
	limits.ExitedWarning = o.exitedWarning
	return diagnosis.Report(ctx, env, &o.Flags, diagnosis.Request{
		Command: "pleg",
		Measure: plegbench.Options{Samples: o.samples, Pause: 50 * time.Millisecond, Deep: o.deep},
		Limits:  limits,
		Probes:  diagnosis.Probes{Cheap: true, APIServer: !o.noAPIServer, Stacks: o.stacks},
	}, render.Report)
}

type relistOptions struct {
	cli.Flags
	count    int
	duration time.Duration
	interval time.Duration
	deep     bool
	save     string
	against  string
}

// NewRelist returns kdiag relist.
func NewRelist(env cli.Env) *cobra.Command {
	var opts relistOptions
	cmd := &cobra.Command{
		Use:   "relist",
		Short: "Time relists as PLEG makes them: percentiles, distribution, headroom, forecast",
		Long: `Repeat the kubelet's relist from outside, one each second as PLEG does, and show how long each RPC
takes, how large the answers are, and when they will reach gRPC's limit or the PLEG threshold at today's growth.

Save a healthy node's figures and compare a sick one with them. Reads only.`,
		Example: `  kdiag relist --for 1m
  kdiag relist --count 30 --save healthy.json       # on a healthy node
  kdiag relist --count 30 --against healthy.json    # on the sick one`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	opts.AddDetails(cmd)
	fs := cmd.Flags()
	fs.IntVar(&opts.count, "count", 10, "number of relists to time")
	fs.DurationVar(&opts.duration, "for", 0, "time relists for this long instead of --count; extends --timeout")
	fs.DurationVar(&opts.interval, "interval", plegbench.RelistPeriod, "pause between two relists; the kubelet's is 1s")
	fs.BoolVar(&opts.deep, "deep", false,
		"ask for the status of every container at the end, however many, until --timeout")
	fs.StringVar(&opts.save, "save", "", "write the result to this file as JSON")
	fs.StringVar(&opts.against, "against", "", "compare with a result that --save wrote")
	return cmd
}

func (o *relistOptions) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		cli.Reject(o.count < 1 || o.count > 1_000_000, "--count must be between 1 and 1000000",
			"leave it out for 10 relists"),
		cli.Reject(o.duration < 0, "--for must not be negative", "for example --for 1m"),
		cli.Reject(o.interval < 0, "--interval must not be negative", "the kubelet pauses 1s between relists"),
		cli.RejectEmpty(cmd, "save", "against"),
		o.Check(cmd, nil),
	); err != nil {
		return err
	}
	if !cmd.Flags().Changed("timeout") {
		// A series lasts as long as it is asked to; the default timeout comes on top of it.
		o.Timeout += cmp.Or(o.duration, time.Duration(o.count-1)*o.interval)
	}
	return nil
}

func (o *relistOptions) run(ctx context.Context, env cli.Env) error {
	against, err := load(o.against)
	if err != nil {
		return err
	}
	var dest *cli.Destination
	if o.save != "" {
		if dest, err = cli.OpenDestination("--save", o.save); err != nil {
			return err
		}
		defer dest.Close()
	}
	series := plegbench.Options{
		Samples: o.count, For: o.duration, Pause: o.interval, Record: true, Deep: o.deep,
	}
	if o.duration > 0 {
		series.Samples = 0
	}
	env = o.Host(env)
	node, err := diagnosis.Collect(ctx, env, &o.Flags, diagnosis.Request{
		Command: "relist", Measure: series, Limits: checks.RuntimeLimits(),
	})
	if err != nil {
		return err
	}
	bench := judge.NewRelistBenchmark(document.Header(env, "relist", ""), node.Facts)
	document.Complete(bench, node.Problems)
	if err := render.RelistBenchmark(env.Out, bench, against, document.Options(env, &o.Flags)); err != nil {
		return err
	}
	if dest != nil {
		if err := save(ctx, dest, bench); err != nil {
			return err
		}
	}
	return document.Exit(ctx, bench.Status, o.FailOn)
}

// save saves a result, but not in place of an earlier one when the new one is cut short or has no figures.
func save(ctx context.Context, dest *cli.Destination, bench *checks.RelistBenchmark) error {
	useless := bench.Relist == nil || bench.Relist.List == nil || bench.Relist.List.P50Seconds == nil
	if dest.Exists && (useless || ctx.Err() != nil) {
		return cli.Fail(fmt.Errorf("%s was left as it is: this series is cut short or has no figures", dest.Path),
			cli.ExitUnknown, "give --save another name to keep this one too")
	}
	data, err := json.MarshalIndent(bench, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return dest.Write(append(data, '\n'))
}

// maxSaved bounds a saved result: a week of samples is less.
const maxSaved = 256 << 20

// load reads a file of --save. It returns nil for an empty name.
func load(name string) (*checks.RelistBenchmark, error) {
	if name == "" {
		return nil, nil
	}
	saved := &checks.RelistBenchmark{}
	data, err := cli.ReadFile(name, maxSaved)
	if err == nil {
		err = json.Unmarshal(data, saved)
	}
	if err == nil && (saved.APIVersion != checks.APIVersion || saved.Kind != checks.KindRelistBenchmark) {
		err = fmt.Errorf("%s: apiVersion %q kind %q, want %s %s", name, saved.APIVersion, saved.Kind,
			checks.APIVersion, checks.KindRelistBenchmark)
	}
	if err != nil {
		return nil, cli.Usage("--against "+err.Error(), "kdiag relist --save FILE writes such a file")
	}
	return saved, nil
}

// NewRuntime returns kdiag runtime.
func NewRuntime(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Probe the runtime's socket: which one and why, conditions, latency of each read-only RPC",
		Long: `Find the runtime's socket and report why that one was chosen; probe it; then ask each read-only RPC
once, side by side, each with its own deadline. This distinguishes a daemon that is down from one that is stopped,
deadlocked, misconfigured or slow.

Reads only.`,
		Example: `  kdiag runtime
  kdiag runtime --runtime-endpoint /run/crio/crio.sock -o json
  kdiag runtime serve --simulate exited-flood --listen /tmp/cri.sock`,
		Args:    cobra.NoArgs,
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe(cmd.Context(), env, &flags)
		},
	}
	flags.AddRuntime(cmd, fake.Names())
	flags.AddOutput(cmd)
	flags.AddDetails(cmd)
	cmd.AddCommand(newServe(env))
	return cmd
}

func probe(ctx context.Context, env cli.Env, f *cli.Flags) error {
	env = f.Host(env)
	node, err := diagnosis.Collect(ctx, env, f, diagnosis.Request{
		Command: "runtime", Measure: plegbench.Options{Samples: 1, NoSweep: true}, Limits: checks.RuntimeLimits(),
	})
	if err != nil {
		return err
	}
	doc := judge.NewRuntimeProbe(document.Header(env, "runtime", ""), node.Facts)
	document.Complete(doc, node.Problems)
	return document.Show(ctx, env, f, doc, doc.Status, render.RuntimeProbe)
}

type serveOptions struct {
	simulate string
	listen   string
}

func newServe(env cli.Env) *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Keep the embedded runtime up on a socket, for crictl, a kubelet or a test",
		Long: `Serve CRI v1 on a unix socket as the scenario says, until interrupted. The runtime keeps real state:
sandboxes, containers and images are created, run and removed as clients ask, but no process is ever started.

A scenario is one of the built-in ones (--simulate help lists them) or a YAML file:

  name: slow-disk
  summary: every status takes a second, and one sandbox's hangs
  latency:
    - {rpc: "*Status", base: 1s, jitter: 300ms}
  faults:
    - {rpc: PodSandboxStatus, object: {pod: web-3}, hang: true, from: 10s}
  pods:
    - {name: web, count: 20, containers: [{name: app, exited: 3}, {name: proxy}]}`,
		Example: `  kdiag runtime serve --simulate healthy --listen /tmp/cri.sock &
  crictl --runtime-endpoint unix:///tmp/cri.sock pods`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), env, opts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&opts.simulate, "simulate", "healthy", "scenario: a name or a YAML file; help lists the names")
	fs.StringVar(&opts.listen, "listen", "/tmp/kdiag.sock", "where to listen: unix:///path or a bare path")
	fs.StringVarP(&opts.listen, "runtime-endpoint", "r", "/tmp/kdiag.sock", "the same as --listen")
	cmd.MarkFlagsMutuallyExclusive("listen", "runtime-endpoint")
	_ = cmd.RegisterFlagCompletionFunc("simulate",
		cobra.FixedCompletions(fake.Names(), cobra.ShellCompDirectiveDefault))
	return cmd
}

func serve(ctx context.Context, env cli.Env, opts serveOptions) error {
	scenario, err := connection.Scenario(ctx, opts.simulate)
	if err != nil {
		return err
	}
	url, err := connection.ParseEndpoint("--listen", opts.listen)
	if err != nil {
		return err
	}
	server, err := fake.New(scenario)
	if err != nil {
		return cli.Usage(err.Error(), "kdiag runtime serve --help shows the format")
	}
	stop, err := fake.Listen(ctx, server, strings.TrimPrefix(url, "unix://"))
	if err != nil {
		return cli.Fail(fmt.Errorf("listening on %s: %w", url, err), cli.ExitUnknown,
			"choose another path with --listen")
	}
	defer stop()
	if _, err := fmt.Fprintf(env.Err, "kdiag: scenario %s on %s, until interrupted\n", scenario.Name, url); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Timeouts of a canary, where they differ from those of reads: making a sandbox takes a few disk writes, processes
// and CNI, so a call of five seconds may be slow and not hung.
const (
	canaryTimeout    = time.Minute
	canaryRPCTimeout = 10 * time.Second
	leastCanary      = 3 * time.Second
)

type canaryOptions struct {
	cli.Flags
	image   string
	pull    bool
	cni     bool
	command []string
	again   string // this command, to be run again
}

// NewCanary returns kdiag canary.
func NewCanary(env cli.Env) *cobra.Command {
	opts := canaryOptions{Flags: cli.Flags{Timeout: canaryTimeout, RPCTimeout: canaryRPCTimeout}}
	cmd := &cobra.Command{
		Use:   "canary [flags] [-- COMMAND ARG...]",
		Short: "Create, start, stop and remove one pod sandbox and container, and time each step",
		Long: `Create one pod sandbox with a container, use it, and remove both; each call is timed and bounded. This
tests what reading cannot: whether the runtime can still start and stop pods, and which step is slow or hangs. More
than 5 s in all, image pulls apart, is DEGRADED.

It changes the node for about a second: one pod in namespace kdiag-canary, on the host's network (with --cni a pod
network), unprivileged, without mounts, with kdiag's label and none of the kubelet's. It runs sleep from
a busybox or alpine image on the node, else the pause image. It is also removed after an error, at --timeout, and when
interrupted; the next run removes what a killed run left. Nothing without the label is touched.

A running kubelet stops sandboxes that it does not know every 2 s. A canary stopped that way is tried again; if that
fails too, the answer is unknown. containerd 2 may then keep an idle shim of the stopped canary (17 MB; see host.shims
in kdiag node). While the kubelet skips pods because PLEG is unhealthy, it does not interfere.

With --cni, network add-ons that look for the pod in the API server, such as Calico and Multus, refuse the canary: the
answer is unknown.`,
		Example: `  kdiag canary
  kdiag canary --cni                                     # with a pod network: CNI too
  kdiag canary --image docker.io/library/busybox:1.36 --pull
  kdiag canary --image registry.example/app:1 -- /bin/app --wait
  kdiag canary --simulate runtime-slow                   # anywhere: the embedded runtime`,
		Args: func(cmd *cobra.Command, args []string) error {
			return cli.Reject(len(args) > 0 && cmd.ArgsLenAtDash() != 0,
				"kdiag canary takes no arguments but a command after --",
				"for example: kdiag canary --image IMAGE -- sleep 60")
		},
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.Lookup("rpc-timeout").Usage = "count a call that takes longer as hung, and RunPodSandbox after twice as long"
	fs.StringVar(&opts.image, "image", "",
		"run this image (default: one on the node with a shell, else the pause image)")
	fs.BoolVar(&opts.pull, "pull", false, "pull --image if it is not on the node; it is kept")
	fs.BoolVar(&opts.cni, "cni", false, "use a pod network (CNI) instead of the host's")
	return cmd
}

// check reports the first flag that makes no sense.
func (o *canaryOptions) check(cmd *cobra.Command, args []string) error {
	o.command = args
	if err := cmp.Or(
		cli.Reject(o.image == "" && cmd.Flags().Changed("image"), "--image is empty",
			"leave it out to let kdiag pick one that is on the node"),
		cli.Reject(o.pull && o.image == "", "--pull needs --image",
			"name what to pull, for example --image docker.io/library/busybox:1.36"),
		cli.Reject(len(o.command) > 0 && o.image == "", "a command needs --image", "name the image that holds it"),
		cli.Reject(o.Timeout < leastCanary, "--timeout "+o.Timeout.String()+" leaves no time to clean up",
			"give at least "+leastCanary.String()),
	); err != nil {
		return err
	}
	o.again = cli.CommandLine(cmd, "canary",
		append(cli.RuntimeFlags(), "image", "cni", "timeout", "rpc-timeout")...)
	return o.Check(cmd, nil)
}

func (o *canaryOptions) run(ctx context.Context, env cli.Env) error {
	env = o.Host(env)
	facts := judge.CanaryFacts{CNI: o.cni, Command: o.command, Asked: o.image, Again: o.again}
	if err := diagnosis.TakeCanary(ctx, env, &o.Flags, &facts, o.pull); err != nil {
		return err
	}
	report := judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), facts)
	return document.Show(ctx, env, &o.Flags, report, report.Status, render.Canary)
}
