package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// Flags are the flags that mean the same on every command that has them.
type Flags struct {
	Endpoint   string
	Simulate   string
	Timeout    time.Duration
	RPCTimeout time.Duration
	Output     string
	Formats    []string // values of --output that only this command has
	Details    bool     // text of a report: all evidence, steps and measurements
	All        bool     // text of a report on a node: every check
	Color      string
	FailOn     string
	HostRoot   string
	From       string // a bundle to read instead of the node; empty for none
	Verbose    int    // 0: no log

	Watch        bool // look again and again
	UntilHealthy bool // until nothing is wrong any more
}

// DefaultTimeout and DefaultRPCTimeout bound a read-only command and one RPC.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultRPCTimeout = 5 * time.Second
)

// Formats are the values of --output.
var Formats = []string{"text", "json", "yaml", "brief"}

// AddOutput adds --output and --color. Formats is set before.
func (f *Flags) AddOutput(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.Output, "output", "o", "text", "output format: "+strings.Join(append([]string{
		"text", "json", "yaml",
	}, f.Formats...), ", ")+", or brief (one line of at most 80 characters)")
	fs.StringVar(&f.Color, "color", "auto", "colour text: auto, always or never; NO_COLOR is honoured")
	complete(cmd, "output", f.formats())
	complete(cmd, "color", colors())
}

func (f *Flags) formats() []string { return slices.Concat(Formats, f.Formats) }

// AddRuntime adds the flags of a command that asks a runtime. scenarios are the names offered for --simulate. Timeouts
// that are set already are the defaults.
func (f *Flags) AddRuntime(cmd *cobra.Command, scenarios []string) {
	fs := cmd.Flags()
	f.AddEndpoint(cmd)
	f.AddHostRoot(cmd)
	fs.StringVar(&f.Simulate, "simulate", "",
		"ask the embedded runtime in this scenario instead: a name or a YAML file; help lists the names")
	fs.DurationVarP(&f.Timeout, "timeout", "t", cmp.Or(f.Timeout, DefaultTimeout),
		"end the whole command by then, whatever hangs")
	fs.DurationVar(&f.RPCTimeout, "rpc-timeout", cmp.Or(f.RPCTimeout, DefaultRPCTimeout),
		"count a call that takes longer as hung")
	f.AddFailOn(cmd)
	f.AddVerbose(cmd, "print kdiag's log to stderr")
	complete(cmd, "simulate", append([]string{"help"}, scenarios...))
}

// AddFailOn adds --fail-on.
func (f *Flags) AddFailOn(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.FailOn, "fail-on", "critical", "exit 1 from this severity on: critical or warning")
	complete(cmd, "fail-on", severities())
}

// AddEndpoint adds --runtime-endpoint.
func (f *Flags) AddEndpoint(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.Endpoint, "runtime-endpoint", "r", "",
		"CRI socket, unix:///path or a bare path (default: $CONTAINER_RUNTIME_ENDPOINT, the running kubelet's, "+
			"/etc/crictl.yaml, a well-known socket)")
}

// AddHostRoot adds --host-root, which Host applies.
func (f *Flags) AddHostRoot(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.HostRoot, "host-root", "", "the host's root directory, such as /host in a pod (default /)")
}

// AddDetails adds --details.
func (f *Flags) AddDetails(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.Details, "details", false, "print all tables and rows; a terminal gets what 24 lines hold")
}

// AddFrom adds --from.
func (f *Flags) AddFrom(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.From, "from", "",
		"read this archive of kdiag bundle instead of the node; - is standard input")
}

// AddAdvisories adds --advisories, which the root command reads.
func AddAdvisories(cmd *cobra.Command) {
	cmd.Flags().String("advisories", "", "known bugs in the form of advisories.yaml, beside those of kdiag (default "+
		NewerAdvisories+", if that is newer)")
}

// NewerAdvisories is the file of known bugs that is read without --advisories, where there is one.
const NewerAdvisories = "/usr/share/kdiag/advisories.yaml"

// AddWatch adds --watch and --until-healthy.
func (f *Flags) AddWatch(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&f.Watch, "watch", "w", false, "look again each 5 s and show what changes; --timeout bounds one look")
	fs.BoolVar(&f.UntilHealthy, "until-healthy", false, "watch, and exit 0 as soon as nothing is wrong any more")
}

// exclusions are the flags that exclude each other, in whichever command has both, and a hint.
func exclusions() [][3]string {
	return [][3]string{
		{"simulate", "runtime-endpoint", "leave out --runtime-endpoint to ask the embedded runtime"},
		{"simulate", "host-root", "a simulated runtime has no host"},
		{"watch", "stacks", "leave out --stacks, or --watch"},
		{"watch", "deep", "leave out --deep, or --watch"},
		{"watch", "samples", "leave out --samples, or --watch"},
		{"watch", "checks", "leave out --watch to check the cluster once"},
		{"watch", "logs", "leave out --watch to read the logs once"},
		{"until-healthy", "stacks", "leave out --stacks, or --until-healthy"},
		{"until-healthy", "deep", "leave out --deep, or --until-healthy"},
		{"until-healthy", "samples", "leave out --samples, or --until-healthy"},
		{"follow", "until", "leave one of them out"},
		{"for", "count", "give one of them"},
		{"scenario", "faults", "give one of them, and --fault for more"},
		{"trace", "tui", "leave one of them out"},
		{"trace", "cleanup", "leave one of them out"},
	}
}

// checkExclusions returns an error of bad input for the first two flags that exclude each other.
func checkExclusions(cmd *cobra.Command) error {
	for _, e := range exclusions() {
		if cmd.Flags().Changed(e[0]) && cmd.Flags().Changed(e[1]) {
			return Usage("--"+e[0]+" and --"+e[1]+" exclude each other", e[2])
		}
	}
	return nil
}

// CheckFrom returns an error of bad input for a flag that makes no sense beside --from: all but those of the output and
// the named ones. args are the files that the command was given.
func (f *Flags) CheckFrom(cmd *cobra.Command, args []string, may ...string) error {
	if f.From == "" {
		return RejectEmpty(cmd, "from")
	}
	other := Other(cmd, append(may, "from")...)
	if len(args) > 0 {
		other = "FILE"
	}
	if !cmd.Flags().Changed("timeout") {
		f.Timeout = time.Hour // an archive may arrive slowly, and needs no node that answers
	}
	return Reject(other != "", "--from excludes "+other,
		"leave out "+other+": "+cmd.CommandPath()+" --from shows what was collected on the node")
}

// Other returns the first flag that cmd was given and that is neither one of the output nor one of the named; empty
// where there is none.
func Other(cmd *cobra.Command, may ...string) (other string) {
	may = append(may, "output", "color", "details", "all", "fail-on", "timeout", "verbose")
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if other == "" && !slices.Contains(may, flag.Name) {
			other = "--" + flag.Name
		}
	})
	return other
}

// AddVerbose adds -v, which takes a number as kubectl's does, or none.
func (f *Flags) AddVerbose(cmd *cobra.Command, usage string) {
	cmd.Flags().CountVarP(&f.Verbose, "verbose", "v", usage+"; -v=N is accepted too")
}

// Host returns the surroundings on the host that --host-root names.
func (f *Flags) Host(env Env) Env {
	env.Root = cmp.Or(f.HostRoot, env.Root)
	return env
}

// OneOf reports a flag of cmd that is none of some values.
func OneOf(cmd *cobra.Command, name, value string, values []string) error {
	return Reject(cmd.Flags().Lookup(name) != nil && !slices.Contains(values, value),
		fmt.Sprintf("--%s %q is not one of %s", name, value, strings.Join(values, ", ")),
		cmp.Or(DidYouMean("--"+name+" ", value, values),
			fmt.Sprintf("for example: %s --%s %s", cmd.CommandPath(), name, values[0])))
}

// Check reports the first flag whose value makes no sense, before any work is done.
func (f *Flags) Check(cmd *cobra.Command, _ []string) error {
	f.Watch = f.Watch || f.UntilHealthy
	has := func(name string) bool { return cmd.Flags().Lookup(name) != nil }
	// Below these a healthy runtime on a busy host cannot be told from one that hangs.
	enough := func(name string, d, least, usual time.Duration) error {
		return Reject(has(name) && d < least, fmt.Sprintf("--%s %s leaves no time to look", name, d),
			fmt.Sprintf("give at least %s, such as --%s %s", least, name, usual))
	}
	return cmp.Or(
		OneOf(cmd, "output", f.Output, f.formats()),
		OneOf(cmd, "color", f.Color, colors()),
		OneOf(cmd, "fail-on", f.FailOn, severities()),
		enough("timeout", f.Timeout, 100*time.Millisecond, DefaultTimeout),
		enough("rpc-timeout", f.RPCTimeout, 10*time.Millisecond, DefaultRPCTimeout),
		RejectEmpty(cmd, "runtime-endpoint", "simulate"),
		checkExclusions(cmd),
		f.checkRoot(cmd),
	)
}

// checkRoot makes --host-root absolute and returns an error unless it is the root of a running host.
func (f *Flags) checkRoot(cmd *cobra.Command) error {
	if f.HostRoot == "" {
		return RejectEmpty(cmd, "host-root")
	}
	root, err := filepath.Abs(f.HostRoot)
	look := func(name string) error {
		_, err := Look(name, func() (fs.FileInfo, error) { return os.Stat(name) })
		return err
	}
	if err == nil {
		err = look(root)
	}
	if err != nil {
		return Usage("--host-root: "+err.Error(), "name the directory where the host's / is mounted")
	}
	err = look(filepath.Join(root, "proc", "self"))
	f.HostRoot = root
	return Reject(err != nil, "--host-root "+root+" has no proc: not the root of a running host",
		"mount the host's / there, with its /proc; kdiag journal --root reads a dead node's disk")
}

var sizes = lazyregexp.New(`^(\d{1,12})\s*([KMG]?)(?:i?B)?$`)

// ParseSize parses the size that a flag was given: bytes, or with K, M or G, each 1024 of the one before. The error is
// one of usage.
func ParseSize(flag, text string, least int64) (int64, error) {
	const example = "100MiB"
	hint := "for example --" + flag + " " + example
	m := sizes.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, Usage(fmt.Sprintf("--%s %q is not a size", flag, text), hint)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // digits
	n <<= map[string]int{"K": 10, "M": 20, "G": 30}[m[2]]
	return n, Reject(n < least || n>>40 > 0,
		fmt.Sprintf("--%s %s must be between %dKiB and 1024GiB", flag, text, least>>10), hint)
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

// Within returns ctx with the deadline of asking.
func (f *Flags) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	asking, _ := f.Budget()
	return context.WithTimeout(ctx, asking)
}

// complete offers values for a flag in shell completion. A flag that was just added cannot be missing, so the error is
// impossible.
func complete(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CommandLine writes a command that a person may run next: its name, and those of the flags given to cmd that are among
// the names, as they were given. A command that is printed means the same runtime and the same pods that way.
func CommandLine(cmd *cobra.Command, name string, flags ...string) string {
	line := "kdiag " + name
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(flags, f.Name) {
			return
		}
		line += " --" + f.Name
		switch value := f.Value.String(); f.Value.Type() {
		case "bool":
			if value != "true" {
				line += "=" + value
			}
		case "stringToString": // prints itself as [key=value,...]
			line += " " + Quote(strings.TrimSuffix(strings.TrimPrefix(value, "["), "]"))
		default:
			line += " " + Quote(value)
		}
	})
	return line
}

// RuntimeFlags are the flags that name the runtime.
func RuntimeFlags() []string { return []string{"runtime-endpoint", "simulate", "host-root"} }

// Quote writes a word so that a shell reads it back as it is.
func Quote(word string) string {
	if plain := regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`); plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
