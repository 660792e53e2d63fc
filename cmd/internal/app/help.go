package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/cmd/internal/render"
)

// A group is a part of a help text: its title, and the commands or flags in it, separated by commas.
type group struct{ title, names string }

func (g group) has(name string) bool { return slices.Contains(strings.Split(g.names, ","), name) }

// commandGroups are the commands by what they are for. What is missing stands under Other.
func commandGroups() []group {
	return []group{
		{"Diagnose", "pleg,node,fleet,runtime,relist,journal,bundle,stacks,exited,explain,mcp"},
		{"Watch", "agent,history"},
		{"Act", "gc-exited,canary"},
		{"Learn and test", "syncloop,reproduce,proxy,runtime serve"},
	}
}

// flagGroups are the flags that several commands have. Those of one command stand before them.
func flagGroups() []group {
	return []group{
		{"Flags", ""},
		{"Target", "context,kubeconfig,runtime-endpoint,from,simulate,host-root,kubelet-token,kubelet-cert,kubelet-key"},
		{"Filter", "selector,namespace,pod,label,older-than,min-age,limit,since,until,unit,boot"},
		{"Output", "output,no-headers,color,details,all,fail-on,html,log,log-file,save,tui,verbose,v"},
		{
			"Safety",
			"yes,plan,apply,audit,keep,rate,ignore-pod-liveness,cleanup,no-api-server,timeout,rpc-timeout",
		},
	}
}

// maxHelp is the width of help on a wide terminal, in columns.
const maxHelp = 100

// printHelp writes the help of a command for a terminal of so many columns.
func printHelp(w io.Writer, cmd *cobra.Command, width int) {
	width = min(width, maxHelp)
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	_, _ = fmt.Fprintf(w, "%s\n\nUsage:\n", wrap(text, width))
	if cmd.Runnable() && cmd.HasParent() {
		_, _ = fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		_, _ = fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	printCommands(w, cmd, width)
	groups := flagGroups()
	sets := make([]pflag.FlagSet, len(groups))
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		at := slices.IndexFunc(groups, func(g group) bool { return g.has(f.Name) })
		sets[max(at, 0)].AddFlag(f)
	})
	for i := range sets {
		if sets[i].HasAvailableFlags() {
			_, _ = fmt.Fprintf(w, "\n%s:\n%s", groups[i].title, sets[i].FlagUsagesWrapped(width))
		}
	}
	if cmd.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(w, "\n%s COMMAND --help shows the flags of a command.\n", cmd.CommandPath())
	}
}

// printCommands writes the subcommands; kdiag itself has groups of them.
func printCommands(w io.Writer, cmd *cobra.Command, width int) {
	other := group{title: "Commands"}
	var groups []group
	if !cmd.HasParent() {
		groups, other.title = commandGroups(), "Other"
	}
	for _, sub := range cmd.Commands() {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.has(sub.Name()) }) && sub.IsAvailableCommand() {
			other.names += "," + sub.Name()
		}
	}
	const indent = 16
	for _, g := range append(groups, other) {
		title := "\n" + g.title + ":\n"
		for name := range strings.SplitSeq(g.names, ",") {
			sub, rest, err := cmd.Find(strings.Fields(name))
			if err != nil || len(rest) > 0 || sub == cmd {
				continue
			}
			short := strings.ReplaceAll(wrap(sub.Short, width-indent), "\n", "\n"+strings.Repeat(" ", indent))
			_, _ = fmt.Fprintf(w, "%s  %-*s%s\n", title, indent-2, name, short)
			title = ""
		}
	}
}

// wrap fills the paragraphs of a text to a width. One with indented lines stays as it is.
func wrap(text string, width int) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.ContainsAny(paragraph, "\t") || strings.Contains("\n"+paragraph, "\n ") {
			out = append(out, paragraph)
			continue
		}
		out = append(out, render.Fill(paragraph, width))
	}
	return strings.Join(out, "\n\n")
}
