// Package fleetcmd is kdiag fleet: the nodes of a cluster.
package fleetcmd

import (
	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

// NewCommand returns kdiag fleet.
func NewCommand(env cli.Env) *cobra.Command {
	cluster := &target.Cluster{}
	cmd := &cobra.Command{Use: "fleet", Short: "Show the nodes of a cluster, and what their agents found"}
	cluster.AddCluster(cmd)
	cmd.AddCommand(newRemoteCommands(env, cluster)...)
	return cmd
}
