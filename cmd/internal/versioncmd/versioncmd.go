// Package versioncmd is kdiag version.
package versioncmd

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

// NewCommand returns kdiag version.
func NewCommand(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print kdiag's version",
		Example: "  kdiag version -o json",
		Args:    cobra.NoArgs,
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(env, &flags)
		},
	}
	flags.AddOutput(cmd)
	return cmd
}

func run(env cli.Env, flags *cli.Flags) error {
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
