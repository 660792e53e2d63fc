// Package app is the root command: it runs a subcommand and turns what it returned into a message, hints and the exit
// code. It is the only place that does.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/canarycmd"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/exitedcmd"
	"github.com/kdiag/kdiag/cmd/internal/explaincmd"
	"github.com/kdiag/kdiag/cmd/internal/gccmd"
	"github.com/kdiag/kdiag/cmd/internal/journalcmd"
	"github.com/kdiag/kdiag/cmd/internal/nodecmd"
	"github.com/kdiag/kdiag/cmd/internal/plegcmd"
	"github.com/kdiag/kdiag/cmd/internal/proxycmd"
	"github.com/kdiag/kdiag/cmd/internal/relistcmd"
	"github.com/kdiag/kdiag/cmd/internal/reproducecmd"
	"github.com/kdiag/kdiag/cmd/internal/runtimecmd"
	"github.com/kdiag/kdiag/cmd/internal/syncloopcmd"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/cmd/internal/versioncmd"
)

// Main runs kdiag with the given arguments and returns its exit code. SIGINT and SIGTERM end the command early with
// what it has; a second one kills the process.
func Main(ctx context.Context, env cli.Env, args []string) int {
	if len(args) > 0 && args[0] == host.ChildArgument {
		return host.Serve(args[1:], env.Out) // kdiag's own child, for looks that may never return
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	out := &output{Writer: env.Out}
	env.Out = out
	root := Root(env)
	root.SetArgs(args)
	code, message, hint := cli.ExitCode(out.lost(root.ExecuteContext(ctx)))
	if message != "" {
		report(env, "kdiag: "+message)
	}
	if hint != "" {
		report(env, "  hint: "+hint)
	}
	return code
}

// report writes a line to standard error. When that fails there is nowhere left to report it.
func report(env cli.Env, line string) {
	_, _ = fmt.Fprintln(env.Err, printable(line))
}

// maxLine bounds what is printed of bad input, in runes: enough for a path and what is wrong with it, and little of a
// file that is no scenario.
const maxLine = 300

// printable makes a line of what may hold anything a person or a file gave: control characters are shown, not sent.
func printable(line string) string {
	var b strings.Builder
	n := 0
	for _, r := range line {
		if n++; n > maxLine {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Root returns the command tree.
func Root(env cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "kdiag",
		Short: "Say why a Kubernetes node is NotReady, and what to do next",
		Long: `kdiag answers one question on a sick node, in seconds, whatever hangs: why is this node NotReady, and
what do I do next? It needs the runtime's socket, so usually root, and no API server.

Start with:  kdiag pleg

Exit codes: 0 healthy, or the work was done; 1 a problem was found, or part of the work failed; 2 could not tell
(bad usage, no permission, no runtime to ask, interrupted).`,
		Version:                    target.Version(),
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: false},
		Args:                       unknownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		plegcmd.NewCommand(env),
		nodecmd.NewCommand(env),
		runtimecmd.NewCommand(env),
		relistcmd.NewCommand(env),
		exitedcmd.NewCommand(env),
		gccmd.NewCommand(env),
		journalcmd.NewCommand(env),
		canarycmd.NewCommand(env),
		reproducecmd.NewCommand(env),
		syncloopcmd.NewCommand(env),
		proxycmd.NewCommand(env),
		explaincmd.NewCommand(env),
		versioncmd.NewCommand(env),
	)
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
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
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
		cmd.Args = usageArgs(cmd.Args)
		if cmd.HasSubCommands() {
			cmd.Args = unknownCommand
		}
		run := cmd.RunE
		if !cmd.Runnable() {
			run = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if f := cmd.Flags().Lookup("simulate"); f != nil && f.Value.String() == "help" {
				return target.PrintScenarios(cmd.OutOrStdout())
			}
			return run(cmd, args)
		}
		complete(cmd)
	}
}

func flagError(cmd *cobra.Command, err error) error {
	// pflag prints durations and numbers with Go's own parse error; the flag's name and value are enough.
	problem, _, _ := strings.Cut(err.Error(), ": time: ")
	problem, _, _ = strings.Cut(problem, ": strconv.")
	return cli.Usage(problem, cmd.CommandPath()+" --help lists the flags")
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	_, name, _ := strings.Cut(path+" "+args[0], " ")
	hint := path + " --help lists the commands"
	if !cmd.HasAvailableSubCommands() {
		hint = path + " --help shows its use"
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + path + " " + strings.Join(near, ", "+path+" ") + "?"
	}
	return cli.Usage(fmt.Sprintf("there is no command %q", name), hint)
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if usage, ok := errors.AsType[*cli.UsageError](err); ok {
			return usage
		}
		if strings.HasPrefix(err.Error(), "unknown command ") { // of cobra.NoArgs
			return unknownCommand(cmd, args)
		}
		return cli.Usage(err.Error(), cmd.CommandPath()+" --help shows its use")
	}
}
