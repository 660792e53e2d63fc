package explaincmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// newSettings returns kdiag explain settings.
func newSettings(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "settings [NAME]",
		Short: "Explain the kubelet's settings: value on this node, origin, default, what it means for PLEG",
		Long: `Explain the settings of the kubelet that runs here, as far as PLEG and the node's readiness depend on them:
the value, where it comes from (flag, file, drop-in), the kubelet's default, and, of one NAME or with --details, what it
means for PLEG and NotReady. An asterisk marks a value that differs from the default. What no setting changes follows.
Where no kubelet runs, the defaults are printed. NAME is a field of KubeletConfiguration, a flag or a feature gate.`,
		Example: `  kdiag explain settings
  kdiag explain settings runtimeRequestTimeout
  kdiag explain settings --details
  kdiag explain settings --host-root /host -o json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return settings(), cobra.ShellCompDirectiveNoFileComp
		},
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, args []string) error {
			all := readSettings(cmd.Context(), flags.Host(env).Root)
			if len(args) > 0 {
				keep(&all, args[0])
			}
			if len(all.Settings)+len(all.Constants) == 0 {
				return cli.Usage(fmt.Sprintf("there is no setting %q in the list", args[0]), cmp.Or(
					cli.DidYouMean("kdiag explain settings ", args[0], settings()), "kdiag explain settings lists them"))
			}
			header := document.Header(env, "explain settings", "KubeletSettings")
			header.Status, header.Problems = checks.Healthy, append(header.Problems, all.Problems...)
			return render.KubeletSettings(env.Out, header, all, document.Options(env, &flags))
		},
	}
	flags.AddOutput(cmd)
	flags.AddHostRoot(cmd)
	cmd.Flags().BoolVar(&flags.Details, "details", false, "print what each setting means")
	return cmd
}

// settings returns the names of the settings.
func settings() (names []string) {
	for _, s := range kubelet.ExplainDefaults().Settings {
		names = append(names, s.Name)
	}
	return names
}

// keep leaves the setting, gates or constant of a name, in any case.
func keep(all *kubelet.Explanation, name string) {
	other := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(n, name) })
	}
	all.Settings = slices.DeleteFunc(all.Settings, func(s kubelet.Explained) bool {
		return other(s.Name, s.Field, strings.TrimPrefix(s.Flag, "--"))
	})
	all.Constants = slices.DeleteFunc(slices.Clone(all.Constants), func(c kubelet.Constant) bool { return other(c.Name) })
}

// readSettings returns the settings of the kubelet on the host, or the defaults and why. Its files may lie on a disk
// that hangs.
func readSettings(ctx context.Context, root string) kubelet.Explanation {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, _ := crictl.Discover(ctx, crictl.DiscoverOptions{Root: root}) // an endpoint is not needed
	var why []string
	for _, t := range found.Tried {
		if t.Source == crictl.SourceKubelet && found.Kubelet == nil {
			why = append(why, strings.TrimPrefix(t.What+": "+t.Why, "the running kubelet: "))
		}
	}
	if found.Kubelet != nil {
		all, err := deadline.Run(ctx, "reading the kubelet's settings", func(context.Context) (kubelet.Explanation, error) {
			return kubelet.Explain(root, found.Kubelet.PID)
		})
		if err == nil {
			return all
		}
		why = append(why, err.Error())
	}
	all := kubelet.ExplainDefaults()
	all.Problems = []string{"These are the defaults of Kubernetes 1.37: " + strings.Join(why, "; ")}
	return all
}
