package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Flags are the flags that mean the same on every command that has them.
type Flags struct {
	Endpoint   string
	Simulate   string
	Timeout    time.Duration
	RPCTimeout time.Duration
	Output     string
	Details    bool // text of a report: all evidence, steps and measurements
	All        bool // text of a report on a node: every check
	Color      string
	FailOn     string
	Verbose    bool
}

// DefaultTimeout and DefaultRPCTimeout bound a read-only command and one RPC.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultRPCTimeout = 5 * time.Second
)

// Formats are the values of --output.
var Formats = []string{"text", "json", "yaml", "brief"}

// AddOutput adds --output and --color.
func (f *Flags) AddOutput(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.Output, "output", "o", "text",
		"what to print: text, json, yaml, or brief (one line of at most 80 characters)")
	fs.StringVar(&f.Color, "color", "auto", "when to colour text: auto, always or never; NO_COLOR is honoured")
	complete(cmd, "output", Formats)
	complete(cmd, "color", colors())
}

// AddRuntime adds the flags of a command that asks a runtime. scenarios are the names offered for --simulate. Timeouts
// that are set already are the defaults.
func (f *Flags) AddRuntime(cmd *cobra.Command, scenarios []string) {
	fs := cmd.Flags()
	fs.StringVar(&f.Endpoint, "runtime-endpoint", "",
		"CRI socket, unix:///path or a bare path (default: $CONTAINER_RUNTIME_ENDPOINT, the running kubelet's own, "+
			"/etc/crictl.yaml, a well-known socket)")
	fs.StringVar(&f.Simulate, "simulate", "",
		"ask the embedded runtime in this scenario instead: a name or a YAML file; help lists them")
	fs.DurationVar(&f.Timeout, "timeout", cmp.Or(f.Timeout, DefaultTimeout),
		"the whole command ends by then, whatever hangs")
	fs.DurationVar(&f.RPCTimeout, "rpc-timeout", cmp.Or(f.RPCTimeout, DefaultRPCTimeout),
		"a call that takes longer counts as hung")
	fs.StringVar(&f.FailOn, "fail-on", "critical", "exit 1 from this severity on: critical or warning")
	fs.BoolVarP(&f.Verbose, "verbose", "v", false, "kdiag's own log, to stderr")
	complete(cmd, "simulate", append([]string{"help"}, scenarios...))
	complete(cmd, "fail-on", severities())
}

// Check reports the first flag whose value makes no sense, before any work is done.
func (f *Flags) Check(cmd *cobra.Command, _ []string) error {
	has := func(name string) bool { return cmd.Flags().Lookup(name) != nil }
	oneOf := func(name, value string, values []string) error {
		return Reject(has(name) && !slices.Contains(values, value),
			fmt.Sprintf("--%s %q is not one of %s", name, value, strings.Join(values, ", ")),
			fmt.Sprintf("for example: kdiag %s --%s %s", cmd.Name(), name, values[0]))
	}
	// Below these a healthy runtime on a busy host cannot be told from one that hangs.
	enough := func(name string, d, least, usual time.Duration) error {
		return Reject(has(name) && d < least, fmt.Sprintf("--%s %s leaves no time to look", name, d),
			fmt.Sprintf("give at least %s, such as --%s %s", least, name, usual))
	}
	return cmp.Or(
		oneOf("output", f.Output, Formats),
		oneOf("color", f.Color, colors()),
		oneOf("fail-on", f.FailOn, severities()),
		enough("timeout", f.Timeout, 100*time.Millisecond, DefaultTimeout),
		enough("rpc-timeout", f.RPCTimeout, 10*time.Millisecond, DefaultRPCTimeout),
		RejectEmpty(cmd, "runtime-endpoint", "simulate"),
		Reject(f.Simulate != "" && f.Endpoint != "", "--simulate and --runtime-endpoint exclude each other",
			"leave out --runtime-endpoint to ask the embedded runtime"),
	)
}

func colors() []string { return []string{"auto", "always", "never"} }

func severities() []string { return []string{"critical", "warning"} }

// Margin is what a command keeps of its --timeout for judging and printing.
const Margin = 300 * time.Millisecond

// Budget returns the time for asking, and the deadline of one RPC, which is shortened where --timeout would otherwise
// end the command before a hung call could be told from one that was cut off.
func (f *Flags) Budget() (asking, rpc time.Duration) {
	asking = max(f.Timeout-Margin, f.Timeout/2)
	return asking, min(f.RPCTimeout, asking*2/3)
}

// complete offers values for a flag in shell completion. A flag that was just added cannot be missing, so the error is
// impossible.
func complete(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
