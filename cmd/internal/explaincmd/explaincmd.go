// Package explaincmd is kdiag explain: what a cause means, how to confirm it, how to fix it.
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
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// knownBugs is the argument that lists the known bugs.
const knownBugs = "advisories"

// NewCommand returns kdiag explain.
func NewCommand(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "explain [CAUSE]",
		Short: "Explain a cause: what it means, how to confirm it, how to fix it",
		Long: `Explain a cause: what it means, how to confirm it, how to fix it; one of the known ways to hang that kdiag
stacks recognises in a goroutine dump; or a known bug of a runtime, kernel, systemd or kubelet. Without CAUSE, list the
first two; advisories lists the known bugs, and settings the kubelet's settings.`,
		Example: `  kdiag explain
  kdiag explain InspectHang
  kdiag explain container-status-lock
  kdiag explain advisories
  kdiag explain containerd-7496
  kdiag explain settings`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return codes(), cobra.ShellCompDirectiveNoFileComp
		},
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(env, &flags, args)
		},
	}
	flags.AddOutput(cmd)
	cli.AddAdvisories(cmd)
	cmd.AddCommand(newSettings(env))
	return cmd
}

func run(env cli.Env, flags *cli.Flags, args []string) error {
	how, header := document.Options(env, flags), document.Header(env, "explain", "CauseDefinitionList")
	header.Status = checks.Healthy
	if len(args) == 0 {
		all := &render.CauseDefinitionList{Header: header, Causes: causes.Docs(), Pictures: pictures()}
		return render.Definitions(env.Out, all, how)
	}
	if strings.EqualFold(args[0], knownBugs) {
		header.Kind = "AdvisoryList"
		return render.Advisories(env.Out, &render.KnownBugList{Header: header, Advisories: advisories.All()}, how)
	}
	if a, ok := advisories.Lookup(args[0]); ok {
		header.Kind = "Advisory"
		return render.Advisory(env.Out, &render.KnownBug{Header: header, Advisory: a}, how)
	}
	d, ok := causes.Doc(args[0])
	for _, p := range pictures() {
		if strings.EqualFold(p.Code, args[0]) {
			d, ok = p, true
		}
	}
	if !ok {
		return cli.Usage(fmt.Sprintf("there is no cause %q", args[0]), suggest(args[0]))
	}
	header.Kind = "CauseDefinition"
	return render.Definition(env.Out, &render.CauseDefinition{Header: header, Definition: d}, how)
}

// pictures are the known ways to hang, in the form of causes.
func pictures() []checks.Definition {
	list := []checks.Definition{}
	capture := map[string]string{"runtime": "--capture", "shim": "--shim stuck", "kubelet": "--kubelet"}
	for _, p := range stacks.Pictures() {
		list = append(list, checks.Definition{
			Code: p.ID, Title: p.Title, Area: "In goroutine dumps", Means: p.Means, RootOf: p.Causes, Sources: p.Links,
			Confirm: []string{"kdiag stacks " + capture[p.Role] + ": captures a dump and shows which goroutines do this"},
		})
	}
	return list
}

func codes() []string {
	list := []string{knownBugs}
	for _, a := range advisories.All() {
		list = append(list, a.ID)
	}
	for _, d := range slices.Concat(causes.Docs(), pictures()) {
		list = append(list, d.Code)
	}
	return list
}

// suggest returns the causes and pictures with a code or title that holds what was typed.
func suggest(typed string) string {
	var like []string
	for _, d := range slices.Concat(causes.Docs(), pictures()) {
		if strings.Contains(strings.ToLower(d.Code+" "+d.Title), strings.ToLower(typed)) {
			like = append(like, d.Code)
		}
	}
	if len(like) == 0 {
		return cmp.Or(cli.DidYouMean("kdiag explain ", typed, append(codes(), "settings")), "kdiag explain lists them")
	}
	return "did you mean " + strings.Join(like, ", ") + "?"
}

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
			doc := &render.Settings{Header: header, Explanation: all}
			return render.KubeletSettings(env.Out, doc, document.Options(env, &flags))
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
