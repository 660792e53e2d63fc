package fleetcmd

import (
	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

func newRemoteCommands(cli.Env, *target.Cluster) []*cobra.Command { return nil }
