// Package proxycmd is kdiag proxy: faults in front of a real runtime, for crictl, a kubelet or a test.
package proxycmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

type options struct {
	cli.Flags
	listen   string
	scenario string
	file     string
	faults   []string
}

// NewCommand returns kdiag proxy.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Put faults in front of a real runtime: delay, hang, fail, drop or oversize its replies",
		Long: `Listen on a socket and pass every CRI call on to the runtime behind it, unchanged, except calls with a
fault. Point crictl or a kubelet at the proxy's socket to see how they react to a faulty runtime; the runtime itself is
not touched.

Give faults one by one (--fault; --fault help explains the fields), in a YAML file with the lists latency, faults and
conditions of a scenario (--faults), or as a scenario (--scenario). All times count from the start. The first fault that
matches applies, those of --fault first.

Runs until interrupted, then prints how many calls passed and how many were faulted.`,
		Example: `  kdiag proxy --fault 'rpc: ContainerStatus, hang: true, object: {pod: web-*}, until: 1m'
  kdiag proxy --scenario runtime-slow -v
  crictl --runtime-endpoint unix:///tmp/kdiag-proxy.sock ps`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opts.Host(env), opts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&opts.listen, "listen", "/tmp/kdiag-proxy.sock", "where to listen: unix:///path or a bare path")
	opts.AddEndpoint(cmd)
	opts.AddHostRoot(cmd)
	fs.StringVar(&opts.scenario, "scenario", "",
		"use the faults, latencies and conditions of a scenario: a name or a YAML file; help lists the names")
	fs.StringVar(&opts.file, "faults", "", "use the faults, latencies and conditions of a YAML file")
	fs.StringArrayVar(&opts.faults, "fault", nil,
		"one fault, such as 'rpc: ListContainers, delay: 5s'; may be repeated; help explains the fields")
	opts.AddVerbose(cmd, "print a line for each faulted call")
	_ = cmd.RegisterFlagCompletionFunc("scenario",
		cobra.FixedCompletions(append([]string{"help"}, fake.Names()...), cobra.ShellCompDirectiveDefault))
	return cmd
}

func (o *options) check(cmd *cobra.Command, _ []string) error {
	o.Timeout, o.RPCTimeout = cli.DefaultTimeout, cli.DefaultRPCTimeout
	return cmp.Or(
		cli.RejectEmpty(cmd, "listen", "scenario", "faults"),
		o.Check(cmd, nil),
	)
}

func run(ctx context.Context, env cli.Env, opts options) error {
	switch {
	case len(opts.faults) == 1 && opts.faults[0] == "help":
		_, err := fmt.Fprint(env.Out, faultHelp)
		return err
	case opts.scenario == "help":
		return connection.PrintScenarios(env.Out)
	}
	plan, err := opts.plan(ctx)
	if err != nil {
		return err
	}
	listen, err := connection.ParseEndpoint("--listen", opts.listen)
	if err != nil {
		return err
	}
	t, err := connection.Open(ctx, env, &opts.Flags)
	if _, ok := errors.AsType[*crictl.NoEndpointError](err); ok {
		return cli.Usage("no runtime socket was found",
			"name one with --runtime-endpoint; kdiag runtime serve runs the embedded runtime on one")
	}
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := connection.Probe(ctx, env, t.Socket); err != nil {
		return err
	}
	if err := cli.Reject(sameSocket(listen, t.Socket), "--listen is the socket of the runtime itself",
		"choose another path, such as /tmp/kdiag-proxy.sock"); err != nil {
		return err
	}
	out := &printer{out: env.Err, start: time.Now()}
	cfg := fault.Config{Backend: t.Socket, Listen: listen, Faults: plan.Faults, Latency: plan.Latency}
	if opts.Verbose > 0 {
		cfg.Log = out.injected
	}
	proxy, err := fault.New(cfg)
	if err != nil {
		return cli.Fail(err, cli.ExitUnknown, "choose another path with --listen")
	}
	proxy.SetConditions(plan.Conditions)
	if plan.Socket == fake.SocketRefuse {
		if err := proxy.SetDown(true); err != nil {
			return err
		}
	}
	out.begin(listen, t.Endpoint, plan)
	err = proxy.Run(ctx)
	if printErr := summary(env.Out, proxy.Stats()); err == nil {
		err = printErr
	}
	if err != nil {
		return cli.Fail(err, cli.ExitProblem, "")
	}
	return nil
}

// sameSocket reports whether two endpoints are one file, whose removal would cut off the runtime.
func sameSocket(a, b string) bool {
	first, err := os.Stat(strings.TrimPrefix(a, "unix://"))
	second, otherErr := os.Stat(strings.TrimPrefix(b, "unix://"))
	// A runtime that is down may have no socket.
	return a == b || err == nil && otherErr == nil && os.SameFile(first, second)
}

// faultHelp explains --fault.
const faultHelp = `A fault is a line of YAML with the fields of a scenario's fault, for example

  rpc: ContainerStatus, hang: true, object: {pod: web-*}, from: 10s, until: 1m
  rpc: RunPodSandbox, error: "Unavailable: not now", first: 3
  rpc: ListContainers, oversize: 17825792, every: 1m, for: 10s

rpc is a name of CRI v1 or a pattern: ContainerStatus, List*, "*Image*", "*".

One of:
  hang: true             no reply; the call ends when the caller gives up
  hang: true, thaw: true the call continues when the fault ends, as after a daemon was frozen
  delay: DURATION        the call is delayed by this time
  error: "CODE: TEXT"    the call fails at once with a gRPC code and a message
  drop: true             the runtime does the work, then the connection is cut before the reply
  oversize: BYTES        the reply is padded to this size; a kubelet accepts 16777216

object selects calls, by patterns; without it, every call:
  object: {pod: NAME, namespace: NAME, container: NAME, id: ID, sandbox: true}

When, counted from the start of the proxy:
  from: DURATION, until: DURATION      only then
  every: DURATION, for: DURATION       for this long in each period
  first: N, after: N                   only the first N calls; only after N calls

The first fault that matches applies.
`

// plan returns the initial state of the proxy: a scenario of which only the faults, latencies, conditions and the
// socket matter.
func (o *options) plan(ctx context.Context) (fake.Scenario, error) {
	var plan fake.Scenario
	if source := cmp.Or(o.file, o.scenario); source != "" {
		var err error
		if plan, err = connection.Scenario(ctx, source); err != nil {
			return plan, err
		}
	}
	var faults []fake.Fault
	for _, text := range o.faults {
		f, err := fake.ParseFault(text)
		if err != nil {
			return plan, cli.Usage(fmt.Sprintf("--fault %q: %v", text, err),
				"kdiag proxy --fault help explains the fields")
		}
		faults = append(faults, f)
	}
	plan.Faults = append(faults, plan.Faults...)
	return plan, nil
}

// A printer writes the messages of a running proxy. Write errors are ignored.
type printer struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// begin prints the proxy's socket, how to use it, and its faults.
func (p *printer) begin(listen string, behind crictl.Endpoint, plan fake.Scenario) {
	p.printf("kdiag: proxy on %s, in front of %s (%s)", listen, behind.URL, behind.Reason)
	p.printf("  crictl:  crictl --runtime-endpoint %s ps", listen)
	p.printf("  kubelet: containerRuntimeEndpoint: %[1]s in its configuration file, "+
		"or --container-runtime-endpoint=%[1]s; then restart it", listen)
	if plan.Name != "" {
		p.printf("  scenario %s, on the runtime's own pods", plan.Name)
	}
	if plan.Socket == fake.SocketRefuse {
		p.printf("  nothing listens: connections are refused")
	}
	for i, f := range plan.Faults {
		text, _ := json.Marshal(f) // no field of a fault fails
		p.printf("  fault %d: %s", i+1, text)
	}
	for _, l := range plan.Latency {
		p.printf("  latency: %s delayed by %s to %s, and %s per item", l.RPC, l.Base, l.Base+l.Jitter, l.PerItem)
	}
	for _, c := range plan.Conditions {
		p.printf("  condition %s=%t %s", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	if len(plan.Faults)+len(plan.Latency)+len(plan.Conditions) == 0 && plan.Socket == fake.SocketListen {
		p.printf("  no faults: every call passes unchanged")
	}
	p.printf("  until interrupted")
}

// injected prints an injected fault. The names of the object come from the caller or the runtime, so they are quoted.
func (p *printer) injected(s fault.Injection) {
	object := ""
	if t := s.Target; t.Pod != "" {
		object = fmt.Sprintf(" %q", strings.TrimSuffix(t.Namespace+"/"+t.Pod+"/"+t.Container, "/"))
	} else if t.ID != "" {
		object = fmt.Sprintf(" %.13q", t.ID)
	}
	p.printf("kdiag: %s fault %d: %s%s faulted", time.Since(p.start).Round(time.Millisecond), s.Number+1, s.RPC, object)
}

// summary writes the counts per RPC, the most faulted first.
func summary(out io.Writer, stats map[string]fault.Count) error {
	names := slices.SortedFunc(maps.Keys(stats), func(a, b string) int {
		return cmp.Or(stats[b].Faulted-stats[a].Faulted, stats[b].Calls-stats[a].Calls, strings.Compare(a, b))
	})
	var text strings.Builder
	fmt.Fprintf(&text, "%-28s %8s %8s\n", "RPC", "calls", "faulted")
	var all fault.Count
	for _, name := range names {
		c := stats[name]
		all.Calls, all.Faulted = all.Calls+c.Calls, all.Faulted+c.Faulted
		fmt.Fprintf(&text, "%-28.60s %8d %8d\n", name, c.Calls, c.Faulted)
	}
	fmt.Fprintf(&text, "%-28s %8d %8d\n", "all", all.Calls, all.Faulted)
	_, err := io.WriteString(out, text.String())
	return err
}
