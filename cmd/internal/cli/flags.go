package cli

import (
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
	fs.StringVarP(&f.Output, "output", "o", "text", "what to print: text, json, yaml, or brief (one line of at most 80 characters)")
	fs.StringVar(&f.Color, "color", "auto", "when to colour text: auto, always or never; NO_COLOR is honoured")
	complete(cmd, "output", Formats)
	complete(cmd, "color", []string{"auto", "always", "never"})
}

// AddRuntime adds the flags of a command that asks a runtime. scenarios are the names offered for --simulate.
func (f *Flags) AddRuntime(cmd *cobra.Command, scenarios []string) {
	fs := cmd.Flags()
	fs.StringVar(&f.Endpoint, "runtime-endpoint", "",
		"CRI socket, unix:///path or a bare path (default: $CONTAINER_RUNTIME_ENDPOINT, the running kubelet's own, /etc/crictl.yaml, a well-known socket)")
	fs.StringVar(&f.Simulate, "simulate", "", "ask the embedded runtime in this scenario instead: a name or a YAML file; help lists them")
	fs.DurationVar(&f.Timeout, "timeout", DefaultTimeout, "the whole command ends by then, whatever hangs")
	fs.DurationVar(&f.RPCTimeout, "rpc-timeout", DefaultRPCTimeout, "a call that takes longer counts as hung")
	fs.StringVar(&f.FailOn, "fail-on", "critical", "exit 1 from this severity on: critical or warning")
	fs.BoolVarP(&f.Verbose, "verbose", "v", false, "kdiag's own log, to stderr")
	complete(cmd, "simulate", append([]string{"help"}, scenarios...))
	complete(cmd, "fail-on", []string{"critical", "warning"})
}

// Check reports the first flag whose value makes no sense, before any work is done.
func (f *Flags) Check(cmd *cobra.Command) error {
	has := func(name string) bool { return cmd.Flags().Lookup(name) != nil }
	oneOf := func(name, value string, values []string) error {
		if !has(name) || slices.Contains(values, value) {
			return nil
		}
		return &UsageError{
			Problem: fmt.Sprintf("--%s %q is not one of %s", name, value, strings.Join(values, ", ")),
			Hint:    fmt.Sprintf("for example: kdiag %s --%s %s", cmd.Name(), name, values[0]),
		}
	}
	// Below these a healthy runtime on a busy host cannot be told from one that hangs.
	enough := func(name string, d, least, usual time.Duration) error {
		if !has(name) || d >= least {
			return nil
		}
		return &UsageError{
			Problem: fmt.Sprintf("--%s %s leaves no time to look", name, d),
			Hint:    fmt.Sprintf("give at least %s, such as --%s %s", least, name, usual),
		}
	}
	for _, err := range []error{
		oneOf("output", f.Output, Formats),
		oneOf("color", f.Color, []string{"auto", "always", "never"}),
		oneOf("fail-on", f.FailOn, []string{"critical", "warning"}),
		enough("timeout", f.Timeout, 100*time.Millisecond, DefaultTimeout),
		enough("rpc-timeout", f.RPCTimeout, 10*time.Millisecond, DefaultRPCTimeout),
	} {
		if err != nil {
			return err
		}
	}
	if has("runtime-endpoint") && cmd.Flags().Changed("runtime-endpoint") && f.Endpoint == "" {
		return &UsageError{
			Problem: "--runtime-endpoint is empty",
			Hint:    "leave it out to let kdiag find the socket, or give a path such as /run/containerd/containerd.sock",
		}
	}
	if has("simulate") && cmd.Flags().Changed("simulate") && f.Simulate == "" {
		return &UsageError{Problem: "--simulate is empty", Hint: "kdiag pleg --simulate help lists the scenarios"}
	}
	if f.Simulate != "" && f.Endpoint != "" && has("simulate") {
		return &UsageError{
			Problem: "--simulate and --runtime-endpoint exclude each other",
			Hint:    "leave out --runtime-endpoint to ask the embedded runtime",
		}
	}
	return nil
}

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
