// Package explaincmd is kdiag explain: what a cause means, how to confirm it, how to fix it.
package explaincmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

// NewCommand returns kdiag explain.
func NewCommand(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "explain [CAUSE]",
		Short: "Explain a cause: what it means, how to confirm it, how to fix it",
		Long:  "Explain a cause: what it means, how to confirm it, how to fix it. Without CAUSE, list all causes.",
		Example: `  kdiag explain
  kdiag explain InspectHang`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: codes(),
		PreRunE:   flags.Check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(env, &flags, args)
		},
	}
	flags.AddOutput(cmd)
	return cmd
}

func run(env cli.Env, flags *cli.Flags, args []string) error {
	how, header := target.Render(env, flags), target.Header(env, "explain", "CauseDefinitionList")
	header.Status = checks.Healthy
	if len(args) == 0 {
		return render.Definitions(env.Out, header, causes.Docs(), how)
	}
	d, ok := causes.Doc(args[0])
	if !ok {
		return cli.Usage(fmt.Sprintf("there is no cause %q", args[0]), suggest(args[0]))
	}
	header.Kind = "CauseDefinition"
	return render.Definition(env.Out, header, d, how)
}

func codes() []string {
	var list []string
	for _, d := range causes.All() {
		list = append(list, d.Code)
	}
	return list
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
		return cmp.Or(cli.DidYouMean("kdiag explain ", typed, codes()), "kdiag explain lists them")
	}
	return "did you mean " + strings.Join(like, ", ") + "?"
}
