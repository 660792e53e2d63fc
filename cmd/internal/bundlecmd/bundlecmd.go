// Package bundlecmd is kdiag bundle: the evidence of an incident in one archive.
package bundlecmd

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl/fake"
)

type options struct {
	cli.Flags
	connection.KubeletFlags
	archive.UploadFlags
	format   string
	size     string
	maxBytes int64
	redact   string
	noStacks bool
	since    time.Duration
	list     string
	file     string // empty for a name by host and time, - for standard output

	timeoutGiven bool // as a flag
}

// The defaults: a node where everything hangs has its bundle within ten seconds, and a slow disk gets more.
const (
	defaultTimeout = time.Minute
	defaultSize    = "100MiB"
	defaultSince   = time.Hour
)

// NewCommand returns kdiag bundle.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{Flags: cli.Flags{Timeout: defaultTimeout}}
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Pack the evidence of an incident into one archive, without secrets, to read elsewhere",
		Long: `Collect what explains an incident before a restart destroys it: the report of kdiag node and its facts,
goroutine dumps of the runtime, of stuck shims and of the kubelet, logs, configurations, processes, mounts, pressure,
disks, units, versions, the node's object. Whatever hangs is left behind, and the manifest has what is missing and why.

Secrets are removed; --redact strict also replaces addresses and names. No environment and no command line of a
container is ever copied. The archive is readable by its owner only. kdiag node, pleg, journal, stacks and exited read
it on any machine with --from.

For the dumps the runtime's daemon and stuck shims get SIGUSR1, after proof that they handle it; nothing stops.
--no-stacks leaves the dumps out.

With --upload the archive is sent as well, by PUT or POST: to a presigned URL of an object store, or to a plain server.
What fails is tried again until --timeout.

Exit codes: 0 written, also where the node is unhealthy; 1 written, and logs or another vital part is missing or cut, or
it could not be sent; 2 nothing written.`,
		Example: `  kdiag bundle                                   # kdiag-HOST-TIME.tar.zst in this folder
  ssh node sudo kdiag bundle - > node.tar.zst    # nothing is written to the node's disk
  kdiag bundle --upload 'https://logs.example.com/kdiag/{node}/{time}-{cause}.tar.zst'
  kdiag bundle --list node.tar.zst               # what it holds, and what is missing
  kdiag node --from node.tar.zst                 # the verdict again, anywhere`,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.list != "" {
				return archive.List(cmd.Context(), env, &opts.Flags, "--list", opts.list)
			}
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	cli.AddAdvisories(cmd)
	opts.AddOutput(cmd)
	opts.AddKubeletFlags(cmd, "do not ask the API server for the node's object and events")
	fs := cmd.Flags()
	_ = fs.MarkHidden("fail-on") // it is there; the state of the node does not decide the exit code
	fs.StringVar(&opts.format, "format", bundle.Zst, "how the archive is compressed: zst or tgz")
	fs.StringVar(&opts.size, "max-size", defaultSize, "largest size of the archive; the most valuable files come first")
	fs.StringVar(&opts.redact, "redact", string(redact.Standard),
		"what is removed: standard (secrets) or strict (also addresses and names)")
	fs.BoolVar(&opts.noStacks, "no-stacks", false, "take no goroutine dumps, so send no signal")
	fs.DurationVar(&opts.since, "since", defaultSince, "how far back logs are copied")
	fs.StringVar(&opts.list, "list", "", "list and check this archive instead")
	opts.AddUpload(cmd)
	for flag, values := range map[string][]string{"format": formats(), "redact": levels()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func formats() []string { return []string{bundle.Zst, bundle.Tgz} }

func levels() []string { return []string{string(redact.Standard), string(redact.Strict)} }

func (o *options) check(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		o.file = args[0]
	}
	o.timeoutGiven = cmd.Flags().Changed("timeout")
	var err error
	o.maxBytes, err = cli.ParseSize("max-size", o.size, bundle.LeastBytes)
	return cmp.Or(
		cli.RejectEmpty(cmd, "list", "max-size"),
		cli.Reject(len(args) > 0 && o.file == "", "FILE is empty", "leave it out for a name by host and time"),
		cli.Reject(o.list != "" && len(args) > 0, "--list takes the archive itself: "+o.file+" is one too many",
			"for example: kdiag bundle --list "+o.list),
		o.CheckUpload(cmd),
		cli.Reject(o.URL != "" && (o.file == "-" || o.list != ""), "--upload sends a file that is written",
			"name a new FILE, or leave out --upload"),
		cli.OneOf(cmd, "format", o.format, formats()), cli.OneOf(cmd, "redact", o.redact, levels()),
		err,
		cli.Reject(o.since <= 0, "--since must be > 0", "for example --since 2h"),
		o.CheckKubeletFlags(cmd), o.Check(cmd, nil),
	)
}
