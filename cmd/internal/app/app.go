// Package app is the root command: it runs a subcommand and turns what it returned into a message, hints and the exit
// code. It is the only place that does.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/agentcmd"
	"github.com/kdiag/kdiag/cmd/internal/bundlecmd"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/exitedcmd"
	"github.com/kdiag/kdiag/cmd/internal/explaincmd"
	"github.com/kdiag/kdiag/cmd/internal/fleetcmd"
	"github.com/kdiag/kdiag/cmd/internal/historycmd"
	"github.com/kdiag/kdiag/cmd/internal/journalcmd"
	"github.com/kdiag/kdiag/cmd/internal/mcpcmd"
	"github.com/kdiag/kdiag/cmd/internal/nodecmd"
	"github.com/kdiag/kdiag/cmd/internal/proxycmd"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/reproducecmd"
	"github.com/kdiag/kdiag/cmd/internal/stackscmd"
	"github.com/kdiag/kdiag/cmd/internal/syncloopcmd"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// Main runs kdiag with the given arguments and returns its exit code.
func Main(ctx context.Context, env cli.Env, args []string) int {
	if len(args) > 0 && args[0] == host.ChildArgument {
		return host.Serve(args[1:], env.Out) // kdiag's own child, for looks that may never return
	}
	if len(args) > 1 && args[0] == workerArgument {
		return work(ctx, env, args[1:])
	}
	if mayHang(env, args) {
		if code, ok := supervise(args); ok {
			return code
		}
		env.Self = "" // no child can be started either
	}
	reloads := len(args) > 0 && args[0] == "agent" // on SIGHUP
	ctx, stop := interruptible(ctx, !reloads, nil)
	defer stop()
	return run(ctx, env, args)
}

// run is Main without signals.
func run(ctx context.Context, env cli.Env, args []string) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args = verbosity(args)
	out := &output{Writer: env.Out, gone: stop}
	env.Out, env.Err = out, &output{Writer: env.Err, gone: stop}
	root := rootFor(env, args)
	root.SetArgs(args)
	code, message, hint := cli.ExitCode(out.finalError(root.ExecuteContext(ctx)))
	wrote, left := out.state()
	if left { // whoever read: the command was interrupted
		return cli.ExitUnknown
	}
	if message == "" {
		return code
	}
	hint = env.Named(hint)
	report := func(before, text string) { _, _ = fmt.Fprintln(env.Err, before+render.Printable(text)) }
	report("kdiag: ", message)
	if hint != "" {
		report("  hint: ", hint)
	}
	if format := outputFlag.FindStringSubmatch(strings.Join(args, "\n")); format != nil && !wrote {
		cmd, _, _ := root.Find(args)
		command := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), root.CommandPath()))
		doc := &render.Error{Header: document.Header(env, command, "Error"), Hint: hint}
		doc.Problems = []string{message}
		if err := render.PrintError(env.Out, doc, render.Options{Format: render.Format(format[1])}); err != nil {
			report("kdiag: ", err.Error())
		}
	}
	return code
}

// outputFlag matches -o json and -o yaml in arguments, one a line, even if the others are invalid.
var outputFlag = lazyregexp.New(`(?m)^(?:-o[=\n]?|--output[=\n])(json|yaml)$`)

// unsupervised are the commands that read nothing of a host, and the services, which end when they are told to.
const unsupervised = "kdiag,help,completion,bash,fish,powershell,zsh,version,explain," +
	"agent,mcp,syncloop,reproduce,proxy,serve"

// mayHang reports whether a command needs a supervisor, since a thread of it may wait without end.
func mayHang(env cli.Env, args []string) bool {
	if env.Self == "" {
		return false
	}
	args = verbosity(args)
	cmd, rest, err := rootFor(env, args).Find(args)
	if err != nil || slices.Contains(strings.Split(unsupervised, ","), cmd.Name()) {
		return false
	}
	if err := cmd.ParseFlags(rest); err != nil { // or --help
		return false
	}
	simulate := cmd.Flags().Lookup("simulate")
	return simulate == nil || simulate.Value.String() == "" || strings.ContainsAny(simulate.Value.String(), "/.")
}

// interruptible returns a context that ends with SIGINT, SIGTERM or, if it is to, SIGHUP, so that each command cleans
// up. A second SIGINT or SIGTERM kills the process; a second SIGHUP does not, as shell and kernel may both send one.
// SIGPIPE does nothing: a socket of a dead runtime raises it too. The write that failed tells the two apart; see
// output. A signal that a supervisor relays, and that a terminal has sent to this process as well, counts once.
func interruptible(ctx context.Context, byHangup bool, relayed <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	own, pipe := make(chan os.Signal, 8), make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	signal.Notify(own, os.Interrupt, syscall.SIGTERM)
	if byHangup && !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(own, syscall.SIGHUP)
	}
	go func() {
		for here, there := 0, 0; ; {
			count := &here
			var s os.Signal
			select {
			case s = <-own:
			case s = <-relayed:
				count = &there
			}
			cancel()
			if s != syscall.SIGHUP {
				*count++
			}
			if max(here, there) > 1 {
				signal.Reset(s)
				_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
			}
		}
	}()
	return ctx, cancel
}

// verbosity joins -v with the number after it: pflag takes an optional value only behind an equals sign.
func verbosity(args []string) []string {
	var out []string
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if last := len(out) - 1; last >= 0 && slices.Contains([]string{"-v", "--v", "--verbose"}, out[last]) &&
			number.MatchString(arg) {
			out[last] += "=" + arg
			continue
		}
		if digits, ok := strings.CutPrefix(arg, "-v"); ok && number.MatchString(digits) {
			arg = "-v=" + digits
		}
		out = append(out, arg)
	}
	return out
}

var number = lazyregexp.New(`^[0-9]+$`)

// A command is a subcommand of kdiag.
type command struct {
	name string
	make func(cli.Env) *cobra.Command
}

// commands returns all subcommands.
func commands() []command {
	return []command{
		{"pleg", nodecmd.NewPleg},
		{"node", nodecmd.NewCommand},
		{"runtime", nodecmd.NewRuntime},
		{"relist", nodecmd.NewRelist},
		{"exited", exitedcmd.NewCommand},
		{"gc-exited", exitedcmd.NewCleanUp},
		{"journal", journalcmd.NewCommand},
		{"mcp", mcpcmd.NewCommand},
		{"history", historycmd.NewCommand},
		{"fleet", fleetcmd.NewCommand},
		{"bundle", bundlecmd.NewCommand},
		{"agent", agentcmd.NewCommand},
		{"canary", nodecmd.NewCanary},
		{"reproduce", reproducecmd.NewCommand},
		{"syncloop", syncloopcmd.NewCommand},
		{"proxy", proxycmd.NewCommand},
		{"stacks", stackscmd.NewCommand},
		{"explain", explaincmd.NewCommand},
		{"version", newVersion},
	}
}

// Root returns the command tree.
func Root(env cli.Env) *cobra.Command { return tree(env, "") }

// rootFor returns as much of the command tree as the arguments need: where they begin with a subcommand, that alone.
func rootFor(env cli.Env, args []string) *cobra.Command {
	if len(args) > 0 && slices.ContainsFunc(commands(), func(c command) bool { return c.name == args[0] }) {
		return tree(env, args[0])
	}
	return tree(env, "")
}

// tree returns the command tree with one subcommand, or with all where only is empty.
func tree(env cli.Env, only string) *cobra.Command {
	root := &cobra.Command{
		Use:   "kdiag",
		Short: "Say why a Kubernetes node is NotReady, and what to do next",
		Long: `kdiag answers one question on a sick node, in seconds, whatever hangs: why is this node NotReady, and
what do I do next? It needs the runtime's socket, so usually root, and no API server.

Start with:  kdiag pleg

Exit codes: 0 healthy, or the work was done; 1 a problem was found, or part of the work failed; 2 could not tell
(bad usage, no permission, no runtime to ask, interrupted).`,
		Version:                    cli.Version(),
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args:                       unknownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return addAdvisories(cmd, cli.NewerAdvisories)
		},
	}
	if env.Plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kdiag"}
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(cmd.OutOrStdout(), cmd, env.Width) })
	for _, c := range commands() {
		if only == "" || only == c.name {
			root.AddCommand(c.make(env))
		}
	}
	root.InitDefaultCompletionCmd()
	complete(root)
	root.SetHelpCommand(newHelp(root))
	return root
}

// newHelp replaces cobra's help command, which calls an unknown topic a success.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, _ := root.Find(args) // the error is of commands that take any arguments
			if err := unknownCommand(cmd, rest); err != nil {
				return err
			}
			return cmd.Help()
		},
	}
}

// complete gives all commands below root what they share: a wrong number of arguments is a usage error, one that only
// has subcommands prints its help, and --simulate help lists the scenarios. cobra looks at the arguments only of a
// command that runs something.
func complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		check, run := cmd.Args, cmd.RunE
		if cmd.HasSubCommands() && cmd.ValidArgsFunction == nil {
			check = unknownCommand
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error { return argsError(cmd, args, check(cmd, args)) }
		if !cmd.Runnable() {
			run = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if f := cmd.Flags().Lookup("simulate"); f != nil && f.Value.String() == "help" {
				return connection.PrintScenarios(cmd.OutOrStdout())
			}
			return run(cmd, args)
		}
		complete(cmd)
	}
}

func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && cmd.ValidArgsFunction == nil && len(args) > 0 {
		return unknownCommand(cmd, args)
	}
	hint := cmd.CommandPath() + " --help lists the flags"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		hint = cmp.Or(cli.DidYouMean("--", unknown.GetSpecifiedName(), names), hint)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		hint = cmp.Or(cli.ValueHint(bad.GetFlag(), bad.GetValue()), hint)
	}
	// pflag prints durations and numbers with Go's own parse error; the flag's name and value are enough.
	problem, _, _ := strings.Cut(err.Error(), ": time: ")
	problem, _, _ = strings.Cut(problem, ": strconv.")
	return cli.Usage(problem, hint)
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	name := strings.TrimSpace(strings.TrimPrefix(path, cmd.Root().CommandPath()) + " " + args[0])
	hint := path + " --help lists the commands"
	if !cmd.HasAvailableSubCommands() {
		hint = path + " --help shows its use"
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + path + " " + strings.Join(near, ", "+path+" ") + "?"
	}
	return cli.Usage(fmt.Sprintf("there is no command %q", name), hint)
}

// argsError makes the error of a wrong number of arguments one of usage.
func argsError(cmd *cobra.Command, args []string, err error) error {
	_, usage := errors.AsType[*cli.Error](err)
	switch {
	case err == nil, usage:
		return err
	case strings.HasPrefix(err.Error(), "unknown command ") && cmd.HasAvailableSubCommands(): // of cobra.NoArgs
		return unknownCommand(cmd, args)
	}
	path := cmd.CommandPath()
	problem, hint := path+" takes no arguments", path+" --help shows its use"
	if _, takes, ok := strings.Cut(cmd.Use, " "); ok && len(args) == 0 {
		problem = path + " needs " + takes
	} else if ok {
		problem = fmt.Sprintf("%s takes %s, not %d arguments", path, takes, len(args))
	}
	return cli.Usage(problem, hint)
}

// mostAdvisories bounds a file of known bugs, in bytes: a hundred times the one of the program.
const mostAdvisories = 4 << 20

// addAdvisories reads the known bugs that --advisories names, for the commands that have it. Without it, a file that
// was installed beside the program counts if its newest row is newer; one that cannot be read is a warning, since
// nobody asked for it.
func addAdvisories(cmd *cobra.Command, installed string) error {
	flag := cmd.Flags().Lookup("advisories")
	if flag == nil {
		return nil
	}
	if !flag.Changed {
		rows, err := readAdvisories(installed)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), render.Printable("kdiag: "+err.Error()+": not used"))
		case advisories.Date(rows) > advisories.Date(advisories.All()):
			advisories.Add(rows)
		}
		return nil
	}
	rows, err := readAdvisories(flag.Value.String())
	if err != nil {
		return cli.Usage("--advisories: "+err.Error(), "kdiag explain advisories -o yaml shows the form of the rows")
	}
	advisories.Add(rows)
	return nil
}

func readAdvisories(name string) ([]advisories.Advisory, error) {
	text, err := cli.ReadFile(name, mostAdvisories)
	if err != nil {
		return nil, err
	}
	rows, err := advisories.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(name, `""`), err)
	}
	return rows, nil
}

// An output is standard output or error. It remembers the first write error, which cobra's help ignores, and ends the
// command when the reader of a pipe has left.
type output struct {
	io.Writer
	mu  sync.Mutex
	err error

	wrote bool   // anything
	gone  func() // called when the reader has left
}

// Write writes, and remembers that it failed.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrote = o.wrote || len(b) > 0
	if o.err == nil {
		o.err = err
	}
	if errors.Is(err, syscall.EPIPE) {
		o.gone()
	}
	return n, err
}

// state reports whether anything was written, and whether the reader has left.
func (o *output) state() (wrote, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote, errors.Is(o.err, syscall.EPIPE)
}

// Fd returns the descriptor below, for what draws on a terminal.
func (o *output) Fd() uintptr {
	if f, ok := o.Writer.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// finalError returns err, or the first write error if the command gave an answer.
func (o *output) finalError(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if code, message, _ := cli.ExitCode(err); message != "" && code == cli.ExitUnknown || o.err == nil {
		return err
	}
	return fmt.Errorf("writing to standard output: %w", o.err)
}

// newVersion returns kdiag version.
func newVersion(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print kdiag's version",
		Example: "  kdiag version -o json",
		Args:    cobra.NoArgs,
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(env, &flags)
		},
	}
	flags.AddOutput(cmd)
	return cmd
}

func printVersion(env cli.Env, flags *cli.Flags) error {
	v := &render.Version{
		Header:    document.Header(env, "version", "Version"),
		GoVersion: runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	v.Status = checks.Healthy
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.time":
				v.CommittedAt = s.Value
			}
		}
		for _, d := range info.Deps {
			if d.Path == "k8s.io/cri-api" {
				v.CRI = d.Version
			}
		}
	}
	return render.PrintVersion(env.Out, v, document.Options(env, flags))
}
