// Package versioncmd is kdiag version.
package versioncmd

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

type version struct {
	checks.Header
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	Revision  string `json:"revision,omitempty"` // commit that it was built from, where the Go command knew it
	CRI       string `json:"criAPI,omitempty"`   // version of k8s.io/cri-api that it is built with
}

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
			return run(env, flags.Output)
		},
	}
	flags.AddOutput(cmd)
	return cmd
}

func run(env cli.Env, format string) error {
	v := version{
		Header:    target.Header(env, "Version"),
		GoVersion: runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
		for _, d := range info.Deps {
			if d.Path == "k8s.io/cri-api" {
				v.CRI = d.Version
			}
		}
	}
	var out []byte
	var err error
	switch format {
	case "json":
		out, err = json.MarshalIndent(v, "", "  ")
		out = append(out, '\n')
	case "yaml":
		out, err = yaml.Marshal(v)
	default:
		out = fmt.Appendf(nil, "kdiag %s (%s, %s, CRI v1 of cri-api %s)\n",
			v.KdiagVersion, v.GoVersion, v.Platform, v.CRI)
	}
	if err != nil {
		return fmt.Errorf("encoding the version: %w", err)
	}
	_, err = env.Out.Write(out)
	return err
}
