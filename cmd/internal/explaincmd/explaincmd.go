// Package explaincmd is kdiag explain: what a cause means, how to confirm it, how to fix it.
package explaincmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

// NewCommand returns kdiag explain.
func NewCommand(env cli.Env) *cobra.Command {
	var flags cli.Flags
	var codes []string
	for _, d := range causes.All() {
		codes = append(codes, d.Code)
	}
	cmd := &cobra.Command{
		Use:   "explain [CAUSE]",
		Short: "Explain a cause: what it means, how to confirm it, how to fix it",
		Long: "Explain a cause that kdiag names: what it means, how to confirm it, how to fix it. Without a cause, " +
			"list them.",
		Example: `  kdiag explain
  kdiag explain InspectHang`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: codes,
		PreRunE:   flags.Check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(env, &flags, args)
		},
	}
	flags.AddOutput(cmd)
	return cmd
}

func run(env cli.Env, flags *cli.Flags, args []string) error {
	how := target.Render(env, flags)
	if len(args) == 0 {
		return render.Definitions(env.Out, causes.Docs(), how)
	}
	d, ok := causes.Doc(args[0])
	if !ok {
		return cli.Usage(fmt.Sprintf("there is no cause %q", args[0]), suggest(args[0]))
	}
	return render.Definition(env.Out, d, how)
}

// suggest returns the causes whose code or title holds what was typed.
func suggest(typed string) string {
	var like []string
	for _, d := range causes.Docs() {
		if strings.Contains(strings.ToLower(d.Code+" "+d.Title), strings.ToLower(typed)) {
			like = append(like, d.Code)
		}
	}
	if len(like) == 0 {
		return "kdiag explain lists them"
	}
	return "did you mean " + strings.Join(like, ", ") + "?"
}
